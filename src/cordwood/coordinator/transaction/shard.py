"""The transactions of one partition of `__transaction_state`.

Source: kafka.coordinator.transaction.TransactionStateManager (TxnMetadataCacheEntry).
"""

from __future__ import annotations

from cordwood.coordinator.timeline import LATEST, Timeline, TimelineMap
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.format.java_map import concurrent_hash_map_order


class TransactionShard:
    """The coordinator's state of one partition."""

    def __init__(self, partition: int, timeline: Timeline) -> None:
        self.partition = partition
        self.transactions: TimelineMap[str, Transaction] = TimelineMap(timeline)

    def check_invariants(self) -> None:
        """Checks each transaction, and that it is under its id."""
        for transactional_id, transaction in self.transactions.items():
            assert transaction.transactional_id == transactional_id, transaction
            transaction.check_invariants()

    def replay(self, record: TransactionRecord) -> None:
        """Applies a record that is in the log."""
        if record.transaction is None:
            self.transactions.remove(record.transactional_id)
        else:
            self.transactions.put(record.transactional_id, record.transaction)

    def committed(self, transactional_id: str) -> Transaction | None:
        """The transaction as it is committed: requests are checked with it."""
        return self.transactions.committed(transactional_id)

    def is_pending(self, transactional_id: str) -> bool:
        """Whether a transition is in progress, and another one has to wait for its end.

        Its record is not committed, or the markers of a transaction whose outcome is decided are
        not in all logs.

        Source: TransactionMetadata.pendingTransitionInProgress.
        """
        latest = self.transactions.get(transactional_id)
        if latest is not self.committed(transactional_id):
            return True
        return latest is not None and latest.state.is_prepared

    def ids(self, at: int = LATEST) -> list[str]:
        """The transactional ids, in the order in which Kafka's map yields them."""
        return concurrent_hash_map_order(name for name, _ in self.transactions.items(at))
