"""What takes segments out of a log or puts others in: retention, truncation, a clean's result.

Each function runs under the log's lock, and swaps the tuple of segments at once: a reader sees the
segments before or after, never a mixture.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteSegments, truncateTo,
truncateFullyAndStartAt; LocalLog.replaceSegments.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log import retired_files
from cordwood.storage.log.append_result import LogPosition
from cordwood.storage.replace import StagedSegment, finish_swap, swap_in, undo_swap_in
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

if TYPE_CHECKING:
    from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

SEGMENT_DELETION = "segment deletion"


def delete_segments(
    log: PartitionLog, count: int, *, reason: str, lines: Sequence[str] = ()
) -> int:
    """Removes the `count` oldest segments; how many went.

    Where all of them go, an empty one at the log's end is made first. The log start offset is
    raised before a file is touched.

    Args:
        log: that has become too long.
        count: how many.
        reason: why, in a few words.
        lines: what is logged instead of a line a segment made of the reason.

    Raises:
        OffsetOutOfRangeError: a segment reaches above the high watermark.
        StorageError: the disk refused.
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
                # The others make room for a new segment; the active one goes with the next pass.
                count -= 1
                doomed.pop()
            doomed = [s for s in doomed if s is not log.active and log.segments.contains_this(s)]
        rest = log.segments.without(doomed)
        log.maybe_increment_log_start_offset(rest.first.base_offset, SEGMENT_DELETION)
        log.segments = rest
        for line in lines or [f"Deleting segment {s} due to {reason}." for s in doomed]:
            _log.info("%s", line)
        retired_files.retire(log, doomed, snapshots=[s.base_offset for s in doomed])
        return count


def truncate_to(log: PartitionLog, offset: int) -> bool:
    """Cuts the log off: what is at or above `offset` goes, a batch that holds it wholly.

    Returns:
        Whether the log reached that far.

    Raises:
        ValueError: `offset` is negative.
        StorageError: the disk refused.
    """
    if offset < 0:
        raise ValueError(
            f"Cannot truncate partition {log.topic_partition} to a negative offset ({offset})."
        )
    with log.lock, log.guard(f"truncating to {offset}"):
        log.require_open()
        if offset >= log.log_end_offset:
            _log.info(
                "Truncating to %s has no effect as the largest offset in the log is %s",
                offset,
                log.log_end_offset - 1,
            )
            # A leader that got no record has left its epoch at the log's end.
            log.change_epochs(lambda: log.leader_epochs.truncate_from_end(log.log_end_offset))
            return False
        _log.info("Truncating to offset %s", offset)
        if offset < log.high_watermark:
            _log.warning(
                "Truncating %s to offset %s below high watermark %s",
                log.topic_partition,
                offset,
                log.high_watermark,
            )
        if log.segments.first.base_offset > offset:
            truncate_fully_and_start_at(log, offset)
            return True
        # What a crash in the middle leaves must never look flushed.
        log.generation += 1
        log.recovery_point = min(log.recovery_point, offset)
        doomed = [s for s in log.segments if s.base_offset > offset]
        log.segments = log.segments.without(doomed)
        log.end = LogPosition(offset)  # readers find it in the segments that are left
        # The newest first: a crash must not leave a gap in the middle of the log.
        retired_files.retire(log, list(reversed(doomed)), at_once=False)
        if doomed:
            # They must not come back behind a segment that has been cut off.
            log.context.fs.sync_directory(log.directory)
        log.active.truncate_to(offset, now_ms=log.context.clock.now_ms())
        log.set_end(offset)
        log.change_epochs(lambda: log.leader_epochs.truncate_from_end(offset))
        log.log_start_offset = min(offset, log.log_start_offset)
        _rebuild_producers(log)
        if log.high_watermark > offset:
            log.set_high_watermark(LogPosition(offset))
        return True


def truncate_fully_and_start_at(
    log: PartitionLog, offset: int, *, log_start_offset: int | None = None
) -> None:
    """Empties the log; the next record gets `offset`.

    Args:
        log: to empty.
        offset: the new log end.
        log_start_offset: the new log start where it is another one.

    Raises:
        StorageError: the disk refused.
    """
    with log.lock, log.guard(f"truncating fully to {offset}"):
        log.require_open()
        _log.info("Truncate and start at offset %s, logStartOffset: %s", offset, log_start_offset)
        log.generation += 1
        log.recovery_point = min(log.recovery_point, offset)
        old = list(log.segments)
        retired_files.retire(log, list(reversed(old)))
        try:
            segment = log.new_segment(offset)
        except (OSError, CordwoodError):
            retired_files.take_back(old)
            raise
        log.segments = SegmentList([segment])
        log.set_end(offset)
        log.change_epochs(log.leader_epochs.clear_and_flush)
        log.producer_state.truncate_fully_and_start_at(offset)
        log.log_start_offset = offset if log_start_offset is None else log_start_offset
        log.recovery_point = min(log.recovery_point, offset)
        log.set_high_watermark(LogPosition(max(offset, log.log_start_offset)))


def _rebuild_producers(log: PartitionLog) -> None:
    from cordwood.storage.log.log_loader import rebuild_producer_state  # noqa: PLC0415  # no cycle

    rebuild_producer_state(
        log.producer_state,
        log.segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        now_ms=log.context.clock.now_ms(),
        reload_from_clean_shutdown=False,
    )
    log.refresh_first_unstable()


def replace_segments(
    log: PartitionLog, staged: StagedSegment, sources: Sequence[int]
) -> LogSegment:
    """Puts a cleaned segment in the place of those it was made from; see `storage.replace`.

    Args:
        log: that was cleaned.
        staged: the new segment's files, complete and on disk.
        sources: base offsets of the segments it replaces, ascending.

    Raises:
        StorageError: all sources are gone, or one has become active, or the disk refused. A full
            disk takes the directory offline only where the sources have lost their names already.
    """
    with log.lock, log.guard("replacing segments of"):
        log.require_open()
        # Retention may have taken the oldest: what is gone is not retired twice.
        old = [s for s in map(log.segments.get, sources) if s is not None]
        if not old or old[-1].base_offset >= log.active.base_offset:
            raise StorageError(
                f"the segments {list(sources)} of {log.topic_partition} are not there to be "
                "replaced any more: the log was truncated or deleted since the clean began"
            )
        try:
            suffixes = swap_in(staged, fs=log.context.fs)
        except NoSpaceError:
            undo_swap_in(staged, fs=log.context.fs)
            raise
        unreplaced = [s.base_offset for s in old if s.base_offset != staged.base_offset]
        try:
            retired_files.retire(log, old, snapshots=unreplaced)
            finish_swap(staged, suffixes, fs=log.context.fs)
        except NoSpaceError as error:
            # The segment's files have the names of a step that only a loader finishes.
            raise OSError(errno.ENOSPC, str(error), str(log.directory)) from error
        new = LogSegment.open(
            log.directory,
            staged.base_offset,
            config=log.config,
            resources=log.context.resources,
            now_ms=log.context.clock.now_ms(),
        )
        log.segments = log.segments.without(old).with_added(new)
        log.forget_high_watermark_position()
        return new
