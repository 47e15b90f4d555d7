"""Makes log directories for benchmarks: a compacted topic of a given shape that Kafka starts on.

A real Kafka makes the directory and the topics, so that the metadata log, topic ids and checkpoints
are its own, and is stopped; then segments with their indexes are written into it at the speed of
the disk. Beside the topic to be cleaned there is a small one, to warm a cleaner up with.

usage: loggen.py OUT [--codec none|lz4|zstd] [--partitions N] [--steady] [--records N] [--keys N]
"""

# numba reads some of these functions, not Python: their arguments carry types that annotations
# cannot say.
from __future__ import annotations

import argparse
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numba as nb
import numpy as np
import numpy.typing as npt

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.format.compression import Codec, compress
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import build_leader_epoch_checkpoint
from cordwood.format.native import kernels
from cordwood.format.native.batches import HEADER_SIZE
from cordwood.format.native.source import varints
from cordwood.format.native.source.machine import crc32c
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.model.topic_partition import TopicPartition
from support.kafka import RealKafka
from support.workload import Workload

TOPIC = "bench"
WARM_TOPIC = "warm"
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}

_KEY_BYTES = 10
_RANDOM_LETTERS = 46
_SLACK = 64
_INDEX_INTERVAL_BYTES = 4096
# What a record takes beside key and value, at most.
_RECORD_OVERHEAD = 40
# Batches are made and compressed so many at a time.
_RUN = 512
_HEADER = struct.Struct(">qiibIhiqqqhii")
_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8
)

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Content of a topic; records and keys are counted over all its partitions.

    `steady` is a log that was cleaned before: nine tenths of the records have keys of their own and
    lie below the cleaner's checkpoint; the last tenth overwrites, many times over, the keys that
    were written last before it.
    """

    codec: str = "none"
    partitions: int = 1
    steady: bool = False
    records: int = 5_800_000
    keys: int = 1_000_000
    hot_keys: int = 20_000
    value_bytes: int = 250
    tombstones: float = 0.02
    batch_records: int = 60
    segment_bytes: int = 104_857_600
    seed: int = 1

    @property
    def name(self) -> str:
        """A word for files and tables."""
        return f"{self.codec}-{self.partitions}{'-steady' if self.steady else ''}"

    def scaled(self, share: float) -> Shape:
        """The same with fewer records and keys, and smaller segments."""
        return replace(
            self,
            records=int(self.records * share),
            keys=int(self.keys * share),
            hot_keys=max(1, int(self.hot_keys * share)),
            segment_bytes=max(1 << 20, int(self.segment_bytes * share)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A partition as it was written."""

    records: int
    bytes: int
    segments: int
    end_offset: int


@nb.njit(cache=True, nogil=True)
def _fill_records(out, position, keys, tombstones, first, count, number, text, letters, alphabet):
    """Writes `count` records from `out[position]`; returns where they end.

    `number` is that of the first record of all, by which values differ.
    """
    start_of_letters = (text.shape[1] - letters) // 2
    for i in range(count):
        key = keys[first + i]
        null = tombstones[first + i]
        size = text.shape[1]
        # Attributes, two deltas below 128, key, value, headers.
        body = 1 + 2 * varints.size_of_varint(i) + 1 + _KEY_BYTES + 1
        body += 1 if null else varints.size_of_varint(size) + size
        position = varints.put_varint(out, position, body)
        out[position] = 0
        position = varints.put_varint(out, position + 1, i)
        position = varints.put_varint(out, position, i)
        position = varints.put_varint(out, position, _KEY_BYTES)
        for digit in range(_KEY_BYTES - 1, -1, -1):
            out[position + digit] = 48 + key % 10
            key //= 10
        position += _KEY_BYTES
        if null:
            position = varints.put_varint(out, position, -1)
        else:
            position = varints.put_varint(out, position, size)
            out[position : position + size] = text[(number + i) % text.shape[0]]
            state = np.uint64(number + i) * np.uint64(0xD6E8FEB86659FD93)
            at = position + start_of_letters
            for letter in range(letters):
                if letter % 8 == 0:
                    # splitmix64
                    state += np.uint64(0x9E3779B97F4A7C15)
                    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    mixed ^= mixed >> np.uint64(31)
                out[at + letter] = alphabet[np.int64(mixed & np.uint64(63))]
                mixed >>= np.uint64(6)
            position += size
        out[position] = 0
        position += 1
    return position


@nb.njit(cache=True, nogil=True)
def _fill_run(
    out, starts, keys, tombstones, first, batches, batch_records, number, text, letters, alphabet
):
    """The records of `batches` batches, one after the other, each after space for a header."""
    position = 0
    for i in range(batches):
        begin = first + i * batch_records
        count = min(batch_records, keys.shape[0] - begin)
        starts[i] = position
        position = _fill_records(
            out,
            position + HEADER_SIZE,
            keys,
            tombstones,
            begin,
            count,
            number + i * batch_records,
            text,
            letters,
            alphabet,
        )
    starts[batches] = position


@nb.njit(cache=True, nogil=True)
def _seal(out, starts, batches):
    """Writes the CRC of each batch."""
    for i in range(batches):
        crc = crc32c(out, starts[i] + 21, starts[i + 1])
        for byte in range(4):
            out[starts[i] + 17 + byte] = np.uint8((crc >> np.uint64(24 - 8 * byte)) & 0xFF)


def _text(value_bytes: int) -> Bytes:
    """Some values of ordinary text, a row each."""
    rows = []
    for number in range(16):
        words = "".join(
            f'"field{i}": "value {(i * 7 + number) % 10} of an ordinary text", ' for i in range(40)
        )
        rows.append(np.frombuffer(words.encode()[:value_bytes], dtype=np.uint8))
    return np.stack(rows)


class PartitionWriter:
    """Writes the segments of one partition, rolled as Kafka rolls them."""

    def __init__(self, directory: Path, shape: Shape, *, first_ms: int) -> None:
        self._directory = directory
        self._shape = shape
        self._codec = Codec[shape.codec.upper()]
        self._text = _text(shape.value_bytes)
        self._now_ms = first_ms
        self.end_offset = 0
        self._segment: _Segment | None = None
        self._room = np.zeros(
            _RUN * (HEADER_SIZE + shape.batch_records * (shape.value_bytes + _RECORD_OVERHEAD))
            + _SLACK,
            dtype=np.uint8,
        )
        self._starts = np.zeros(_RUN + 1, dtype=np.int64)
        self.bases: list[int] = []
        self.bytes = 0

    def append(self, keys: Ints, tombstones: npt.NDArray[np.bool_]) -> None:
        """Writes a record of each key, rolling segments as they fill."""
        each = self._shape.batch_records
        total = -(-len(keys) // each)
        for begin in range(0, total, _RUN):
            batches = min(_RUN, total - begin)
            _fill_run(
                self._room,
                self._starts,
                keys,
                tombstones,
                begin * each,
                batches,
                each,
                self.end_offset,
                self._text,
                _RANDOM_LETTERS,
                _ALPHABET,
            )
            counts = np.full(batches, each, dtype=np.int64)
            counts[-1] = min(each, len(keys) - (begin + batches - 1) * each)
            self._write_run(counts)

    def roll(self) -> None:
        """Ends the segment; the next record begins a new one."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _write_run(self, counts: Ints) -> None:
        batches = len(counts)
        data, starts = self._room, self._starts
        if self._codec is not Codec.NONE:
            data, starts = self._compressed(batches)
        offsets = self.end_offset + np.cumsum(counts) - counts
        for i in range(batches):
            count, offset = int(counts[i]), int(offsets[i])
            at = int(starts[i])
            first_ms = self._now_ms + offset
            _HEADER.pack_into(
                data,
                at,
                offset,
                int(starts[i + 1]) - at - 12,
                0,
                2,
                0,
                int(self._codec),
                count - 1,
                first_ms,
                first_ms + count - 1,
                -1,
                -1,
                -1,
                count,
            )
        _seal(data, starts, batches)
        first = 0
        while first < batches:
            segment = self._open_segment(int(offsets[first]))
            ends = starts[first + 1 : batches + 1] - starts[first]
            fits = int(np.searchsorted(ends, self._shape.segment_bytes - segment.size, "right"))
            if not fits:
                assert segment.size, "one batch is larger than a segment"
                self.roll()
                continue
            last = first + fits
            written = np.empty((fits, 3), dtype=np.int64)
            written[:, 0] = np.diff(starts[first : last + 1])
            written[:, 1] = offsets[first:last] + counts[first:last] - 1
            written[:, 2] = self._now_ms + written[:, 1]
            segment.append(memoryview(data)[int(starts[first]) : int(starts[last])], written)
            self.bytes += int(starts[last] - starts[first])
            first = last
        self.end_offset += int(counts.sum())

    def _compressed(self, batches: int) -> tuple[Bytes, Ints]:
        view = memoryview(self._room)
        blank = bytes(HEADER_SIZE)
        parts: list[bytes] = []
        starts = np.zeros(batches + 1, dtype=np.int64)
        for i in range(batches):
            records = view[int(self._starts[i]) + HEADER_SIZE : int(self._starts[i + 1])]
            payload = compress(self._codec, bytes(records))
            parts += [blank, payload]
            starts[i + 1] = starts[i] + HEADER_SIZE + len(payload)
        joined = bytearray(b"".join([*parts, bytes(_SLACK)]))
        return np.frombuffer(joined, dtype=np.uint8), starts

    def _open_segment(self, base_offset: int) -> _Segment:
        if self._segment is None:
            self._segment = _Segment(self._directory, base_offset)
            self.bases.append(base_offset)
        return self._segment

    def finish(self) -> Written:
        """Ends the log, and writes the files beside its segments as a clean stop leaves them."""
        self.roll()
        snapshot = build_producer_snapshot([])
        for offset in [*self.bases[1:], self.end_offset]:
            name = segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
            (self._directory / name).write_bytes(snapshot)
        epochs = build_leader_epoch_checkpoint([(0, 0)])
        (self._directory / LEADER_EPOCH_CHECKPOINT).write_bytes(epochs)
        return Written(
            records=self.end_offset,
            bytes=self.bytes,
            segments=len(self.bases),
            end_offset=self.end_offset,
        )


class _Segment:
    """One segment's file and the entries of its indexes."""

    def __init__(self, directory: Path, base_offset: int) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self._file = (directory / segment_file_name(base_offset, LOG_SUFFIX)).open("wb", 0)
        self._state = np.array([0, 0, -1, -1, -1], dtype=np.int64)
        self.end_offsets: list[Ints] = []
        self._times: list[Ints] = []
        self.size = 0

    def append(self, data: memoryview, written: Ints) -> None:
        self._file.write(data)
        self.size += len(data)
        offsets, times = np.empty((2, len(written), 2), dtype=np.int64)
        filled = np.zeros(2, dtype=np.int64)
        kernels.index_written(
            written, len(written), _INDEX_INTERVAL_BYTES, self._state, offsets, times, filled
        )
        self.end_offsets.append(offsets[: filled[0]].copy())
        self._times.append(times[: filled[1]].copy())

    def close(self) -> None:
        self._file.close()
        newest, newest_offset, indexed = (int(v) for v in self._state[2:])
        if newest > indexed:
            self._times.append(np.array([[newest, newest_offset]], dtype=np.int64))
        offsets, times = np.concatenate(self.end_offsets), np.concatenate(self._times)
        index = np.empty((len(offsets), 2), dtype=">i4")
        index[:, 0], index[:, 1] = offsets[:, 0] - self._base_offset, offsets[:, 1]
        time_index = np.empty(len(times), dtype=[("timestamp", ">i8"), ("offset", ">i4")])
        time_index["timestamp"] = times[:, 0]
        time_index["offset"] = times[:, 1] - self._base_offset
        for suffix, entries in ((INDEX_SUFFIX, index), (TIME_INDEX_SUFFIX, time_index)):
            name = segment_file_name(self._base_offset, suffix)
            (self._directory / name).write_bytes(entries.tobytes())


def _sections(shape: Shape, partition: int) -> Iterator[tuple[Ints, npt.NDArray[np.bool_]]]:
    """Keys and tombstones of the parts of one partition; the cleaner's checkpoint lies between."""
    random = np.random.default_rng((shape.seed, partition))
    records, keys = shape.records // shape.partitions, shape.keys // shape.partitions
    hot_keys = shape.hot_keys // shape.partitions

    def of(numbers: Ints, tombstones: float) -> tuple[Ints, npt.NDArray[np.bool_]]:
        chosen = numbers.astype(np.int64) * shape.partitions + partition
        return chosen, random.random(len(numbers)) < tombstones

    if shape.steady:
        clean = records * 9 // 10
        yield of(np.arange(clean), 0)
        yield of(random.integers(clean - hot_keys, clean, records - clean), shape.tombstones)
    else:
        yield of(random.integers(0, keys, records), shape.tombstones)


def write_partition(
    directory: Path, shape: Shape, partition: int, now_ms: int
) -> tuple[int, Written]:
    """Writes one partition's files; returns the cleaner's checkpoint and what there is.

    The last segment, which a cleaner leaves alone, is small.
    """
    for path in directory.iterdir():
        if path.suffix in {LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX}:
            path.unlink()
    records = shape.records // shape.partitions
    writer = PartitionWriter(directory, shape, first_ms=now_ms - records - 60_000)
    checkpoint = 0
    for number, (keys, tombstones) in enumerate(_sections(shape, partition)):
        if number:
            writer.roll()
            checkpoint = writer.end_offset
        writer.append(keys, tombstones)
    writer.roll()
    few = np.arange(5 * shape.batch_records, dtype=np.int64) * shape.partitions + partition
    writer.append(few, np.zeros(len(few), dtype=np.bool_))
    return checkpoint, writer.finish()


def make_empty(out: Path, shapes: dict[str, Shape]) -> None:
    """A log directory of a stopped Kafka with these topics, compacted and empty."""
    with (
        tempfile.TemporaryDirectory(prefix="loggen-", dir=out.parent) as scratch,
        RealKafka(Path(scratch)) as kafka,
    ):
        kafka.start_without_cleaning()
        for topic, shape in shapes.items():
            config = {**TOPIC_CONFIG, "segment.bytes": str(shape.segment_bytes)}
            if topic == WARM_TOPIC:
                # A broker's own setting may hold the other topic back.
                config["min.compaction.lag.ms"] = "0"
            Workload(kafka, 1).create({topic: config}, partitions=shape.partitions)
        kafka.stop()
        shutil.move(kafka.log_dirs[0], out)


def generate_topics(out: Path, shapes: dict[str, Shape]) -> dict[str, list[Written]]:
    """Makes the log directory `out` with these topics; their partitions, as written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    make_empty(out, shapes)
    now_ms = time.time_ns() // 1_000_000
    log_dir = OfflineLogDirectory(out)
    results: dict[str, list[Written]] = {}
    for topic, shape in shapes.items():
        places = [TopicPartition(topic, number) for number in range(shape.partitions)]

        def write(place: TopicPartition, shape: Shape = shape) -> tuple[int, Written]:
            return write_partition(out / str(place), shape, place.partition, now_ms)

        with ThreadPoolExecutor(2) as pool:
            written = list(pool.map(write, places))
        for place, (checkpoint, partition) in zip(places, written, strict=True):
            for file in (log_dir.recovery_points, log_dir.high_watermarks):
                file.set_line(place, partition.end_offset)
            if checkpoint:
                log_dir.set_cleaner_offset(place, checkpoint)
        results[topic] = [partition for _, partition in written]
    return results


def generate(out: Path, shape: Shape, *, warm: Shape | None = None) -> list[Written]:
    """Makes the log directory `out`; the partitions of the topic to be cleaned, as written."""
    shapes = {TOPIC: shape} | ({WARM_TOPIC: warm} if warm is not None else {})
    return generate_topics(out, shapes)[TOPIC]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("out", type=Path, help="a directory to be made")
    parser.add_argument("--codec", default="none", choices=[c.config_name for c in Codec])
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--steady", action="store_true", help="mostly cleaned before")
    parser.add_argument("--records", type=int, default=Shape().records)
    parser.add_argument("--keys", type=int, default=Shape().keys)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out} exists already")
    shape = Shape(
        codec=options.codec,
        partitions=options.partitions,
        steady=options.steady,
        records=options.records,
        keys=options.keys,
        seed=options.seed,
    )
    started = time.monotonic()
    written = generate(options.out, shape)
    size = sum(partition.bytes for partition in written)
    records = sum(partition.records for partition in written)
    segments = sum(partition.segments for partition in written)
    seconds = time.monotonic() - started
    print(f"{records:,} records, {size / 1e6:,.0f} MB, {segments} segments in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
