"""Guarantees of the transactions in a log, whatever clients have asked.

The model reads records in their order and knows only this: the states that may follow each other,
that epochs and producer ids only rise, that each decision is followed by its end and nothing else,
and that an id is removed only if it is old and has no transaction.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.transaction import (
    PREVIOUS_STATES,
    Producer,
    Transaction,
    TransactionState,
)

_END: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Decision(NamedTuple):
    """Whether the transaction of a producer is committed, and the offset of the record."""

    commit: bool
    offset: int


class Model:
    """The records that were read."""

    def __init__(self, expiration_ms: int) -> None:
        self.known: dict[str, Transaction] = {}
        self.decisions: dict[Producer, Decision] = {}
        self.end_offset = 0
        self.removed = 0
        self._expiration_ms = expiration_ms
        self._highest_id: dict[str, int] = {}

    def read(self, record: TransactionRecord, now_ms: int) -> None:
        """Checks the next record."""
        name, after = record.transactional_id, record.transaction
        before = self.known.get(name)
        if after is None:
            self._remove(name, now_ms)
        else:
            if before is None:
                self._begin(after)
            else:
                _require_follows(before, after)
            self._check(after)
            self.known[name] = after
            self._highest_id[name] = after.producer_id
        self.end_offset += 1

    def _remove(self, name: str, now_ms: int) -> None:
        before = self.known.pop(name, None)
        assert before is not None, f"{name} is removed twice"
        assert before.state.is_at_rest, f"{name} is removed in {before.state}"
        assert before.update_ms <= now_ms - self._expiration_ms, f"{name} is not old"
        self.removed += 1

    def _begin(self, after: Transaction) -> None:
        name = after.transactional_id
        assert after.state is TransactionState.EMPTY, f"{name} begins in {after.state}"
        assert after.producer_epoch == 0, after
        assert after.producer_id > self._highest_id.get(name, -1), "an id is used again"

    def _check(self, after: Transaction) -> None:
        assert not after.partitions or not after.state.is_at_rest, after
        assert after.next_producer_id == -1 or after.state.is_prepared, after
        assert (after.start_ms == -1) == (after.state is TransactionState.EMPTY), after
        if after.state in _END:
            producer = Producer(after.producer_id, after.producer_epoch)
            # Before version 2 a producer has the same epoch in all its transactions.
            assert after.client_version < 2 or producer not in self.decisions, producer
            commit = after.state is TransactionState.PREPARE_COMMIT
            self.decisions[producer] = Decision(commit, self.end_offset)

    def sent(self, marker: TransactionMarker, high_watermark: int) -> None:
        """Checks that markers say what is decided and committed."""
        decision = self.decisions[Producer(marker.producer_id, marker.producer_epoch)]
        assert decision.commit is marker.commit, marker
        assert decision.offset < high_watermark, marker


def _require_follows(before: Transaction, after: Transaction) -> None:
    change = f"{before} -> {after}"
    assert before.state in PREVIOUS_STATES[after.state], change
    assert before.update_ms <= after.update_ms, change
    old = Producer(before.producer_id, before.producer_epoch)
    new = Producer(after.producer_id, after.producer_epoch)
    assert old <= new, change
    if before.state in _END:
        assert after.state is _END[before.state], change
        next_id = before.next_producer_id
        assert new == (old if next_id == -1 else Producer(next_id, 0)), change
    if before.state is TransactionState.ONGOING:
        assert set(before.partitions) <= set(after.partitions), change
        assert (after.start_ms, after.timeout_ms) == (before.start_ms, before.timeout_ms), change
