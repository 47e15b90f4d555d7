"""Plain values that a compaction is made of, and that its tasks answer with.

They need no compiled code: the owner of a log passes them to tasks in other processes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypeGuard

from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    CorruptError,
    EngineError,
    NoSpaceError,
    StagingError,
)

#: What a task may always take of memory for a batch.
BATCH_BYTES_MIN = 16 << 20
#: The largest segment: positions in it, and the size of its file, are positive 32-bit integers.
SEGMENT_BYTES_MAX = (1 << 31) - 1

#: Ascending ranges of offsets, first and last, both inclusive; between two there is a gap.
OffsetRanges = tuple[tuple[int, int], ...]

_KINDS: dict[str, type[CordwoodError]] = {
    "no space": NoSpaceError,
    "staging": StagingError,
    "engine": EngineError,
    "corrupt": CorruptError,
    "config": ConfigError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The newest data of an active producer, from the producer state.

    `last_data_offset` is None when only a marker of that producer is known.
    """

    producer_id: int
    producer_epoch: int
    last_data_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEvidence:
    """Evidence about the records of a source, one bit a record, in order.

    `must_stay`: a cleaning may not discard it. `aborted`: it may not retain it. The lowest bit of a
    byte comes first.
    """

    base_offset: int
    must_stay: bytes
    aborted: bytes


@dataclass(slots=True)
class Discarded:
    """Numbers of discarded records, by reason."""

    superseded: int = 0
    tombstone: int = 0
    aborted: int = 0
    marker: int = 0
    unkeyed: int = 0
    expired: int = 0

    def plus(self, other: Discarded) -> Discarded:
        """The sum of both."""
        mine, theirs = asdict(self), asdict(other)
        return Discarded(**{reason: mine[reason] + theirs[reason] for reason in mine})


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSegment:
    """A segment that a rewrite has made: its base offset, and the sizes of its files.

    `first_batch_timestamp` is the maximum timestamp of the first batch and `largest_timestamp` that
    of all of them (ms, -1 where there is none). `sha256` are the digests of its files by suffix, in
    hexadecimal, if it was staged in an archive.
    """

    base_offset: int
    log_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    transaction_index_bytes: int = 0
    first_batch_timestamp: int = -1
    largest_timestamp: int = -1
    sha256: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """The result of a rewrite: the segments that were staged, and counts for the report.

    `segments` ascend; the first has the base offset of the group. There are several where one would
    be too large. `unchanged` says that nothing was staged, because the group stays as it is.
    `after` is the state of the transactions behind the group, from which an interrupted compaction
    continues.
    """

    base_offset: int
    token: str
    segments: tuple[RewrittenSegment, ...] = ()
    bytes_before: int = 0
    records_before: int = 0
    records_after: int = 0
    batches_before: int = 0
    batches_after: int = 0
    unchanged: bool = False
    after: list[Any] = field(default_factory=list)
    discarded: Discarded = field(default_factory=Discarded)

    @property
    def log_bytes(self) -> int:
        """Bytes of the segments' logs."""
        return sum(each.log_bytes for each in self.segments)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Manifest:
        """The inverse of `to_json`."""
        return cls(
            **value
            | {
                "segments": tuple(RewrittenSegment(**each) for each in value["segments"]),
                "discarded": Discarded(**value["discarded"]),
            }
        )


def failure_to_json(error: Exception) -> dict[str, Any]:
    """A task's error as it travels; what the log's owner makes of it depends on its kind."""
    system = [error.errno, error.strerror, str(error.filename)] if _is_of_system(error) else None
    kind = next((kind for kind, known in _KINDS.items() if isinstance(error, known)), "")
    return {"error": str(error), "kind": kind, "system": system}


def failure_from_json(value: dict[str, Any]) -> CordwoodError | OSError:
    """The inverse of `failure_to_json`, as far as it goes."""
    if value["system"] is not None:
        return OSError(*value["system"])
    return _KINDS.get(value["kind"], CordwoodError)(value["error"])


def _is_of_system(error: Exception) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno is not None
