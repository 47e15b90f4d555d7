"""Bugs in transactions: their coordinator, their markers, and what logs know of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from cordwood.broker.coordinators import transaction_markers
from cordwood.coordinator.group import offset_fetch
from cordwood.coordinator.group.offsets import OffsetStore
from cordwood.coordinator.transaction.machine import TransactionStateMachine
from cordwood.coordinator.transaction.transaction import Transaction, TransactionState
from cordwood.storage.producers.producer_append import ProducerAppendInfo
from support.simulation.bugs.planting import all_of, replaced


def marker_forgotten() -> AbstractContextManager[None]:
    """The marker of a transaction is not written to its last partition, if it has several."""
    return _markers_sent(lambda marker, wanted: (marker, wanted[: max(1, len(wanted) - 1)]))


def abort_marker_commits() -> AbstractContextManager[None]:
    """An aborted transaction is ended by a marker that says that it is committed."""
    return _markers_sent(lambda marker, wanted: (marker._replace(commit=True), wanted))


def _markers_sent(change: Callable[[Any, Any], tuple[Any, Any]]) -> AbstractContextManager[None]:
    """Other markers, to other partitions, are sent than those that the coordinator asks for."""
    real = transaction_markers.MarkerSender.send

    def send(
        self: transaction_markers.MarkerSender,
        state_partition: int,
        marker: Any,
        wanted: Any,
        done: Callable[[], None],
    ) -> None:
        real(self, state_partition, *change(marker, wanted), done)

    return replaced(transaction_markers.MarkerSender, "send", send)


def epoch_stays_after_a_transaction() -> AbstractContextManager[None]:
    """The end of a transaction does not raise the producer's epoch (KIP-890)."""
    real = Transaction.prepared

    def prepared(self: Transaction, **options: Any) -> Transaction:
        return replace(real(self, **options), producer_epoch=self.producer_epoch)

    return replaced(Transaction, "prepared", prepared)


def open_transaction_forgotten() -> AbstractContextManager[None]:
    """A producer's next life begins without the end of the transaction that is open."""
    real = TransactionStateMachine._init_producer_id

    def init(self: TransactionStateMachine, shard: Any, event: Any, now_ms: int) -> Any:
        known = shard.committed(event.transactional_id)
        is_open = known is not None and known.state is TransactionState.ONGOING
        if not is_open or shard.is_pending(event.transactional_id):
            return real(self, shard, event, now_ms)
        forgotten = replace(known, state=TransactionState.EMPTY, partitions=())
        with (
            replaced(type(shard), "committed", lambda _self, _id: forgotten),
            replaced(type(shard), "is_pending", lambda _self, _id: False),
        ):
            return real(self, shard, event, now_ms)

    return replaced(TransactionStateMachine, "_init_producer_id", init)


def timed_out_transaction_commits() -> AbstractContextManager[None]:
    """A transaction that is open for too long is committed."""
    real, prepared = TransactionStateMachine._timed_out, Transaction.prepared

    def committed(self: Transaction, *, commit: bool, **rest: Any) -> Transaction:
        del commit
        return prepared(self, commit=True, **rest)

    def timed_out(self: TransactionStateMachine, *arguments: Any) -> Any:
        with replaced(Transaction, "prepared", committed):
            return real(self, *arguments)

    return replaced(TransactionStateMachine, "_timed_out", timed_out)


def batches_of_old_producer_epochs_taken() -> AbstractContextManager[None]:
    """A leader appends what a producer sends that another has replaced."""
    real = ProducerAppendInfo.append_data_batch

    def append(self: ProducerAppendInfo, epoch: int, *rest: Any, **options: Any) -> None:
        real(self, max(epoch, self.entry.producer_epoch), *rest, **options)

    return replaced(ProducerAppendInfo, "append_data_batch", append)


def old_markers_taken() -> AbstractContextManager[None]:
    """A leader appends the markers of transactions that have ended, and of old coordinators."""
    return all_of(
        replaced(ProducerAppendInfo, "_check_marker_epoch", lambda _self, *_: None),
        replaced(ProducerAppendInfo, "_check_coordinator_epoch", lambda _self, *_: None),
    )


def offsets_of_aborted_transactions_kept() -> AbstractContextManager[None]:
    """The offsets that an aborted transaction was to commit are those of the group."""
    real = OffsetStore.end_transaction

    def end(self: OffsetStore, producer_id: int, *, commit: bool) -> None:
        del commit
        real(self, producer_id, commit=True)

    return replaced(OffsetStore, "end_transaction", end)


def unstable_offsets_answered() -> AbstractContextManager[None]:
    """A group is given its offsets although a transaction whose end is decided changes them."""
    real = offset_fetch._fetched

    def fetched(*arguments: Any, at: int, pending: object) -> Any:
        del pending
        return real(*arguments, at=at, pending=())

    return replaced(offset_fetch, "_fetched", fetched)
