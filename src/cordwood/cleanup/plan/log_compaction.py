"""One compaction of one log: the input of its tasks, and how it is divided.

A compaction is a plain value that travels to tasks as JSON, is written to the journal before
anything is touched, and is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.capture import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.compaction_values import LastRecord, OffsetRanges, VersionRule
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.append.payload import decompressed_bytes_max
from cordwood.storage.filesystem import FileFacts
from cordwood.storage.reading.source import BATCH_BYTES_MAX, SegmentSource

# With space for fewer segments than this, no task begins a group before its last is in place.
_ROOMY = 64
# No record of magic 2 takes less: a length, attributes, two deltas, two lengths and a count.
_RECORD_BYTES_MIN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompaction:
    """A compaction of one partition.

    `segments` are those that are read, ascending: those of [0, first uncleanable offset), or fewer
    if only some are rewritten; `groups` are the base offsets of those that are, a tuple a group.
    Groups before `groups_done` are in place already, and `before` is the state of the transactions
    behind them. `attempt` marks what the tasks of one run stage, so that those of a run that was
    killed are not taken for them. A task writes no group that takes more than `space_max` bytes,
    with `one_at_a_time` begins none before the one before it is in place, works through at most
    `throttle_bytes` a second, with `verify` compares what it wrote with its source, and refuses a
    batch that takes more than `batch_bytes_max` of memory.

    With `erased`, ascending ranges of offsets (first and last, inclusive), records are not selected
    by their keys: those of these offsets go, and all others stay.

    With `versions`, the record of the highest version of a key survives, not the newest. Then all
    records from `first_dirty` on, the log start, are indexed, and those below it go.

    With `ttl_header`, the key of a header with their time to live, records that have expired by
    `now_ms` go; older ones of their keys do not come back. One that has beaten a newer record, by
    its version, stays until a compaction in which there is no such record.

    With `is_measured` its tasks write no segment: they announce in `directory`, which then holds
    none, what they would write.
    """

    name: str
    directory: str
    now_ms: int
    first_dirty: int
    first_uncleanable: int
    delete_retention_ms: int
    index_interval_bytes: int
    segment_bytes: int
    legacy_horizon_ms: int
    segments: tuple[SegmentSource, ...]
    groups: tuple[tuple[int, ...], ...]
    producers: tuple[LastRecord, ...]
    aborted: tuple[AbortedTransaction, ...]
    model: FileFacts
    seed: int
    attempt: str = ""
    space_max: int | None = None
    one_at_a_time: bool = False
    throttle_bytes: int | None = None
    verify: bool = False
    batch_bytes_max: int = BATCH_BYTES_MAX
    erased: OffsetRanges | None = None
    versions: VersionRule | None = None
    ttl_header: str = ""
    is_measured: bool = False
    groups_done: int = 0
    log_start_offset: int = 0
    before: list[Any] = field(default_factory=lambda: [[], []])

    @property
    def dirty(self) -> tuple[SegmentSource, ...]:
        """The segments with offsets at or above the first dirty one; all, if there are versions."""
        if self.versions is not None:
            return self.segments
        return tuple(s for s in self.segments if s.next_base_offset > self.first_dirty)

    @property
    def clean(self) -> tuple[SegmentSource, ...]:
        """The segments with offsets below the first dirty one; one may be in both sections."""
        if self.versions is not None:
            return ()
        return tuple(s for s in self.segments if s.base_offset < self.first_dirty)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its segments."""
        return sum(s.size_bytes for s in self.segments)

    def group(self, number: int) -> tuple[SegmentSource, ...]:
        """The segments of a group."""
        bases = set(self.groups[number])
        return tuple(s for s in self.segments if s.base_offset in bases)

    def over(self, sources: Sequence[SegmentSource]) -> LogCompaction:
        """The same compaction, interrupted, with the segments that its groups in place became.

        Args:
            sources: the segments of the log as they are now.
        """
        if self.versions is None or not 0 < self.groups_done < len(self.groups):
            return self
        first = self.groups[self.groups_done][0]
        return replace(
            self,
            segments=tuple(s for s in sources if s.base_offset < first)
            + tuple(s for s in self.segments if s.base_offset >= first),
        )

    def measured_in(self, scratch: Path) -> LogCompaction:
        """The same compaction, of which only the result's sizes are wanted.

        Args:
            scratch: the directory in which its tasks announce them.
        """
        return replace(
            self,
            directory=str(scratch),
            is_measured=True,
            space_max=None,
            one_at_a_time=False,
            verify=False,
        )

    def in_directory(self, directory: Path) -> LogCompaction:
        """The same compaction where the partition's directory is now: it may have been moved."""
        directory = directory.absolute()
        return replace(
            self,
            directory=str(directory),
            segments=tuple(
                replace(s, path=str(directory / Path(s.path).name)) for s in self.segments
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the journal and for tasks."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LogCompaction:
        """The inverse of `to_json`, also of what an earlier version has written."""
        # An erasure said which batches have to stay. Now the header of every batch stays.
        known = {name: each for name, each in value.items() if name != "first_in_open"}
        return cls(
            **known
            | {
                "segments": tuple(SegmentSource(**s) for s in value["segments"]),
                "groups": tuple(tuple(g) for g in value["groups"]),
                "producers": tuple(LastRecord(**p) for p in value["producers"]),
                "aborted": tuple(AbortedTransaction(**a) for a in value["aborted"]),
                "erased": _ranges_from(value.get("erased")),
                "versions": _rule_from(value.get("versions")),
                "model": FileFacts(**value["model"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    """The limits of one attempt at a compaction.

    `seed` is that of the hashes of keys: who writes keys must not know it. `attempt` is in the
    names of what its tasks stage; no other attempt has it. `free_bytes` is the free space of the
    file system, `space_max` how many bytes the attempt may take for a while, `throttle_bytes` how
    many a second its tasks may read and write. With `verify`, what is written is compared with its
    source.
    """

    seed: int
    attempt: str
    free_bytes: int
    space_max: int | None = None
    throttle_bytes: int | None = None
    verify: bool = False


def limited(compaction: LogCompaction, limits: AttemptLimits) -> LogCompaction:
    """A compaction, within the limits of one attempt; an interrupted one keeps its seed."""
    is_tight = limits.free_bytes < _ROOMY * compaction.segment_bytes
    return replace(
        compaction,
        attempt=limits.attempt,
        space_max=limits.space_max,
        # Bytes that are erased are gone before the journal is.
        one_at_a_time=limits.space_max is not None or is_tight or compaction.erased is not None,
        throttle_bytes=limits.throttle_bytes,
        # What must stay is decided by keys there; an erasure has a report that is checked.
        verify=limits.verify and compaction.erased is None,
    )


def _ranges_from(value: list[list[int]] | None) -> OffsetRanges | None:
    return None if value is None else tuple((first, last) for first, last in value)


def _rule_from(value: dict[str, Any] | None) -> VersionRule | None:
    return None if value is None else VersionRule(**value)


def records_max(segments: Sequence[SegmentSource]) -> int:
    """An upper bound of the records in `segments`, from offsets and, if plain, sizes alone."""
    return sum(max(0, s.next_base_offset - s.base_offset) for s in segments)


def prepare_compaction(
    captured: Captured, plan: CompactionPlan, *, now_ms: int, seed: int
) -> LogCompaction:
    """The compaction that a plan for a captured log describes.

    Aborted transactions that begin behind the compaction are left out.
    """
    view = captured.view
    config = view.config
    read = set(plan.segments)
    return LogCompaction(
        name=str(view.topic_partition),
        directory=str(captured.directory),
        now_ms=now_ms,
        first_dirty=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        delete_retention_ms=config.delete_retention_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_bytes=config.segment_bytes,
        legacy_horizon_ms=plan.legacy_horizon_ms,
        segments=tuple(s for s in captured.sources if s.base_offset in read),
        groups=plan.groups,
        producers=tuple(
            LastRecord(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_data_offset=entry.last_offset if entry.last_offset >= 0 else None,
            )
            for entry in captured.producers
        ),
        aborted=tuple(
            e for e in captured.aborted_above_start if e.first_offset < plan.first_uncleanable
        ),
        model=captured.model,
        seed=seed,
        log_start_offset=view.log_start_offset,
        versions=VersionRule.of(config),
        ttl_header=config.cordwood_record_ttl_header,
        batch_bytes_max=decompressed_bytes_max(config.max_message_bytes),
    )


def split_by_bytes(
    segments: Sequence[SegmentSource], parts: int
) -> list[tuple[SegmentSource, ...]]:
    """Consecutive segments in at most `parts` chunks of about the same number of bytes."""
    total = sum(s.size_bytes for s in segments)
    chunks: list[list[SegmentSource]] = [[]]
    done = 0
    for segment in segments:
        # A segment belongs to the chunk that holds its middle byte; an empty one may be at the end.
        wanted = min(parts - 1, int((done + segment.size_bytes / 2) * parts / max(total, 1)))
        if chunks[-1] and wanted >= len(chunks):
            chunks.append([])
        chunks[-1].append(segment)
        done += segment.size_bytes
    return [tuple(chunk) for chunk in chunks if chunk]
