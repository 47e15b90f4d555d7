"""`__transaction_state` as the log of the transaction coordinator.

Source: kafka.coordinator.transaction.TransactionStateManager (loadTransactionMetadata).
"""

from __future__ import annotations

from typing import Final

from cordwood.broker.coordinators.coordinator_log import LogFormat, Replay
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.model.errors import UnsupportedVersionError
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC

_REMEDY = (
    "Producers with a transactional id of this partition are answered NOT_COORDINATOR. Stop the "
    "broker and restore the partition's directory from a copy, or remove it: transactions that are "
    "open then have to be aborted with `cordwood transactions`"
)
#: The first bytes of values that are known.
_VALUE_VERSIONS = frozenset((b"\0\0", b"\0\1"))


class TransactionReplay(Replay[TransactionRecord]):
    """Replays batches. A record waits: mostly, a later one of its key takes its place."""

    topic = TRANSACTION_STATE_TOPIC
    unknown = UnsupportedVersionError
    decode = staticmethod(records.decode)

    def __init__(self, state: TransactionShard) -> None:
        super().__init__(state.partition)
        self._state = state
        # The newest value of each key with its offset.
        self._newest: dict[bytes | None, tuple[bytes | None, int]] = {}

    @staticmethod
    def describe(_key: bytes | None) -> str:
        """A transaction, whatever its id."""
        return "the transaction"

    def batch(self, batch: RecordBatch | LegacyBatch) -> None:
        """Takes the records of a batch; control records say nothing of transactional ids."""
        if isinstance(batch, LegacyBatch):
            for record in batch.records():
                self._take(record.offset, record.key, record.value)
        elif not batch.header.is_control:
            base_offset = batch.header.base_offset
            for _, offset_delta, key, value, _, _ in batch.iter_fields():
                self._take(base_offset + offset_delta, key, value)

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None or value[:2] in _VALUE_VERSIONS:
            self._newest[key] = value, offset
        else:  # it does not take the place of one that is known
            self._record(offset, key, value)

    def flush(self) -> None:
        """Replays the records that wait."""
        for key, (value, offset) in self._newest.items():
            self._record(offset, key, value)
        self._newest.clear()

    def _record(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        found = self.decoded(offset, key, value)
        if found is not None:
            self._state.replay(found)


TRANSACTION_LOG: Final[LogFormat[TransactionShard, TransactionRecord]] = LogFormat(
    topic=TRANSACTION_STATE_TOPIC,
    contents="transactions",
    encode=lambda new: [records.encode(record) for record in new],
    # Not compressed, and no record of the topic is part of a transaction.
    batch_of=lambda made, now_ms, _producer: records.batch_of(made, now_ms=now_ms),
    error_of_append=error_of_append,
    replay=TransactionReplay,
    count=lambda state: len(state.transactions),
    remedy=_REMEDY,
)
