"""Flushes of a log: what they sync, in which order, and how far the recovery point is raised.

A flush syncs without the log's lock, so that appends and reads continue meanwhile.

Source: UnifiedLog.flush, LocalLog.flush.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_state import LogState
from cordwood.storage.producers.producer_snapshots import ProducerSnapshots
from cordwood.storage.segment.log_segment import LogSegment

_log = logging.getLogger(__name__)


class LogFlusher:
    """Flushes one log; any thread may call it."""

    def __init__(self, log: LogState) -> None:
        """Nothing is flushed yet."""
        self._log = log
        self.last_flush_ms = log.context.clock.now_ms()

    def flush_records(self) -> None:
        """Flushes for flush.messages; records last even if an index does not fit the disk."""
        offsets = self._log.offsets
        try:
            self.flush_up_to(offsets.end.offset)
        except StorageError as error:
            if not error.is_out_of_space:
                raise
            _log.warning("%s; the recovery point stays at %s", error, offsets.recovery_point)

    def flush_up_to(self, offset: int, *, including_offset: bool = False) -> None:
        """Makes records below `offset` last, and raises the recovery point to it.

        Raises:
            StorageError: a sync failed, and the directory is offline; or there is no space for an
                index, and only the recovery point is not raised: the records last.
        """
        log, offsets = self._log, self._log.offsets
        with log.guard("flushing"):
            with log.lock:
                log.require_open()
                known, end = offsets.recovery_point, offset + 1 if including_offset else offset
                truncation_count = offsets.truncation_count
            if end <= known:
                return
            dirty = log.segments.values(known, end)
            self._by_name(lambda: self._sync(dirty, known))
            with log.lock:
                # What was truncated and written again in the meantime has not been synced.
                if truncation_count == offsets.truncation_count:
                    synced = min(offset, offsets.end.offset)
                    offsets.recovery_point = max(offsets.recovery_point, synced)
                self.last_flush_ms = log.context.clock.now_ms()

    def flush_rolled(self, old: LogSegment, base: int, snapshots: ProducerSnapshots) -> None:
        """Flushes what lies below a new segment: `old`, those before it, the producers' snapshot.

        Args:
            old: the segment that was active.
            base: the base offset of the new one, and the offset of the snapshot.
            snapshots: of the producers.
        """
        if self._log.is_closed:
            return
        with self._log.guard("flushing"):
            self._by_name(lambda: snapshots.sync(base))
            self.flush_up_to(base)
            # Its records may have been flushed before the roll, but not its last index entries.
            self._by_name(lambda: self._sync([old], base))

    def sync_names(self) -> None:
        """Makes it last that segments have gone; nothing where none has since the last time.

        Raises:
            StorageError: the directory is offline, or has just failed.
        """
        log = self._log
        with log.lock, log.guard("syncing the directory of"):
            if log.deleted_files.has_unsynced_names and not log.is_closed:
                log.context.fs.sync_directory(log.directory)
                log.deleted_files.has_unsynced_names = False

    def _by_name(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FileNotFoundError:
            # The directory is being renamed, or a segment is: no error once that is over.
            with self._log.lock:
                work()

    def _sync(self, segments: Sequence[LogSegment], known: int) -> None:
        log, context = self._log, self._log.context
        dirty = [segment for segment in segments if log.segments.contains_this(segment)]
        begun_s = context.clock.monotonic_s()
        for segment in dirty:
            segment.flush_log()
        try:
            for segment in dirty:
                segment.indexes.files.flush()
        finally:
            if any(segment.base_offset >= known for segment in dirty):
                # A segment made since the last flush: its name has to last as well.
                context.fs.sync_directory(log.directory)
            context.flushes.note(len(dirty), context.clock.monotonic_s() - begun_s)
