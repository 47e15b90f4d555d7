"""The answer to why segments and records are still there, and when they go."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.cleanup.rules.blockers import Blocker
from cordwood.configs.levels import Origin
from cordwood.model.documents import ABSENT
from cordwood.queries.explain.log_facts import OpenTransaction
from cordwood.queries.identity import NodeIdentity
from cordwood.queries.partitions import SkippedPartition, replica_name
from cordwood.storage.log_directory import InUse


class Section(enum.StrEnum):
    """The section of a log that a segment is in, for the cleaner; NONE in a log without any."""

    NONE = ""
    ACTIVE = "active"
    CLEAN = "clean"
    DIRTY = "dirty"
    UNCLEANABLE = "uncleanable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSegment:
    """A segment: whether it goes, by which rule, and what is in the way.

    `next_offset` is the base offset of the next segment. `timestamp_of` says whether the largest
    timestamp is that of a record, or of the file. `due_ms` is when a clean segment is cleaned for
    what becomes removable in it, `goes_ms` when retention removes it if nothing is appended, and
    `gone_by_ms` when its files are removed at the latest; each is None for never.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    timestamp_of: str
    section: Section
    deletable: bool
    rule: str | None
    reason: str
    blockers: Sequence[Blocker]
    due_ms: int | None
    goes_ms: int | None
    gone_by_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group that a log waits for; `lag` in offsets, None where it has committed none."""

    group: str
    committed_offset: int | None
    lag: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOffsets:
    """Offsets that retention took from a group, first and last inclusive.

    `known` is False where the group may have consumed them. `since_ms` is when the first went,
    `at_ms` when the last did.
    """

    group: str
    first_offset: int
    last_offset: int
    records_at_most: int
    setting: str
    known: bool
    since_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCompaction:
    """The compaction of a log: whether it is due, and if not, when and why.

    `due_ms` is None if time alone does not make it due, `cleaned_by_ms` if no setting limits when
    it has ended. `due_segments` are base offsets of clean segments that are cleaned for what has
    become removable in them. `limited_by_lag` is whether max.compaction.lag.ms is set.
    """

    due: bool
    due_ms: int | None
    cleaned_by_ms: int | None
    dirty_ratio: float
    clean_bytes: int
    cleanable_bytes: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    due_segments: Sequence[int]
    limited_by_lag: bool
    blockers: Sequence[Blocker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedLog:
    """A log and its segments, the oldest first.

    `settings` are those that decide, by Kafka's name; `compaction` is None where the log is not
    compacted. `node_id` is the broker of a cluster that has this replica.
    """

    topic: str
    partition: int
    log_dir: str
    policy: str
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    deletable_segments: int
    deletable_bytes: int
    settings: Mapping[str, Origin]
    open_transactions: Sequence[OpenTransaction]
    groups: Sequence[GroupPosition]
    losses: Sequence[LostOffsets]
    compaction: ExplainedCompaction | None
    segments: Sequence[ExplainedSegment]
    warnings: Sequence[str]
    node_id: int | None = field(default=None, metadata=ABSENT)


class RecordState(enum.StrEnum):
    """State of a record for compaction."""

    NEWEST = "newest"
    SUPERSEDED = "superseded"
    TOMBSTONE = "tombstone"
    UNKEYED = "unkeyed"
    ABORTED = "aborted"
    MARKER = "marker"
    BELOW_START = "below-start"
    NOT_COMPACTED = "not-compacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRecord:
    """Fate of a record under retention and compaction.

    `segment` is the base offset of its segment, `superseded_by` the offset of the newest record of
    its key, None for that record itself. From `gone_by_ms` on no file of the log has the record, if
    nothing is appended meanwhile; None where no setting limits that. `expires_ms` is when its time
    to live ends, None where it has none, or its log heeds none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    segment: int
    state: RecordState
    superseded_by: int | None
    delete_horizon_ms: int | None
    expires_ms: int | None
    text: str
    gone_by_ms: int | None


class When(enum.StrEnum):
    """Time at which retention removes a segment, if nothing is appended."""

    NOW = "now"
    DAY = "next_24h"
    LATER = "later"
    STAYS = "stays"


@dataclass(frozen=True, slots=True)
class SegmentSum:
    """Number of segments, and their bytes."""

    segments: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsByReason:
    """The segments that go at one of `When`, by the reason."""

    segments: int
    bytes: int
    reasons: Mapping[str, SegmentSum]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The segments of some logs by when they go, and by the reason; every segment is in one."""

    partitions: int
    segments: int
    bytes: int
    now: SegmentsByReason
    next_24h: SegmentsByReason
    later: SegmentsByReason
    stays: SegmentsByReason

    def part(self, when: When) -> SegmentsByReason:
        """The segments that go at that time, by the reason."""
        found: SegmentsByReason = getattr(self, when)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Logs explained at `now_ms`; None is what only directories, or only brokers, have.

    `records` are those asked for, `not_found` why there is none. `broker` was asked, or `brokers`,
    if a cluster has several.
    """

    now_ms: int
    partitions: Sequence[ExplainedLog]
    in_use: Sequence[InUse] | None = field(default=None, metadata=ABSENT)
    left_alone: Sequence[SkippedPartition] | None = field(default=None, metadata=ABSENT)
    failed: Sequence[SkippedPartition] | None = field(default=None, metadata=ABSENT)
    warnings: Sequence[str] | None = field(default=None, metadata=ABSENT)
    records: Sequence[ExplainedRecord] | None = field(default=None, metadata=ABSENT)
    not_found: str | None = field(default=None, metadata=ABSENT)
    broker: NodeIdentity | None = field(default=None, metadata=ABSENT)
    brokers: Sequence[NodeIdentity] | None = field(default=None, metadata=ABSENT)
    summary: Outlook | None = field(default=None, metadata=ABSENT)


def log_name(log: ExplainedLog) -> str:
    """Topic and partition, and the broker if several were asked."""
    return replica_name(log, log.node_id)
