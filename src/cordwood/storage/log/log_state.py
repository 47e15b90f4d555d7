"""A log's segments and the offsets that bound it, and how these may move.

Invariant: log start offset <= last stable offset <= high watermark <= log end offset, and recovery
point <= log end offset. Segments ascend by base offset; there is at least one, the last is active.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from cordwood.format.file_names import PARTITION_METADATA
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import OffsetOutOfRangeError, StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.append_result import LogPosition
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

_FLUSH_RETRY_MS = 1000
"""After a full disk has kept the topic id or the leader epochs from being written."""

CLIENT_DELETION = "client delete records request"
LEADER_OFFSET_INCREMENT = "leader offset increment"


class LogState:
    """What a log knows of itself. `lock` is held by whoever changes any of it."""

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        directory: Path,
        config: LogConfig,
        context: LogContext,
        segments: SegmentList,
        log_start_offset: int,
        recovery_point: int,
        log_end_offset: int,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        topic_id: str | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.config = config
        self.context = context
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        #: The log's end and where that is, which a reader takes at once: the segment may be longer.
        self.end = LogPosition(
            log_end_offset, segments.active.base_offset, segments.active.size_bytes
        )
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.topic_id = topic_id
        self.lock = threading.RLock()
        self.generation = 0  # how often the log was cut off
        self.last_flush_ms = context.clock.now_ms()
        self.is_closed = False
        self.has_unsynced_names = False  # segments have gone, and may come back
        self._high_watermark = LogPosition(log_start_offset)
        self._first_unstable: int | None = None
        self._topic_id_pending: str | None = None
        self._has_flush_scheduled = False
        self._was_flush_put_off = False
        self.refresh_first_unstable()

    def __repr__(self) -> str:
        return (
            f"Log(dir={self.directory}, topicId={self.topic_id}, "
            f"topic={self.topic_partition.topic}, partition={self.topic_partition.partition}, "
            f"highWatermark={self.high_watermark}, lastStableOffset={self.last_stable_offset}, "
            f"logStartOffset={self.log_start_offset}, logEndOffset={self.log_end_offset})"
        )

    # ---- where it is

    @property
    def directory(self) -> Path:
        """Where its files are; `log_dir` is the entry of log.dirs above it."""
        return self._directory

    @directory.setter
    def directory(self, directory: Path) -> None:
        self._directory = directory
        self.log_dir = directory.parent

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.end.offset

    @property
    def high_watermark(self) -> int:
        """Records below it are on all in-sync replicas; exclusive."""
        return self._high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Records below it belong to no open transaction; exclusive, at most the high watermark."""
        unstable = self._first_unstable
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or not yet replicated."""
        return self._first_unstable

    @property
    def size_bytes(self) -> int:
        """The sum of all segments' logs."""
        return self.segments.size_bytes

    @property
    def active(self) -> LogSegment:
        """The segment that is written to."""
        return self.segments.active

    @property
    def unflushed_messages(self) -> int:
        """How many offsets lie above the recovery point."""
        return self.log_end_offset - self.recovery_point

    # ---- offsets that move

    def position_of_high_watermark(self) -> LogPosition:
        """The high watermark and where it lies; looked up once, and remembered."""
        known = self._high_watermark
        if known.position < 0:
            found = self.position_of(known.offset)
            if self._high_watermark.offset == known.offset:
                self._high_watermark = found
            return found
        return known

    def position_of(self, offset: int) -> LogPosition:
        """Where the first batch that ends at or after `offset` begins, or the log's end."""
        segments, end = self.segments, self.end
        if offset < end.offset or end.position < 0:
            segment: LogSegment | None = segments.floor(offset) or segments.first
            while segment is not None:
                found = segment.translate_offset(offset)
                if found is not None:
                    return LogPosition(offset, segment.base_offset, found.position)
                segment = segments.higher(segment.base_offset)
        if end.position < 0:
            return LogPosition(offset, segments.active.base_offset, segments.active.size_bytes)
        return end._replace(offset=offset)

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, within log start and end; what it is now."""
        with self.lock:
            bounded = min(max(offset, self.log_start_offset), self.log_end_offset)
            if bounded != self.high_watermark:
                position = self.end if bounded == self.log_end_offset else LogPosition(bounded)
                self._high_watermark = position
                self.producer_state.on_high_watermark_updated(bounded)
                self.refresh_first_unstable()
            return bounded

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Raises the high watermark, never lowers it; the old one, or None if nothing changed.

        Raises:
            ValueError: `offset` is beyond the log's end.
        """
        with self.lock:
            if offset > self.log_end_offset:
                raise ValueError(
                    f"High watermark {offset} update exceeds current log end offset "
                    f"{self.log_end_offset}"
                )
            old = self.high_watermark
            if offset <= old:
                return None
            self.update_high_watermark(offset)
            return old

    def refresh_first_unstable(self) -> None:
        """Takes the first unstable offset from the producers anew."""
        self._first_unstable = self.producer_state.first_unstable_offset
        if self._first_unstable is not None:
            self._first_unstable = max(self._first_unstable, self.log_start_offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raises the log start offset; whether it was lower.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.
        """
        with self.lock, self.guard(f"incrementing the log start offset to {offset} of"):
            self.require_open()
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"Cannot increment the log start offset to {offset} of partition "
                    f"{self.topic_partition} since it is larger than the high watermark "
                    f"{self.high_watermark}"
                )
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            _log.info("Incremented log start offset to %s due to %s", offset, reason)
            self.change_epochs(lambda: self.leader_epochs.truncate_from_start(offset))
            self.producer_state.on_log_start_offset_incremented(offset)
            self.refresh_first_unstable()
            return True

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: records below `offset` are gone for readers; the log start offset now.

        Args:
            offset: -1 for the high watermark.

        Raises:
            OffsetOutOfRangeError: it is negative otherwise, or above the high watermark.
        """
        wanted = self.high_watermark if offset == -1 else offset
        if wanted < 0:
            raise OffsetOutOfRangeError(
                f"The offset {wanted} for partition {self.topic_partition} is not valid"
            )
        self.maybe_increment_log_start_offset(wanted, CLIENT_DELETION)
        return self.log_start_offset

    def sync_names(self) -> None:
        """Makes it last that segments have gone; nothing where none has since the last time.

        Raises:
            StorageError: the directory is offline, or has just failed.
        """
        with self.lock, self.guard("syncing the directory of"):
            if self.has_unsynced_names and not self.is_closed:
                self.context.fs.sync_directory(self.directory)
                self.has_unsynced_names = False

    # ---- for the modules beside this one

    def _flush_small_files_soon(self, *, delay_ms: int = 0) -> None:
        """Has the topic id and the leader epochs written, if a record does not come first."""
        if not self._has_flush_scheduled:
            self._has_flush_scheduled = True
            self.context.scheduler.schedule_once(
                "flush-metadata-file", self._flush_if_open, delay_ms=delay_ms
            )

    def _flush_if_open(self) -> None:
        with self.lock:
            self._has_flush_scheduled = False
            if self.is_closed:
                return
            try:
                with self.guard("writing the topic id and the leader epochs of"):
                    self._flush_topic_id()
                    self.leader_epochs.flush()
            except StorageError as error:
                if not error.is_out_of_space:
                    raise
                self._put_off_flush(error)
            else:
                self._was_flush_put_off = False

    def _flush_topic_id(self) -> None:
        if self._topic_id_pending is not None:
            data = build_partition_metadata(self._topic_id_pending)
            self.context.fs.replace_durably(self.directory / PARTITION_METADATA, data)
            self._topic_id_pending = None

    def change_epochs(self, change: Callable[[], None]) -> None:
        """Takes leader epochs away; where the disk is full, their file is written later.

        Retention, DeleteRecords and truncation must not need the space that they are to free.
        """
        try:
            change()
        except NoSpaceError as error:
            self._put_off_flush(error)

    def _put_off_flush(self, error: CordwoodError) -> None:
        if not self._was_flush_put_off:  # a full disk is reported once, however long it lasts
            self._was_flush_put_off = True
            _log.warning("%s. It is written later", error)
        self._flush_small_files_soon(delay_ms=_FLUSH_RETRY_MS)

    def guard(self, doing: str) -> AbstractContextManager[None]:
        """Turns files' errors into `StorageError`s, and takes the directory offline."""
        return self.context.failures.guard(self.log_dir, doing, self.topic_partition)

    def require_open(self) -> None:
        """Refuses work on a closed log.

        Raises:
            StorageError: it is closed.
        """
        if self.is_closed:
            raise StorageError(f"The log of {self.topic_partition} is already closed")

    def set_end(self, offset: int) -> None:
        """Puts the log's end to where the active segment ends."""
        self.end = LogPosition(offset, self.active.base_offset, self.active.size_bytes)

    def set_high_watermark(self, position: LogPosition) -> None:
        """Sets the high watermark as it is told."""
        self._high_watermark = position
        self.producer_state.on_high_watermark_updated(position.offset)
        self.refresh_first_unstable()

    def forget_high_watermark_position(self) -> None:
        """Has the high watermark's place looked up anew: its segment was replaced."""
        self._high_watermark = LogPosition(self.high_watermark)
