"""Truncation of a log: its end is cut off, or all of it.

A crash in the middle leaves no gap, and nothing that looks flushed and is not: the recovery point
is lowered first, the newest segments go first, and a file is synced when it has been cut off.

Source: UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt, LocalLog.
"""

from __future__ import annotations

import logging
from typing import Protocol

from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.model.audit import LogTruncated, audit
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.deleted_files import no_way_back
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.log_state import LogState
from cordwood.storage.log.metadata_files import MetadataFiles
from cordwood.storage.producers.producer_rebuild import rebuild_producer_state
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)


class TruncatedLog(LogState, Protocol):
    """A log and what a truncation changes in it."""

    metadata_files: MetadataFiles
    producer_state: ProducerStateManager


def truncate_to(log: TruncatedLog, offset: int) -> bool:
    """Cuts a log off: what is at or above `offset` goes, a batch that holds it wholly.

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
        offsets, before = log.offsets, log.offsets.end.offset
        if offset >= before:
            _log.info(
                "Truncating to %s has no effect as the largest offset in the log is %s",
                offset,
                before - 1,
            )
            # A leader that got no record has left its epoch at the log's end.
            log.metadata_files.change_epochs(lambda: log.leader_epochs.truncate_from_end(before))
            return False
        _log.info("Truncating to offset %s", offset)
        if offset < offsets.high_watermark.offset:
            _log.warning(
                "Truncating %s to offset %s below high watermark %s",
                log.topic_partition,
                offset,
                offsets.high_watermark.offset,
            )
        if log.segments.first.base_offset > offset:
            truncate_fully_and_start_at(log, offset)
            return True
        doomed = [s for s in log.segments if s.base_offset > offset]
        log.deleted_files.settle(doomed, log.directory)
        offsets.begin_truncation(offset)
        log.segments = log.segments.without(doomed)
        offsets.end = LogPosition(offset)  # readers find it in the segments that are left
        # The newest first: a crash must not leave a gap in the middle of the log.
        doomed.reverse()
        with no_way_back(log.directory):
            log.deleted_files.remove_later(log, doomed, log.deleted_files.mark(doomed))
        if doomed:
            # They must not come back behind a segment that has been cut off.
            log.context.fs.sync_directory(log.directory)
        active = log.segments.active
        active.truncate_to(offset, now_ms=log.context.clock.now_ms())
        offsets.set_end(offset, active)
        _audit_truncated(log, offset, before)
        log.metadata_files.change_epochs(lambda: log.leader_epochs.truncate_from_end(offset))
        offsets.log_start = min(offset, offsets.log_start)
        _rebuild_producers(log)
        if offsets.high_watermark.offset > offset:
            offsets.set_high_watermark(LogPosition(offset))
        return True


def truncate_fully_and_start_at(
    log: TruncatedLog, offset: int, *, log_start_offset: int | None = None
) -> None:
    """Empties a log; the next record gets `offset`.

    Args:
        log: the log.
        offset: its new end.
        log_start_offset: its new start where it is another one.

    Raises:
        StorageError: the disk refused.
    """
    with log.lock, log.guard(f"truncating fully to {offset}"):
        log.require_open()
        _log.info("Truncate and start at offset %s, logStartOffset: %s", offset, log_start_offset)
        offsets, before = log.offsets, log.offsets.end.offset
        old = list(log.segments)[::-1]
        log.deleted_files.settle(old, log.directory)
        offsets.begin_truncation(offset)
        try:
            names = log.deleted_files.mark(old)
            segment = log.context.create_segment(log.directory, offset, log.config)
        except (OSError, CordwoodError):
            for each in old:
                each.change_suffix(DELETED_SUFFIX, "")
            raise
        log.segments = SegmentList([segment])
        log.deleted_files.remove_later(log, old, names)
        offsets.set_end(offset, segment)
        _audit_truncated(log, offset, before)
        log.metadata_files.change_epochs(log.leader_epochs.clear_and_flush)
        log.producer_state.truncate_fully_and_start_at(offset)
        offsets.log_start = offset if log_start_offset is None else log_start_offset
        offsets.set_high_watermark(LogPosition(max(offset, offsets.log_start)))


def _rebuild_producers(log: TruncatedLog) -> None:
    rebuild_producer_state(
        log.producer_state,
        log.segments,
        log_start_offset=log.offsets.log_start,
        log_end_offset=log.offsets.end.offset,
        now_ms=log.context.clock.now_ms(),
        reload_from_clean_shutdown=False,
    )
    log.offsets.refresh_first_unstable()


def _audit_truncated(log: TruncatedLog, offset: int, end_before: int) -> None:
    audit(
        LogTruncated(
            partition=log.topic_partition,
            log_dir=str(log.directory.parent),
            offset=offset,
            log_end_offset_before=end_before,
        )
    )
