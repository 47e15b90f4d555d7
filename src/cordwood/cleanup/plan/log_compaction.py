"""One compaction of one log: the input of its tasks, and how it is divided.

A compaction is a plain value that travels to tasks as JSON, and is the same on every machine. All
of it but its attempt is the plan, which is written to the journal before anything is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.plan.attempt import AMPLE_BYTES, Attempt
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.compaction_values import LastRecord, OffsetRanges
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.append.payload import read_bounds
from cordwood.storage.filesystem import FileFacts
from cordwood.storage.reading.source import BATCH_BYTES_MAX, ReadBounds, SegmentSource

# With space for fewer segments than this, no task begins a group before its last is in place.
_ROOMY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompaction:
    """A compaction of one partition.

    `rules` judge records. `segments` are those that are read, ascending: those of [0, first
    uncleanable offset), or fewer if only some are rewritten; `groups` are the base offsets of those
    that are, a tuple a group. Groups before `groups_done` are in place already, and `before` is the
    state of the transactions behind them. A batch that ends at `retained_end`, exclusive, keeps at
    least its header. A task refuses a batch that takes more than
    `batch_bytes_max` of memory, and a record of a compressed batch of more than `record_bytes_max`.

    With `erased`, ascending ranges of offsets (first and last, inclusive), records are not selected
    by their keys: those of these offsets go, and all others stay.

    Where records have versions, all from `first_dirty` on, the log start, are indexed, and those
    below it go.

    Tasks of one that is measured announce in `directory`, which then holds no segments, what they
    would write.
    """

    name: str
    directory: str
    rules: RecordRules
    first_dirty: int
    first_uncleanable: int
    retained_end: int
    index_interval_bytes: int
    segment_bytes: int
    segments: tuple[SegmentSource, ...]
    groups: tuple[tuple[int, ...], ...]
    producers: tuple[LastRecord, ...]
    aborted: tuple[AbortedTransaction, ...]
    model: FileFacts
    seed: int
    attempt: Attempt = field(default_factory=Attempt)
    batch_bytes_max: int = BATCH_BYTES_MAX
    record_bytes_max: int = RECORD_BYTES_MAX
    erased: OffsetRanges | None = None
    groups_done: int = 0
    log_start_offset: int = 0
    before: list[Any] = field(default_factory=lambda: [[], []])

    @property
    def bounds(self) -> ReadBounds:
        """The bounds of its tasks' readers."""
        return ReadBounds(
            batch_bytes_max=self.batch_bytes_max, record_bytes_max=self.record_bytes_max
        )

    @property
    def one_at_a_time(self) -> bool:
        """Whether no task begins a group before the one before it is in place."""
        attempt = self.attempt
        is_tight = attempt.free_bytes < _ROOMY * self.segment_bytes
        # Bytes that are erased are gone before the journal is.
        return attempt.limits.space_max is not None or is_tight or self.erased is not None

    @property
    def is_verified(self) -> bool:
        """Whether what is written is compared with its source.

        What must stay is decided by keys there; an erasure has a report that is checked.
        """
        return self.attempt.limits.verify and self.erased is None

    @property
    def dirty(self) -> tuple[SegmentSource, ...]:
        """The segments with offsets at or above the first dirty one; all, if there are versions."""
        if self.rules.versions is not None:
            return self.segments
        return tuple(s for s in self.segments if s.next_base_offset > self.first_dirty)

    @property
    def clean(self) -> tuple[SegmentSource, ...]:
        """The segments with offsets below the first dirty one; one may be in both sections."""
        if self.rules.versions is not None:
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
        """The rest of an interrupted compaction, with the segments that committed groups became.

        Args:
            sources: the segments of the log as they are now.
        """
        if self.rules.versions is None or not 0 < self.groups_done < len(self.groups):
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
        limits = replace(self.attempt.limits, space_max=None, verify=False)
        return replace(
            self,
            directory=str(scratch),
            attempt=replace(self.attempt, is_measured=True, free_bytes=AMPLE_BYTES, limits=limits),
        )

    def staged_in(self, directory: Path) -> LogCompaction:
        """The same compaction, whose tasks stage their files in another directory."""
        return replace(self, directory=str(directory))

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

    def plan_to_json(self) -> dict[str, Any]:
        """Plain values of the plan, for the journal."""
        value = asdict(self)
        del value["attempt"], value["rules"]
        return value | self.rules.to_json()

    def to_json(self) -> dict[str, Any]:
        """Plain values of the plan and the attempt, for tasks."""
        return self.plan_to_json() | {"attempt": asdict(self.attempt)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LogCompaction:
        """The inverse of `to_json` and `plan_to_json`, also of what an earlier version wrote.

        That has more fields, and for `attempt` a text.
        """
        known = {each.name for each in fields(cls)}
        value = {"retained_end": value["first_uncleanable"], **value}
        attempt = value.get("attempt")
        return cls(
            **{name: each for name, each in value.items() if name in known}
            | {
                "rules": RecordRules.from_json(value),
                "attempt": Attempt.from_json(attempt) if isinstance(attempt, dict) else Attempt(),
                "segments": tuple(SegmentSource(**s) for s in value["segments"]),
                "groups": tuple(tuple(g) for g in value["groups"]),
                "producers": tuple(LastRecord(**p) for p in value["producers"]),
                "aborted": tuple(AbortedTransaction(**a) for a in value["aborted"]),
                "erased": _ranges_from(value.get("erased")),
                "model": FileFacts(**value["model"]),
            }
        )


def _ranges_from(value: list[list[int]] | None) -> OffsetRanges | None:
    return None if value is None else tuple((first, last) for first, last in value)


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
    bounds = read_bounds(config)
    return LogCompaction(
        name=str(view.topic_partition),
        directory=str(captured.directory),
        rules=RecordRules.of(config, now_ms=now_ms, legacy_horizon_ms=plan.legacy_horizon_ms),
        first_dirty=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        retained_end=plan.retained_end,
        index_interval_bytes=config.index_interval_bytes,
        segment_bytes=config.segment_bytes,
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
        batch_bytes_max=bounds.batch_bytes_max,
        record_bytes_max=bounds.record_bytes_max,
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
