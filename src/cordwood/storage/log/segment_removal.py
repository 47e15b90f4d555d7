"""Segments that leave a running log: deleted from its start, or replaced by compacted ones.

Both are noted in the trash first, if the topic's settings say so. The tuple of segments is replaced
at once: a reader sees the segments before or after, never a mixture.

Source: UnifiedLog.deleteSegments, UnifiedLog.replaceSegments, LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.format.trash_notes import (
    COMPACTION,
    DELETED_RECORDS,
    RETENTION,
    Removal,
    Rewritten,
)
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.deleted_files import no_way_back
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.replace import StagedSegment, finish_swap, swap_in, undo_swap_in
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

_REASON = "segment deletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Compacted segments; `cleaner_checkpoint` is the line before the compaction."""

    rewritten: tuple[Rewritten, ...]
    cleaner_checkpoint: int | None


def delete_segments(
    log: PartitionLog, count: int, *, reason: str, lines: Sequence[str] = ()
) -> int:
    """Removes the `count` oldest segments, and returns the number removed.

    Where all of them go, an empty one at the log's end is made first. The log start offset is
    raised before a file is touched.

    Args:
        count: how many.
        reason: why, in a few words.
        lines: what is logged instead of a line a segment made of the reason.

    Raises:
        OffsetOutOfRangeError: a segment reaches above the high watermark.
        StorageError: the disk refused.
        TrashError: the trash did, and nothing changes.
    """
    with log.lock, log.guard("deleting segments of"):
        log.require_open()
        doomed = list(log.segments)[:count]
        if not doomed:
            return 0
        if len(doomed) == len(log.segments):
            if not log.active.size_bytes and log.active.base_offset == log.log_end_offset:
                _log.info(
                    "Empty active segment at %s was deleted and recreated due to %s",
                    log.log_end_offset,
                    reason,
                )
            try:
                log.roll()
            except StorageError as error:
                if len(doomed) == 1 or not error.is_out_of_space:
                    raise
                # The others free space for a new segment; the next pass takes the active one.
                count -= 1
                doomed.pop()
            doomed = [s for s in doomed if s is not log.active and log.segments.contains_this(s)]
        rest = log.segments.without(doomed)
        log.deleted_files.settle(doomed, log.directory)
        _note_deleted(log, doomed, rest=rest)
        log.maybe_increment_log_start_offset(rest.first.base_offset, _REASON)
        log.segments = rest
        for line in lines or [f"Deleting segment {s} due to {reason}." for s in doomed]:
            _log.info("%s", line)
        names = log.deleted_files.mark(doomed, snapshots=[s.base_offset for s in doomed])
        log.deleted_files.remove_later(log, doomed, names)
        return count


def replace_segments(
    log: PartitionLog,
    staged: Sequence[StagedSegment],
    sources: Sequence[int],
    trashed: Replacement | None = None,
) -> list[LogSegment]:
    """Replaces segments with the cleaned ones made from them; see `storage.replace`.

    Args:
        staged: the new segments' files, complete and on disk, ascending.
        sources: base offsets of the segments they replace, ascending.
        trashed: the new segments, as the trash needs them; None if the old ones are not to go
            there.

    Raises:
        TrashError: the trash refused, and nothing has changed.
        StorageError: all sources are gone, or one has become active, or the disk refused. A
            full disk takes the directory offline only where the sources have lost their names
            already.
    """
    with log.lock, log.guard("replacing segments of"):
        log.require_open()
        # Retention may have taken the oldest: what is gone is not marked twice.
        old = [s for s in map(log.segments.get, sources) if s is not None]
        if not old or old[-1].base_offset >= log.active.base_offset:
            raise StorageError(
                f"the segments {list(sources)} of {log.topic_partition} are not there to be "
                "replaced any more: the log was truncated or deleted since the clean began"
            )
        log.deleted_files.settle(old, log.directory)
        _note_replaced(log, old, trashed)
        try:
            files = swap_in(staged, fs=log.context.fs)
        except NoSpaceError:
            undo_swap_in(staged, fs=log.context.fs)
            raise
        bases = [each.base_offset for each in staged]
        unreplaced = [s.base_offset for s in old if s.base_offset not in bases]
        with no_way_back(log.directory):
            names = log.deleted_files.mark(old, snapshots=unreplaced)
            finish_swap(log.directory, files, fs=log.context.fs)
        new = [_open(log, base) for base in bases]
        log.segments = log.segments.without(old).with_added(*new)
        log.deleted_files.remove_later(log, old, names)
        log.offsets.high_watermark = LogPosition(log.high_watermark)  # it lies elsewhere
        return new


def _open(log: PartitionLog, base_offset: int) -> LogSegment:
    """Opens a segment of which the files are in place."""
    return LogSegment.open(
        log.directory,
        base_offset,
        config=log.config,
        resources=log.context.resources,
        now_ms=log.context.clock.now_ms(),
    )


def is_trashed(log: PartitionLog) -> bool:
    """Whether what is removed from a log goes to the trash; not from the future log of a move."""
    return (
        log.context.trash is not None
        and log.config.cordwood_trash_ms > 0
        and log.directory.name == str(log.topic_partition)
    )


def trash_path(log: PartitionLog) -> str | None:
    """The directory for files that are removed from a log; None if they are deleted."""
    trash = log.context.trash
    return str(trash.directory) if trash is not None and is_trashed(log) else None


def _note_deleted(log: PartitionLog, doomed: Sequence[LogSegment], *, rest: SegmentList) -> None:
    """Notes the oldest segments of a log, of which `rest` stays, if its settings say so.

    Of deleted records the log start offset before is not known: it is noted as if none had been
    deleted from these segments.

    Raises:
        TrashError: it cannot be noted.
    """
    if not doomed or not is_trashed(log):
        return
    first, base = rest.first, doomed[0].base_offset
    is_rolled = len(rest) == 1 and not first.size_bytes
    why = DELETED_RECORDS if first.base_offset <= log.log_start_offset else RETENTION
    start = base if why == DELETED_RECORDS else max(log.log_start_offset, base)
    _note(
        log,
        doomed,
        why=why,
        end_offset=first.base_offset,
        log_start_offset=start,
        rolled=first.base_offset if is_rolled else None,
    )


def _note_replaced(
    log: PartitionLog, old: Sequence[LogSegment], replacement: Replacement | None
) -> None:
    """Notes segments that a compacted one is about to replace; nothing without a `replacement`.

    Raises:
        TrashError: it cannot be noted.
    """
    if replacement is None or not is_trashed(log):
        return
    after = log.segments.higher(old[-1].base_offset)
    assert after is not None, "the active segment is not compacted"
    _note(
        log,
        old,
        why=COMPACTION,
        end_offset=after.base_offset,
        log_start_offset=max(log.log_start_offset, old[0].base_offset),
        replacement=replacement,
    )


def _note(
    log: PartitionLog,
    segments: Sequence[LogSegment],
    *,
    why: str,
    end_offset: int,
    log_start_offset: int,
    rolled: int | None = None,
    replacement: Replacement | None = None,
) -> None:
    trash, now_ms = log.context.trash, log.context.clock.now_ms()
    assert trash is not None, "there is one"
    removal = Removal(
        at_ms=now_ms,
        why=why,
        topic_id=None,
        segments=tuple(each.base_offset for each in segments),
        end_offset=end_offset,
        files=(),
        log_start_offset=log_start_offset,
        leader_epochs=tuple(
            (each.epoch, each.start_offset) for each in log.leader_epochs.epoch_entries
        ),
        cleaner_checkpoint=None if replacement is None else replacement.cleaner_checkpoint,
        rewritten=() if replacement is None else replacement.rewritten,
        rolled=rolled,
        expires_ms=now_ms + log.config.cordwood_trash_ms,
    )
    trash.note(log.directory, removal)
