"""Plans what a run adds to the archive of a log: a plan is a value, and reads nothing.

The offsets that an archive has are not copied again. Where a segment of the log begins below the
archive's end, the log was compacted since, or comes from a replica with other segments: it takes
the place of the archived ones from its base offset on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cordwood.model.errors import CordwoodError
from cordwood.storage.archives.manifest import ArchivedSegment, ArchiveManifest, LeaderEpoch

NO_EPOCH: Final = -1


class DivergedArchiveError(CordwoodError):
    """The archive has records that are not those of the log; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """A segment of a log's directory: its offsets up to before `next_base_offset`, and its log.

    `modified_ns` is the modification time of its log, nanoseconds since the epoch;
    `largest_timestamp` that of its records (ms), -1 if none has one.
    """

    path: str
    base_offset: int
    next_base_offset: int
    size_bytes: int
    modified_ns: int
    largest_timestamp: int
    is_active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLog:
    """A log as it is at one moment: what of it may be archived.

    `segments` are those whose records are all committed: below the high watermark.

    Differs: Kafka copies segments to remote storage only below the last stable offset, too
    (RemoteLogManager.candidateLogSegments). An archive has the state of producers at its end, which
    says which transactions are open there; a hanging one does not hold it back.
    """

    segments: tuple[LocalSegment, ...]
    log_start_offset: int
    cleaner_offset: int | None
    leader_epochs: tuple[LeaderEpoch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """The archived segments that stay, and those that are copied.

    `gap` are the offsets that were deleted before they were archived, None without any.
    """

    kept: tuple[ArchivedSegment, ...]
    copied: tuple[LocalSegment, ...]
    log_start_offset: int
    end_offset: int
    leader_epochs: tuple[LeaderEpoch, ...]
    gap: tuple[int, int] | None = None

    @property
    def copied_bytes(self) -> int:
        """The bytes of the logs that are copied."""
        return sum(each.size_bytes for each in self.copied)


def plan_archive(log: LocalLog, archived: ArchiveManifest | None, *, name: str) -> ArchivePlan:
    """The plan for a log, of which the archive has `archived`; `name` is for errors.

    Raises:
        DivergedArchiveError: the archive has records of leader epochs that the log does not have,
            or a segment of the log begins inside an archived one.
    """
    if archived is None:
        return ArchivePlan(
            kept=(),
            copied=log.segments,
            log_start_offset=log.log_start_offset,
            end_offset=_end(log.segments, log.log_start_offset),
            leader_epochs=_epochs_until(log.leader_epochs, _end(log.segments, 0)),
        )
    _require_same_lineage(log, archived, name)
    kept, end = archived.segments, archived.end_offset
    # The active segment has more records by now, perhaps; it has fewer if the log was truncated.
    if archived.has_active_segment and _end(log.segments, 0) >= end:
        base = kept[-1].base_offset
        if any(each.base_offset <= base < each.next_base_offset for each in log.segments):
            kept, end = kept[:-1], base
    copied = tuple(each for each in log.segments if each.next_base_offset > end)
    gap = None
    if copied and copied[0].base_offset < end:
        first = copied[0].base_offset
        kept = tuple(each for each in kept if each.base_offset < first)
        if kept and kept[-1].next_base_offset > first:
            raise DivergedArchiveError(
                f"{name}: its segment {first} begins inside the archived segment "
                f"{kept[-1].base_offset}, which ends at {kept[-1].next_base_offset}. Archive the "
                "replica of which the archive was made, or to another URL"
            )
    elif copied and copied[0].base_offset > end:
        gap = end, copied[0].base_offset
    if not copied or (copied[0].is_active and _is_archived(copied[0], archived)):
        kept, end, copied = archived.segments, archived.end_offset, ()
    end_offset = _end(copied, end)
    return ArchivePlan(
        kept=kept,
        copied=copied,
        log_start_offset=archived.log_start_offset,
        end_offset=end_offset,
        leader_epochs=_joined(archived.leader_epochs, log.leader_epochs, end_offset),
        gap=gap,
    )


def _is_archived(active: LocalSegment, archived: ArchiveManifest) -> bool:
    if not archived.has_active_segment:
        return False
    last = archived.segments[-1]
    return last.base_offset == active.base_offset and last.size_bytes == active.size_bytes


def _end(segments: Sequence[LocalSegment], otherwise: int) -> int:
    return segments[-1].next_base_offset if segments else otherwise


def _require_same_lineage(log: LocalLog, archived: ArchiveManifest, name: str) -> None:
    """Requires that the last archived offset is of the same leader epoch in both."""
    last = archived.end_offset - 1
    has_it = bool(log.segments) and (
        log.segments[0].base_offset <= last < log.segments[-1].next_base_offset
    )
    here, there = epoch_of(log.leader_epochs, last), epoch_of(archived.leader_epochs, last)
    if has_it and here != there and NO_EPOCH not in {here, there}:
        raise DivergedArchiveError(
            f"{name}: offset {last} is of leader epoch {there} in the archive, and {here} in the "
            "log: the log was truncated since, or is another one. Archive to another URL"
        )


def epoch_of(epochs: Sequence[LeaderEpoch], offset: int) -> int:
    """The leader epoch of an offset; NO_EPOCH if that is not known."""
    number = bisect_right(epochs, offset, key=lambda each: each.start_offset)
    return epochs[number - 1].epoch if number else NO_EPOCH


def _epochs_until(epochs: Sequence[LeaderEpoch], end: int) -> tuple[LeaderEpoch, ...]:
    return tuple(each for each in epochs if each.start_offset < end)


def _joined(
    archived: Sequence[LeaderEpoch], local: Sequence[LeaderEpoch], end: int
) -> tuple[LeaderEpoch, ...]:
    """The epochs of both; the log's are those that are newer."""
    latest = archived[-1].epoch if archived else NO_EPOCH
    newer = [each for each in local if each.epoch > latest]
    return (*archived, *_epochs_until(newer, end))
