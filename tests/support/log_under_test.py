"""A partition's log for a test: opened in one call, written by producers, read as consumers do.

`support.stored_log` has the batches, and logs that are opened again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import PRODUCER_SNAPSHOT_SUFFIX, base_offset_of
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.log_reader import Fetched, Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from support.stored_log import batch_of, end_transaction

_FETCH_BYTES = 1 << 20


class FixedRng:
    """Not random at all: always the same number, reduced to the requested range."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._ids = 0

    def below(self, bound: int) -> int:
        """The number, or the largest below `bound`."""
        return min(self.number, bound - 1)

    def unique_id(self) -> str:
        """32 hexadecimal digits, counted upwards."""
        self._ids += 1
        return f"{self._ids:032x}"


def new_log(
    root: Path,
    *,
    name: str = "t-0",
    fs: FileSystem = OS,
    clock: ManualClock | None = None,
    context: LogContext | None = None,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    topic_id: UUID | None = None,
    verify_transactions: bool = False,
    **settings: Any,
) -> PartitionLog:
    """The log of `root / name`, made where there is none, opened by a process of its own.

    Args:
        root: the log directory.
        name: of the partition.
        fs: where it lies.
        clock: the time source; by default one that stands still.
        context: of the process, in place of a new one.
        clean: the last stop was a clean one.
        recovery_point: as checkpointed.
        log_start_offset: likewise.
        topic_id: of the topic as the cluster knows it.
        verify_transactions: whether a transaction's first batch needs a guard.
        settings: fields of `LogConfig`; cleanup_policy may be text, as in Kafka.
    """
    policy = settings.get("cleanup_policy")
    if isinstance(policy, str):
        settings["cleanup_policy"] = frozenset(policy.split(",")) - {""}
    context = context or LogContext(
        clock=clock or ManualClock(),
        resources=ResourceCache(fs),
        verify_transactions=verify_transactions,
    )
    return load_log(
        LoadRequest(
            directory=root / name,
            topic_partition=TopicPartition.parse(name),
            config=LogConfig(**settings),
            context=context,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
        )
    )


def follow(log: PartitionLog, *batches: bytes, leader_epoch: int | None = None) -> AppendResult:
    """Appends what a leader has sent, all in one go."""
    return log.append_as_follower(b"".join(batches), leader_epoch=leader_epoch)


def catch_up(log: PartitionLog) -> None:
    """Puts the high watermark to the log's end: all replicas have all of it."""
    log.update_high_watermark(log.log_end_offset)


class Producer:
    """A producer that numbers its records, by default in transactions."""

    def __init__(
        self,
        log: PartitionLog,
        producer_id: int,
        epoch: int = 0,
        *,
        transactional: bool = True,
        sequence: int = 0,
    ) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self._is_transactional = transactional

    def batch(self, count: int, *, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """The next batch, of so many records; its sequences are used up."""
        first, self.sequence = self.sequence, self.sequence + count
        return batch_of(
            *[b"%d" % number for number in range(first, self.sequence)],
            base_offset=base_offset,
            producer=(self.producer_id, self.epoch, first),
            transactional=self._is_transactional,
            leader_epoch=leader_epoch,
        )

    def append(
        self,
        count: int = 1,
        *,
        guard: object | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Appends a batch of so many records."""
        return self.log.append_as_leader(self.batch(count), origin=origin, verification_guard=guard)

    def end(self, *, commit: bool, coordinator_epoch: int = 0) -> AppendResult:
        """Has its coordinator end the transaction."""
        return end_transaction(
            self.log,
            self.producer_id,
            commit=commit,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
        )


def sized_batch(size_bytes: int, *, offset: int = 0, timestamp: int = -1) -> bytes:
    """A batch of one record that takes so many bytes."""
    value = bytes(size_bytes)
    for _ in range(3):  # the length before a value takes fewer bytes as the value gets shorter
        data = build_batch([Record(offset, timestamp, None, value)], base_offset=offset)
        if len(data) == size_bytes:
            return data
        value = bytes(len(value) - (len(data) - size_bytes))
    raise ValueError(f"no batch of one record takes {size_bytes} bytes")


# ---- what is read


def fetch(
    log: PartitionLog,
    offset: int,
    max_bytes: int = _FETCH_BYTES,
    *,
    isolation: Isolation = Isolation.LOG_END,
    min_one: bool = True,
) -> Fetched:
    """A read up to the log's end, by default as a follower makes it."""
    return log.reader.read(offset, max_bytes, isolation=isolation, min_one=min_one)


def batches_read(fetched: Fetched) -> list[RecordBatch]:
    """The whole batches of a read."""
    found = []
    for _, batch in iter_batches(fetched.read()):
        assert isinstance(batch, RecordBatch), "a batch of magic 2"
        found.append(batch)
    return found


def records_read(fetched: Fetched) -> list[Record]:
    """The records of a read, also those below the offset that was asked for."""
    return [record for batch in batches_read(fetched) for record in batch.records()]


def offsets_read(fetched: Fetched) -> list[int]:
    """The offsets of a read's records."""
    return [record.offset for record in records_read(fetched)]


# ---- what is there


def state_of(log: PartitionLog) -> tuple[object, ...]:
    """All that an append may change and a refused one must not."""
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.offsets.recovery_point,
        log.segments.base_offsets,
        log.size_bytes,
        log.leader_epochs.epoch_entries,
        log.producer_state.map_end_offset,
        tuple(log.producer_state.entries()),
        tuple(
            entry
            for segment in log.segments
            for entry in segment.indexes.transactions.all_aborted()
        ),
    )


def first_unstable(log: PartitionLog) -> int | None:
    """The first offset of the earliest transaction that is open, or not yet replicated."""
    return log.offsets.first_unstable


def names_with(directory: Path, suffix: str) -> list[str]:
    """The names of a real directory's files with that suffix, sorted."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffix))


def snapshot_offsets(directory: Path) -> list[int]:
    """The offsets of the producer snapshots in a real directory."""
    return [base_offset_of(name) for name in names_with(directory, PRODUCER_SNAPSHOT_SUFFIX)]


def remove_snapshots(directory: Path) -> None:
    """Removes the producer snapshots of a real directory, as an old log has none."""
    for name in names_with(directory, PRODUCER_SNAPSHOT_SUFFIX):
        (directory / name).unlink()


def last_sequences(log: PartitionLog) -> dict[int, int]:
    """The last sequence of each producer that the log knows."""
    return {
        producer_id: entry.last_sequence
        for producer_id, entry in log.producer_state.active_producers.items()
    }


def bases(log: PartitionLog) -> Sequence[int]:
    """The base offsets of its segments."""
    return log.segments.base_offsets
