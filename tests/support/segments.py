"""Segments of a log for tests: created, filled, reopened, and damaged at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.batch_heads import FileRange
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_indexes import AppendedBatch


def batch(
    first_offset: int,
    *values: str,
    timestamps: Sequence[int] | int = -1,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    last_offset: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """A batch of magic 2 with those values; one timestamp (ms) for all of them, or one for each."""
    times = [timestamps] * len(values) if isinstance(timestamps, int) else timestamps
    has_producer = producer_id >= 0
    return build_batch(
        [
            Record(first_offset + i, time, None, value.encode())
            for i, (value, time) in enumerate(zip(values, times, strict=True))
        ],
        base_offset=first_offset,
        codec=codec,
        partition_leader_epoch=leader_epoch,
        last_offset=last_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch if has_producer else -1,
        base_sequence=base_sequence if has_producer else -1,
        is_transactional=is_transactional,
    )


def message(offset: int, value: str, *, magic: int = 1, timestamp: int = -1) -> bytes:
    """One message of magic 0 or 1."""
    return build_legacy_message(
        offset=offset, magic=magic, key=None, value=value.encode(), timestamp=timestamp
    )


def described(data: bytes) -> list[AppendedBatch]:
    """The facts about each batch in `data` that an append needs."""
    return [
        AppendedBatch(found.size_bytes, found.last_offset, found.max_timestamp)
        for _, found in iter_batches(data)
    ]


def put(segment: LogSegment, *batches: bytes) -> None:
    """Appends batches, all in one go."""
    segment.append(batches, [entry for data in batches for entry in described(data)], 0)


def last_offsets(data: FileRange | bytes | None) -> list[int]:
    """The last offset of each whole batch."""
    raw = data.read() if isinstance(data, FileRange) else data or b""
    return [found.last_offset for _, found in iter_batches(raw)]


def bytes_of(segment: LogSegment) -> bytes:
    """All of a segment's log file."""
    return segment.path.read_bytes()


def set_last_modified(segment: LogSegment, modified_ms: int, *, fs: FileSystem = OS) -> None:
    """Sets the modification time of a segment's log and of its indexes, of those that are there."""
    for suffix in (".log", ".index", ".timeindex"):
        with suppress(FileNotFoundError):
            fs.set_modified(segment.path.with_suffix(suffix), modified_ms * 1_000_000)


def corrupted(data: bytes, start: int, rng: random.Random) -> bytes:
    """`data` with other bytes from `start` on."""
    return data[:start] + rng.randbytes(len(data) - start)


@dataclass(slots=True, kw_only=True)
class Segments:
    """Makes the segments of one directory; `warnings` is what they say."""

    directory: Path
    index_interval_bytes: int = 10
    segment_index_bytes: int = 1000
    fs: FileSystem = OS
    settings: dict[str, int | bool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    resources: ResourceCache = field(init=False)

    def __post_init__(self) -> None:
        self.resources = ResourceCache(self.fs)

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return LogConfig(
            index_interval_bytes=self.index_interval_bytes,
            segment_index_bytes=self.segment_index_bytes,
            **self.settings,  # type: ignore[arg-type]
        )

    def create(
        self, base_offset: int = 0, *, now_ms: int = 0, roll_jitter_ms: int = 0
    ) -> LogSegment:
        """A new segment."""
        return LogSegment.create(
            self.directory,
            base_offset,
            config=self.config,
            resources=self.resources,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            on_warning=self.warnings.append,
        )

    def open(self, base_offset: int = 0, *, now_ms: int = 0) -> LogSegment:
        """One that is there, by a process that has not opened it before."""
        self.resources = ResourceCache(self.fs)
        return LogSegment.open(
            self.directory,
            base_offset,
            config=self.config,
            resources=self.resources,
            now_ms=now_ms,
            on_warning=self.warnings.append,
        )
