"""One attempt of a task: the rows that it is given, as segments of each partition.

The segments begin at offset 0 and leader epoch 0, which `commit` replaces: neither is in a batch's
CRC. They lie in a directory of their own below the log directory, which is named as one to be
deleted, so that a broker removes it at its start if nobody else has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    build_header,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.native import kernels
from cordwood.format.native import record_rows as rows_of
from cordwood.format.native.codecs import Codecs
from cordwood.format.varint import Buffer
from cordwood.frames.writing.columns import Bytes, Ints, Rows, rows_from
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.record_conversion import target_codec, target_level
from cordwood.storage.directory_names import delete_directory_name
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_indexes import AppendedBatch

#: Encoded records that wait for their batch to fill take no more, over all partitions.
PENDING_BYTES_MAX: Final = 64 << 20

_HEADER: Final = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=0,
    magic=MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=0,
    max_timestamp=0,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    records_count=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """The settings of all attempts of a job.

    `job` distinguishes it from all others. `now_ms` is the time of rows without one, and where the
    topic has that of appends, of all.
    """

    job: str
    log_dir: Path
    topic: str
    partitions: int
    config: LogConfig
    batch_bytes: int
    now_ms: int

    def directory(self, attempt: str) -> Path:
        """The directory of an attempt, which holds one for each partition that it writes."""
        partition = TopicPartition(self.topic, 0)
        return self.log_dir / delete_directory_name(partition, f"{self.job}{attempt}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The segments of an attempt: by partition their base offsets, and the end of the last."""

    directory: Path
    partitions: Mapping[int, tuple[tuple[int, ...], int]]


def write_attempt(
    plan: AttemptPlan,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
    attempt: str,
    fs: FileSystem = OS,
) -> Staged:
    """Writes rows as segments, which are on disk on return; an attempt that fails leaves none.

    The rows of a partition keep their order. Those without a key or a partition stay in one for
    as many bytes as a batch takes, and continue in the next; the first is that of the task's
    number.

    Args:
        plan: of the job.
        batches: the rows.
        task: the number of the task.
        attempt: distinguishes this attempt from all others of the job.
        fs: where the log directory lies.

    Raises:
        KafkaError: a record cannot be in the topic.
        NoSpaceError, OSError: the disk refused.
    """
    directory = plan.directory(attempt)
    writer = _AttemptWriter(plan, directory, task, fs)
    try:
        for batch in batches:
            if batch.num_rows:
                writer.add(batch)
        return Staged(directory=directory, partitions=writer.close())
    except BaseException:
        writer.abandon()
        fs.remove_tree(directory)
        raise


class _AttemptWriter:
    def __init__(self, plan: AttemptPlan, directory: Path, task: int, fs: FileSystem) -> None:
        self._plan = plan
        self._directory = directory
        self._resources = ResourceCache(fs)
        self._encoder = _BatchEncoder(plan)
        self._partitions: dict[int, _PartitionWriter] = {}
        self._pending_bytes = 0
        self._sticky_bytes = 0
        self._first_sticky = task
        self._fs = fs

    def add(self, batch: pa.RecordBatch) -> None:
        plan = self._plan
        rows = rows_from(batch, partitions=plan.partitions, now_ms=plan.now_ms)
        if plan.config.compact and (rows.table[:, rows_of.KEY_SIZE] < 0).any():
            raise InvalidRecordError(
                f"Compacted topic cannot accept message without key in topic partition {plan.topic}"
            )
        self._spread(rows)
        order = np.argsort(rows.chosen, kind="stable")
        sorted_ = rows.chosen[order]
        starts = np.flatnonzero(np.diff(sorted_, prepend=-1))
        for first, last in zip(starts, [*starts[1:], len(order)], strict=True):
            writer = self._writer_of(int(sorted_[first]))
            before = writer.pending_bytes
            writer.add(rows, order, int(first), int(last))
            self._pending_bytes += writer.pending_bytes - before
            if self._pending_bytes > PENDING_BYTES_MAX:
                self._flush()

    def _spread(self, rows: Rows) -> None:
        """Gives a partition to rows that have none.

        Source: BuiltInPartitioner (KIP-794), with partitions in order rather than at random, so
        that an attempt that is repeated writes the same.
        """
        without = np.flatnonzero(rows.chosen < 0)
        if not len(without):
            return
        sizes = np.maximum(rows.table[without, rows_of.VALUE_SIZE], 0) + 1
        behind = self._sticky_bytes + np.cumsum(sizes)
        steps = (behind - sizes) // self._plan.batch_bytes
        rows.chosen[without] = (self._first_sticky + steps) % self._plan.partitions
        self._sticky_bytes = int(behind[-1])

    def _writer_of(self, partition: int) -> _PartitionWriter:
        writer = self._partitions.get(partition)
        if writer is None:
            directory = self._directory / str(partition)
            self._fs.make_directory(directory)
            writer = _PartitionWriter(
                self._plan, partition, directory, self._encoder, self._resources
            )
            self._partitions[partition] = writer
        return writer

    def _flush(self) -> None:
        for writer in self._partitions.values():
            writer.flush()
        self._pending_bytes = 0

    def close(self) -> dict[int, tuple[tuple[int, ...], int]]:
        self._flush()
        found = {number: writer.close() for number, writer in self._partitions.items()}
        for number in found:
            self._fs.sync_directory(self._directory / str(number))
        if found:
            self._fs.sync_directory(self._directory)
        self._resources.close()
        return found

    def abandon(self) -> None:
        self._resources.close()


class _PartitionWriter:
    """The segments of one partition, and the records that wait for the next batch."""

    def __init__(
        self,
        plan: AttemptPlan,
        number: int,
        directory: Path,
        encoder: _BatchEncoder,
        resources: ResourceCache,
    ) -> None:
        self._plan = plan
        self._partition = TopicPartition(plan.topic, number)
        self._directory = directory
        self._encoder = encoder
        self._resources = resources
        self._bases: list[int] = []
        self._segment: LogSegment | None = None
        self._end = 0
        self._records_max = max(plan.batch_bytes - HEADER_BYTES, 1)
        self._out = np.empty(plan.batch_bytes + HEADER_BYTES, dtype=np.uint8)
        self._state = np.zeros(rows_of.STATES, dtype=np.int64)

    @property
    def pending_bytes(self) -> int:
        """The bytes of records that wait."""
        return int(self._state[rows_of.USED])

    def add(self, rows: Rows, order: Ints, first: int, last: int) -> None:
        while True:
            first = kernels.put_records(
                rows.keys,
                rows.values,
                rows.names,
                rows.contents,
                rows.table,
                rows.headers,
                order,
                first,
                last,
                self._records_max,
                self._out[HEADER_BYTES:],
                self._state,
            )
            if first == last:
                return
            if self._state[rows_of.COUNT]:
                self.flush()
            else:
                size = HEADER_BYTES + int(self._state[rows_of.SIZE_OF_NEXT])
                self._out = np.empty(size, dtype=np.uint8)

    def flush(self) -> None:
        """Writes the records that wait as a batch."""
        state = self._state
        count = int(state[rows_of.COUNT])
        if not count:
            return
        batch, max_timestamp = self._encoder.encode(self._out, state, base_offset=self._end)
        config, size = self._plan.config, len(batch)
        if size > config.max_message_bytes:
            raise RecordTooLargeError(
                f"The record batch size in the append to {self._partition} is {size} bytes which "
                f"exceeds the maximum configured value of {config.max_message_bytes}."
            )
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"Message batch size is {size} bytes in append to partition {self._partition}, "
                f"which exceeds the maximum configured segment size of {config.segment_bytes}."
            )
        last_offset = self._end + count - 1
        segment = self._segment_for(size, max_timestamp, last_offset)
        segment.append(
            [batch], [AppendedBatch(size, last_offset, max_timestamp)], self._plan.now_ms
        )
        self._end += count
        state[:] = 0
        if len(self._out) > self._plan.batch_bytes + HEADER_BYTES:  # one large record
            self._out = np.empty(self._plan.batch_bytes + HEADER_BYTES, dtype=np.uint8)

    def _segment_for(self, size: int, max_timestamp: int, last_offset: int) -> LogSegment:
        segment, now_ms, config = self._segment, self._plan.now_ms, self._plan.config
        if segment is not None and segment.should_roll(
            append_bytes=size,
            max_timestamp=max_timestamp,
            max_offset=last_offset,
            now_ms=now_ms,
            config=config,
        ):
            self._finish(segment)
            segment = None
        if segment is None:
            self._bases.append(self._end)
            self._segment = segment = LogSegment.create(
                self._directory,
                self._end,
                config=config,
                resources=self._resources,
                now_ms=now_ms,
            )
        return segment

    @staticmethod
    def _finish(segment: LogSegment) -> None:
        segment.on_become_inactive()
        segment.flush()
        segment.close()

    def close(self) -> tuple[tuple[int, ...], int]:
        """Makes all of it last; the base offsets of the segments, and the end."""
        if self._segment is not None:
            self._finish(self._segment)
        return tuple(self._bases), self._end


class _BatchEncoder:
    """Makes batches of encoded records; one object for all partitions of an attempt."""

    def __init__(self, plan: AttemptPlan) -> None:
        config = plan.config
        self._codec = target_codec(config, Codec.NONE)
        self._level = target_level(config, self._codec)
        self._codecs = Codecs()
        is_default = self._level == target_level(
            LogConfig(compression_type=config.compression_type), self._codec
        )
        self._is_native = is_default and self._codec in self._codecs.native
        self._append_ms = plan.now_ms if config.message_timestamp_type == LOG_APPEND_TIME else None
        self._scratch = np.empty(0, dtype=np.uint8)

    def encode(self, records: Bytes, state: Ints, *, base_offset: int) -> tuple[Buffer, int]:
        """A batch, valid until the next one, and its largest timestamp.

        Args:
            records: they begin behind the place for a header.
            state: of `kernels.put_records`.
            base_offset: the offset of the first record.
        """
        count = int(state[rows_of.COUNT])
        end = HEADER_BYTES + int(state[rows_of.USED])
        out, size = records, end
        if self._codec is not Codec.NONE:
            out, size = self._compressed(records, end)
        attributes = int(self._codec)
        max_timestamp = int(state[rows_of.MAX_TIMESTAMP])
        if self._append_ms is not None:
            attributes |= TIMESTAMP_TYPE_BIT
            max_timestamp = self._append_ms
        template = _HEADER._replace(base_offset=base_offset, last_offset_delta=count - 1)
        kernels.put_header(
            out,
            0,
            np.frombuffer(bytearray(build_header(template)), dtype=np.uint8),
            0,
            size,
            attributes,
            int(state[rows_of.BASE_TIMESTAMP]),
            max_timestamp,
            count,
        )
        return out[:size].data, max_timestamp

    def _compressed(self, records: Bytes, end: int) -> tuple[Bytes, int]:
        room = HEADER_BYTES + end + end // 128 + 128
        if not self._is_native:
            packed = compress(self._codec, records[HEADER_BYTES:end].tobytes(), level=self._level)
            out = np.frombuffer(bytearray(HEADER_BYTES) + packed, dtype=np.uint8)
            return out, len(out)
        if len(self._scratch) < room:
            self._scratch = np.empty(room, dtype=np.uint8)
        size = kernels.compress_records(
            records, HEADER_BYTES, end, self._codec, self._scratch, HEADER_BYTES, self._codecs.table
        )
        assert size >= 0, "a compressor with enough space does not fail"
        return self._scratch, size
