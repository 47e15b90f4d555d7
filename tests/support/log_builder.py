"""Partition directories made batch by batch, as a broker leaves them behind.

`LogBuilder` holds one partition in memory; `write` puts its segments, indexes, producer snapshots
and leader epochs into a directory, `write_log_dir` several partitions with the checkpoints around
them. `support.random_log` fills a builder at random.

Source: org.apache.kafka.storage.internals.log.LogSegment.append, UnifiedLog.roll, UnifiedLog.close.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import Checkpoints
from cordwood.cleanup.plan.captured import Captured
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import CREATE_TIME, LOG_APPEND_TIME, BatchHeader
from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import build_leader_epoch_checkpoint
from cordwood.format.legacy import LegacyBatch
from cordwood.format.meta_properties import MetaProperties, build_meta_properties
from cordwood.format.offset_checkpoint import build_offset_checkpoint
from cordwood.format.offset_index import build_offset_index
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.format.producer_snapshot import ProducerEntry, build_producer_snapshot
from cordwood.format.record_batch import Record, RecordBatch, build_batch, parse_batch
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.reading.batch_heads import marker_of
from cordwood.testing.reference_cleaner import index_entries

#: The moment that tests take for now, unless they say otherwise (ms).
NOW_MS = 1_700_000_000_000
_HOUR_MS = 3_600_000
TOPIC_ID = parse_uuid("b3JkZXJzAAAAAAAAAAAAAQ")

KeyValue = tuple[bytes | None, bytes | None]


@dataclass(slots=True, kw_only=True)
class BuiltSegment:
    """One segment in memory; `snapshot` is the state of producers at its base, None without one."""

    base_offset: int
    modified_ms: int
    snapshot: list[ProducerEntry] | None = None
    batches: list[bytes] = field(default_factory=list)
    facts: list[tuple[int, int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes of its log."""
        return sum(map(len, self.batches))


class LogBuilder:
    """One partition. Offsets and sequences are given out as a leader does, unless set.

    `log_start_offset`, `high_watermark`, `recovery_point` and `cleaner_checkpoint` are the lines
    that `write_log_dir` puts into checkpoints: None for what a clean stop leaves, which is no line
    of a cleaner, the first base for the log start, and the log end offset for the other two.
    """

    def __init__(
        self,
        name: str = "log-0",
        *,
        index_interval_bytes: int = 4096,
        start_offset: int = 0,
        modified_ms: int = NOW_MS - 48 * _HOUR_MS,
    ) -> None:
        self.topic_partition = TopicPartition.parse(name)
        self.index_interval_bytes = index_interval_bytes
        self.next_offset = start_offset
        self.leader_epoch = 0
        self.epochs = [(0, start_offset)]
        self.modified_ms = modified_ms
        self.segments = [BuiltSegment(base_offset=start_offset, modified_ms=modified_ms)]
        self.log_start_offset: int | None = None
        self.high_watermark: int | None = None
        self.recovery_point: int | None = None
        self.cleaner_checkpoint: int | None = None
        # Its snapshots are written by `write`, whichever directory that is given.
        self._producers = ProducerStateManager(self.topic_partition, Path(name))
        self._open: dict[int, int] = {}
        #: By producer: the offsets of its last two markers, -1 where there is none.
        self._markers: dict[int, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, int], int] = {}

    @property
    def active(self) -> BuiltSegment:
        """The active segment."""
        return self.segments[-1]

    # ---- what a leader does

    def batch(
        self,
        records: Sequence[KeyValue | Record],
        *,
        timestamp: int = NOW_MS - 24 * _HOUR_MS,
        codec: Codec = Codec.NONE,
        append_time: bool = False,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
        last_offset: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> int:
        """Appends one data batch; returns its base offset.

        Args:
            records: (key, value) each with the next offset and `timestamp`; or records with offsets
                of their own, so that some may be missing, as after a cleaning.
            timestamp: of every (key, value), in ms.
            codec: of the batch.
            append_time: with LogAppendTime `timestamp`.
            producer: (producer id, epoch) of an idempotent producer.
            transactional: opens the producer's transaction if none is open.
            last_offset: the batch's, inclusive; that of the last record by default.
            delete_horizon_ms: as an earlier cleaning stamped it.
        """
        base = self.next_offset
        whole = [
            r if isinstance(r, Record) else Record(base + i, timestamp, r[0], r[1])
            for i, r in enumerate(records)
        ]
        last = whole[-1].offset if last_offset is None else last_offset
        producer_id, epoch = producer or (-1, -1)
        data = build_batch(
            whole,
            base_offset=base,
            codec=codec,
            timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME,
            log_append_time_ms=timestamp if append_time else -1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1 if producer is None else self.next_sequence(producer, last - base + 1),
            is_transactional=transactional,
            partition_leader_epoch=self.leader_epoch,
            last_offset=last,
            delete_horizon_ms=delete_horizon_ms,
        )
        self.append(data)
        return base

    def put(self, key: bytes | None, value: bytes | None, **options: Any) -> int:
        """A batch of one record, with the options of `batch`; returns its offset."""
        return self.batch([(key, value)], **options)

    def marker(
        self,
        producer: tuple[int, int],
        *,
        commit: bool,
        timestamp: int = NOW_MS - 24 * _HOUR_MS,
        coordinator_epoch: int = 0,
    ) -> int:
        """Ends a producer's transaction; returns the marker's offset."""
        offset = self.next_offset
        self.append(
            build_end_txn_marker(
                offset=offset,
                timestamp=timestamp,
                producer_id=producer[0],
                producer_epoch=producer[1],
                control_type=ControlType.COMMIT if commit else ControlType.ABORT,
                coordinator_epoch=coordinator_epoch,
                partition_leader_epoch=self.leader_epoch,
            )
        )
        first = self._open.pop(producer[0], None)
        if first is not None and not commit:
            self.aborted(producer[0], first, offset)
        return offset

    def aborted(self, producer_id: int, first_offset: int, marker_offset: int) -> None:
        """Adds an entry for the transaction that the producer's last marker has ended.

        It goes to the transaction index of the active segment. The transactions of one producer do
        not overlap in any log that a broker has written.
        """
        earliest = self.earliest_first_offset(producer_id)
        assert first_offset >= earliest, (
            f"{first_offset} where no earlier one than {earliest} may be"
        )
        self.active.aborted.append(
            AbortedTransaction(
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=marker_offset,
                last_stable_offset=min(self._open.values(), default=marker_offset + 1),
            )
        )

    def earliest_first_offset(self, producer_id: int) -> int:
        """The earliest start of the transaction that the producer's last marker has ended."""
        return self._markers.get(producer_id, (-1, -1))[0] + 1

    def append(self, data: bytes) -> None:
        """Appends any batch; producers and open transactions are taken from its header."""
        batch = parse_batch(data)
        assert batch is not None, "not a whole batch"
        first = batch.base_offset
        assert first >= self.next_offset, f"offset {first} where {self.next_offset} is next"
        self.active.batches.append(data)
        self.active.facts.append((len(data), batch.last_offset, batch.max_timestamp))
        self.next_offset = batch.next_offset
        if isinstance(batch, LegacyBatch) or not batch.header.has_producer_id:
            return
        self._note_producer(batch, batch.header)

    def _note_producer(self, batch: RecordBatch, header: BatchHeader) -> None:
        completed = self._producers.replay(header, marker_of(batch) if header.is_control else None)
        if completed is not None:
            self._producers.complete_transaction(completed)
        if header.is_control:
            before = self._markers.get(header.producer_id, (-1, -1))[1]
            self._markers[header.producer_id] = before, header.last_offset
        if header.is_transactional and not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)

    def next_sequence(self, producer: tuple[int, int], count: int) -> int:
        """Gives out so many sequences of a (producer id, epoch); returns the first."""
        first = self._sequences.get(producer, 0)
        self._sequences[producer] = first + count
        return first

    def skip(self, count: int) -> None:
        """Leaves a gap of offsets, as a cleaning does."""
        self.next_offset += count

    def roll(self, *, modified_ms: int | None = None) -> None:
        """Closes the active segment and begins one at the next offset."""
        assert self.next_offset > self.active.base_offset, (
            "a roll at the base of the active segment"
        )
        self.modified_ms = self.modified_ms + 60_000 if modified_ms is None else modified_ms
        self.segments.append(
            BuiltSegment(
                base_offset=self.next_offset,
                modified_ms=self.modified_ms,
                snapshot=self._snapshot(),
            )
        )

    def new_leader_epoch(self) -> None:
        """Another leader takes over at the next offset."""
        self.leader_epoch += 1
        if self.epochs[-1][1] == self.next_offset:
            self.epochs.pop()
        self.epochs.append((self.leader_epoch, self.next_offset))

    def open_transactions(self) -> dict[int, int]:
        """First offsets of open transactions by producer id."""
        return dict(self._open)

    def _snapshot(self) -> list[ProducerEntry]:
        return self._producers.entries()

    # ---- files

    def write(self, directory: Path) -> Path:
        """Writes the partition's directory, as after a clean stop; returns it."""
        directory.mkdir(parents=True, exist_ok=True)
        for segment in self.segments:
            for suffix, data in self.files_of(segment).items():
                path = directory / segment_file_name(segment.base_offset, suffix)
                path.write_bytes(data)
                os.utime(path, ns=(segment.modified_ms * 1_000_000,) * 2)
        if self.next_offset > self.active.base_offset:
            name = segment_file_name(self.next_offset, PRODUCER_SNAPSHOT_SUFFIX)
            (directory / name).write_bytes(build_producer_snapshot(self._snapshot()))
        (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(
            build_leader_epoch_checkpoint(self._epochs_from_start())
        )
        (directory / PARTITION_METADATA).write_bytes(build_partition_metadata(TOPIC_ID))
        return directory

    def _epochs_from_start(self) -> list[tuple[int, int]]:
        """The epochs from the log start offset on, which is where the first of them begins."""
        start = self.epochs[0][1] if self.log_start_offset is None else self.log_start_offset
        ended = [each for each in self.epochs if each[1] <= start]
        return [(ended[-1][0], start), *self.epochs[len(ended) :]] if ended else self.epochs

    def files_of(self, segment: BuiltSegment) -> dict[str, bytes]:
        """The bytes of a segment's files, by suffix."""
        offsets, times = index_entries(segment.facts, interval_bytes=self.index_interval_bytes)
        files = {
            LOG_SUFFIX: b"".join(segment.batches),
            INDEX_SUFFIX: build_offset_index(offsets, segment.base_offset),
            TIME_INDEX_SUFFIX: build_time_index(times, segment.base_offset),
        }
        if segment.aborted:
            files[TXN_INDEX_SUFFIX] = build_transaction_index(segment.aborted)
        if segment.snapshot is not None:
            files[PRODUCER_SNAPSHOT_SUFFIX] = build_producer_snapshot(segment.snapshot)
        return files

    def checkpoints(self) -> Checkpoints:
        """The lines of this partition alone."""
        return checkpoints_of([self])

    def capture(self, directory: Path, config: LogConfig, *, now_ms: int = NOW_MS) -> Captured:
        """The log as it is captured in `directory`, after a clean stop."""
        offline = load_offline_log(
            directory,
            self.topic_partition,
            config=config,
            checkpoints=self.checkpoints(),
            clean_shutdown=True,
            producer_expiration_ms=24 * _HOUR_MS,
            now_ms=now_ms,
        )
        return capture_offline(offline, cleaner_checkpoint=self.cleaner_checkpoint)


def checkpoints_of(logs: Sequence[LogBuilder]) -> Checkpoints:
    """The four checkpoints of a log directory with these partitions."""

    def lines(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        return {name: offset for name, offset in offsets.items() if offset is not None}

    def or_end(offset: int | None, log: LogBuilder) -> int:
        return log.next_offset if offset is None else offset

    return Checkpoints(
        recovery_point={g.topic_partition: or_end(g.recovery_point, g) for g in logs},
        log_start=lines({g.topic_partition: g.log_start_offset for g in logs}),
        high_watermark={g.topic_partition: or_end(g.high_watermark, g) for g in logs},
        cleaner=lines({g.topic_partition: g.cleaner_checkpoint for g in logs}),
    )


def write_log_dir(root: Path, logs: Sequence[LogBuilder], *, clean_shutdown: bool = True) -> Path:
    """Writes an entry of log.dirs that holds these partitions; returns it."""
    root.mkdir(parents=True, exist_ok=True)
    for log in logs:
        log.write(root / str(log.topic_partition))
    checkpoints = checkpoints_of(logs)
    for name, offsets in (
        (RECOVERY_POINT_CHECKPOINT, checkpoints.recovery_point),
        (LOG_START_OFFSET_CHECKPOINT, checkpoints.log_start),
        (REPLICATION_OFFSET_CHECKPOINT, checkpoints.high_watermark),
        (CLEANER_OFFSET_CHECKPOINT, checkpoints.cleaner),
    ):
        (root / name).write_bytes(build_offset_checkpoint(offsets))
    (root / META_PROPERTIES).write_bytes(
        build_meta_properties(
            MetaProperties(
                version=1,
                cluster_id="c2Vjb25kLWNsdXN0ZXItMQ",
                node_id=1,
                directory_id=parse_uuid("m8yCKPtj-67ToAczzdCnyQ"),
            )
        )
    )
    if clean_shutdown:
        (root / CLEAN_SHUTDOWN).write_bytes(build_clean_shutdown(1))
    return root
