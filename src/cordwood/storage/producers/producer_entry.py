"""One producer of a log: its last batches, its open transaction, its next sequence.

Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, BatchMetadata, CompletedTxn,
TxnMetadata, VerificationStateEntry, VerificationGuard.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.format.batch_header import BatchHeader
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.record import SEQUENCE_MAX

BATCHES_RETAINED = 5
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class BatchMetadata(NamedTuple):
    """A batch that a producer appended; `last_offset` is inclusive, `timestamp` its maximum, ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record; before 0 comes 2^31-1."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else SEQUENCE_MAX + 1 + first

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction with records; `last_offset` is that of the marker that ended it."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class OngoingTransaction:
    """A transaction by its first offset; `last_offset` is its marker's, None before it has one."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset: int | None = None


class VerificationGuard:
    """Stands for one transaction that is being verified; equal to nothing but itself."""

    __slots__ = ()


class AttemptedSequence:
    """The lowest sequence that a producer has tried in its newest epoch without being written.

    If a batch with a higher one were taken first, the lower one could never be written.
    `timestamp` is in ms, for the expiry.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "timestamp")

    def __init__(self, timestamp: int, sequence: int, producer_epoch: int) -> None:
        self.timestamp = timestamp
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch

    def note(self, sequence: int, producer_epoch: int) -> None:
        """Records another attempt; one of an older epoch is ignored."""
        if producer_epoch > self.producer_epoch or (
            producer_epoch == self.producer_epoch and sequence < self.lowest_sequence
        ):
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence


class VerificationState(AttemptedSequence):
    """A producer whose next transaction is being verified with its coordinator.

    Source: KIP-890.
    """

    __slots__ = ("guard", "supports_epoch_bump")

    def __init__(
        self, timestamp: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> None:
        super().__init__(timestamp, sequence, producer_epoch)
        self.guard = VerificationGuard()
        self.supports_epoch_bump = supports_epoch_bump


class ProducerStateEntry:
    """The state of one producer in a log.

    `batches` are its newest, at most five, the oldest first, all of `producer_epoch`.
    `last_timestamp` (ms) is that of its last batch or marker. `current_txn_first_offset` is None
    with no transaction open.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
        batches: tuple[BatchMetadata, ...] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches = batches

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(producerId={self.producer_id}, "
            f"producerEpoch={self.producer_epoch}, "
            f"currentTxnFirstOffset={self.current_txn_first_offset}, "
            f"coordinatorEpoch={self.coordinator_epoch}, lastTimestamp={self.last_timestamp}, "
            f"batches={list(self.batches)})"
        )

    def check_invariants(self) -> None:
        """Asserts that batches ascend, are not too many, and that offsets are sound."""
        assert len(self.batches) <= BATCHES_RETAINED, f"{self!r}"
        lasts = [batch.last_offset for batch in self.batches]
        assert lasts == sorted(set(lasts)), f"{self!r}: batches do not ascend"
        assert all(batch.offset_delta >= 0 for batch in self.batches), f"{self!r}"
        first = self.current_txn_first_offset
        assert first is None or first >= 0, f"{self!r}"

    @classmethod
    def from_snapshot(cls, entry: ProducerEntry) -> ProducerStateEntry:
        """The entry of a snapshot, which has the last batch alone."""
        batches: tuple[BatchMetadata, ...] = ()
        if entry.last_offset >= 0:
            last = BatchMetadata(
                entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
            )
            batches = (last,)
        open_since = entry.current_txn_first_offset
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp,
            open_since if open_since >= 0 else None,
            batches,
        )

    def to_snapshot(self) -> ProducerEntry:
        """The entry of a producer snapshot."""
        open_since = self.current_txn_first_offset
        return ProducerEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_data_offset,
            offset_delta=self.last_offset_delta,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=-1 if open_since is None else open_since,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no batch of its is known."""
        return not self.batches

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest batch known, -1 without one."""
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def first_data_offset(self) -> int:
        """The first offset of the oldest batch known, -1 without one."""
        return self.batches[0].first_offset if self.batches else -1

    @property
    def last_data_offset(self) -> int:
        """The last offset of the newest batch, -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        """The newest batch's last offset less its first, 0 without one."""
        return self.batches[-1].offset_delta if self.batches else 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch known that has the epoch and the sequences of `header`."""
        batches = self.batches
        if not batches or header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in batches:
            if batch[0] == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Makes `batch` its newest; batches of another epoch are forgotten."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = (batch,)
        else:
            self.batches = (*self.batches[1 - BATCHES_RETAINED :], batch)
        self.last_timestamp = batch.timestamp

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Applies a marker; batches of another epoch are dropped."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = ()
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = None
        self.last_timestamp = timestamp

    def update(self, newer: ProducerStateEntry) -> None:
        """Applies later appends; `newer` has only their batches."""
        if newer.producer_epoch != self.producer_epoch:
            self.producer_epoch = newer.producer_epoch
            self.batches = newer.batches
        elif newer.batches:
            self.batches = (*self.batches, *newer.batches)[-BATCHES_RETAINED:]
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp
