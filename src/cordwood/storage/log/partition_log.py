"""One partition's log: append, roll, flush, truncate, and the offsets that bound it.

Invariant: log start offset <= last stable offset <= high watermark <= log end offset, and recovery
point <= log end offset. Segments ascend by base offset; there is at least one, the last is active.

One lock serialises whatever changes the log. `log.reader` takes none: neither an append nor a clean
nor a delete makes it wait.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import DELETED_SUFFIX, PARTITION_METADATA
from cordwood.format.legacy import LegacyBatch
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.format.record_batch import MAGIC
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.audit import LogTruncated, audit
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import (
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from cordwood.model.pauses import background, is_pausing
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.append import validator
from cordwood.storage.append.validator import AnalyzedBatch, ValidatedBatch, ValidationResult
from cordwood.storage.log.append_result import AppendResult, LogPosition
from cordwood.storage.log.damage import require_offset_after, require_offsets_left
from cordwood.storage.log.deleted_files import DeletedFiles
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import LogReader
from cordwood.storage.log.removal_notes import Replacement, note_replaced, note_segments
from cordwood.storage.producers.append_producers import AppendProducers
from cordwood.storage.producers.producer_rebuild import rebuild_producer_state
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.replace import StagedSegment, finish_swap, swap_in, undo_swap_in
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_indexes import AppendedBatch
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

_FLUSH_RETRY_MS = 1000
"""After a full disk has kept the topic id or the leader epochs from being written."""

CLIENT_DELETION = "client delete records request"
LEADER_OFFSET_INCREMENT = "leader offset increment"
SEGMENT_DELETION = "segment deletion"


def _open_segment(log: PartitionLog, base_offset: int) -> LogSegment:
    """A segment of which the files are in place."""
    return LogSegment.open(
        log.directory,
        base_offset,
        config=log.config,
        resources=log.context.resources,
        now_ms=log.context.clock.now_ms(),
    )


@contextmanager
def _no_way_back(directory: Path) -> Iterator[None]:
    """Raises a full disk as OSError, and so takes the directory offline until a restart."""
    try:
        yield
    except NoSpaceError as error:
        raise OSError(errno.ENOSPC, str(error), str(directory)) from error


def _note_epochs(epochs: LeaderEpochCache, batches: Sequence[ValidatedBatch]) -> None:
    """Has the cache know the epochs of batches that are about to be appended."""
    for batch in batches:
        header = batch.header
        epoch = header.partition_leader_epoch
        if epoch >= 0 and epoch != epochs.latest_epoch:
            epochs.assign(epoch, header.base_offset)
        elif header.magic < MAGIC and epochs.non_empty:
            # Epochs that do not cover all of the log would mislead the next truncation.
            _log.warning(
                "Clearing leader epoch cache after unexpected append with message format v%s",
                header.magic,
            )
            epochs.clear_and_flush()


class PartitionLog:
    """A partition's log; `storage.log.log_loader.load_log` opens one.

    `lock` is held while any of its state is changed.
    """

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
        topic_id: UUID | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.context = context
        self.directory = directory
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
        self.truncation_count = 0  # how often the log was cut off
        #: From where on records may be missing since a crash; None if nowhere, or cut off since.
        self.gap_offset: int | None = None
        self.last_flush_ms = context.clock.now_ms()
        self.is_closed = False
        #: What was replaced or deleted, and waits for file.delete.delay.ms.
        self.deleted_files = DeletedFiles(context)
        self._has_unsynced_names = False  # segments have gone, and may come back
        #: The high watermark, and where it lies once a reader has looked it up.
        self.high_watermark_position = LogPosition(log_start_offset)
        self._first_unstable: int | None = None
        #: Reads records and timestamps, without the lock.
        self.reader = LogReader(self)
        self._topic_id_pending: UUID | None = None
        self._has_flush_scheduled = False
        self._is_flush_postponed = False
        self._refresh_first_unstable()

    def __repr__(self) -> str:
        topic_id = None if self.topic_id is None else uuid_text(self.topic_id)
        return (
            f"Log(dir={self.directory}, topicId={topic_id}, "
            f"topic={self.topic_partition.topic}, partition={self.topic_partition.partition}, "
            f"highWatermark={self.high_watermark}, lastStableOffset={self.last_stable_offset}, "
            f"logStartOffset={self.log_start_offset}, logEndOffset={self.log_end_offset})"
        )

    def check_invariants(self) -> None:
        """Asserts the order of the offsets, and that segments and producers fit them."""
        with self.lock:
            start, stable, mark, end = (
                self.log_start_offset,
                self.last_stable_offset,
                self.high_watermark,
                self.log_end_offset,
            )
            assert start <= stable <= mark <= end, f"{self!r}: {start} {stable} {mark} {end}"
            assert self.recovery_point <= end, f"{self!r}: recovery point {self.recovery_point}"
            assert self.active.base_offset <= end, f"{self!r}: active {self.active}"
            self.segments.check_invariants()
            self.producer_state.check_invariants()

    # ---- where it is

    @property
    def directory(self) -> Path:
        """The directory of its files; `log_dir` is the entry of log.dirs that contains it."""
        return self._directory

    @directory.setter
    def directory(self, directory: Path) -> None:
        self._directory = directory
        self.log_dir = directory.parent
        self._append_guard = self.guard("appending records to")  # made once: every append enters it

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.end.offset

    @property
    def high_watermark(self) -> int:
        """Records below it are on all in-sync replicas; exclusive."""
        return self.high_watermark_position.offset

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
    def holds(self) -> tuple[str, ...]:
        """The ids of its legal holds: while there is one, nothing of it is removed."""
        return self.context.holds.ids(self.topic_partition, self.log_dir)

    @property
    def active(self) -> LogSegment:
        """The segment that is written to."""
        return self.segments.active

    # ---- offsets that move

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, within log start and end; what it is now."""
        with self.lock:
            end = self.end
            bounded = min(max(offset, self.log_start_offset), end.offset)
            if bounded != self.high_watermark_position.offset:
                self.set_high_watermark(end if bounded == end.offset else LogPosition(bounded))
            return bounded

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Raises the high watermark, never lowers it; the old one, or None if nothing changed.

        Raises:
            ValueError: `offset` is beyond the log's end.
        """
        with self.lock:
            end = self.end
            if offset > end.offset:
                raise ValueError(
                    f"High watermark {offset} update exceeds current log end offset {end.offset}"
                )
            old = self.high_watermark_position.offset
            if offset <= old:
                return None
            self.update_high_watermark(offset)
            return old

    def _refresh_first_unstable(self) -> None:
        """Updates the first unstable offset from the producers."""
        first = self.producer_state.first_unstable_offset
        self._first_unstable = None if first is None else max(first, self.log_start_offset)

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
            self._change_epochs(lambda: self.leader_epochs.truncate_from_start(offset))
            self.producer_state.on_log_start_offset_incremented(offset)
            self._refresh_first_unstable()
            self.context.log_start_moved(self.topic_partition)
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
            if self._has_unsynced_names and not self.is_closed:
                self.context.fs.sync_directory(self.directory)
                self._has_unsynced_names = False

    # ---- append

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: object | None = None,
        transaction_version: int = 0,
        require_leader: Callable[[int], None] = lambda _: None,
    ) -> AppendResult:
        """Checks records, gives them offsets from the log's end on, and writes them.

        Args:
            records: whole batches; those of a client are exactly one. A partial one at the end is
                left out.
            leader_epoch: stamped on every batch.
            origin: whose they are; decides which checks apply.
            verification_guard: what `maybe_start_verification` gave, for a transaction's first
                batch (KIP-890).
            transaction_version: the feature level that a marker is written under.
            require_leader: raises a KafkaError if the partition has got another leader than that of
                `leader_epoch`, with which it is called when others may have run meanwhile.

        Raises:
            KafkaError: as the classes of `model.kafka_errors` say; nothing was written. A
                `StorageError` says that the disk is full, or that the directory is now offline.
        """
        checked: ValidationResult | None = None
        if origin is AppendOrigin.CLIENT and is_pausing():
            # Without the lock: a batch may expand to 128 MiB, and readers continue in the meantime.
            with background():
                analyzed = self._analyzed(records, origin)
                if analyzed:
                    checked = self._validated(analyzed, origin, leader_epoch, first_offset=0)
            require_leader(leader_epoch)
        else:
            analyzed = self._analyzed(records, origin)
        with self.lock, self._append_guard:
            self.require_open()
            if not analyzed:
                return AppendResult.of_nothing(self.log_start_offset)
            end = self.end.offset
            require_offsets_left(self.topic_partition, end)
            if checked is None:
                result = self._validated(analyzed, origin, leader_epoch, first_offset=end)
            else:
                result = validator.placed(checked, end)
            try:
                return self._append(
                    result.batches,
                    origin=origin,
                    max_timestamp=result.max_timestamp,
                    log_append_time_ms=result.log_append_time_ms,
                    records_converted=result.record_stats.records_converted,
                    guard=verification_guard,
                    transaction_version=transaction_version,
                )
            except NoSpaceError:
                if origin is AppendOrigin.CLIENT:
                    now_ms = self.context.clock.now_ms()
                    self.producer_state.note_refused(analyzed[0].header, now_ms)
                raise

    def _analyzed(self, records: Buffer, origin: AppendOrigin) -> list[AnalyzedBatch]:
        return validator.analyze(
            records,
            origin=origin,
            max_message_bytes=self.config.max_message_bytes,
            topic_partition=self.topic_partition,
            metrics=self.context.metrics,
        )

    def _validated(
        self,
        analyzed: Sequence[AnalyzedBatch],
        origin: AppendOrigin,
        leader_epoch: int,
        first_offset: int,
    ) -> ValidationResult:
        return validator.validate_and_assign(
            analyzed,
            first_offset=first_offset,
            topic_partition=self.topic_partition,
            config=self.config,
            origin=origin,
            leader_epoch=leader_epoch,
            now_ms=self.context.clock.now_ms(),
            metrics=self.context.metrics,
        )

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int | None = None
    ) -> AppendResult:
        """Writes a leader's batches as they are.

        Args:
            records: whole batches with the leader's offsets; a partial one at the end is left out.
            leader_epoch: the follower's; the first batch of a higher epoch and what is behind it
                are left out. None takes all.

        Raises:
            OffsetsOutOfOrderError: offsets within `records` do not ascend.
            UnexpectedAppendOffsetError: they begin before the log's end.
            KafkaError: a batch is corrupt, or the disk refuses.
        """
        analyzed = validator.analyze(
            records,
            origin=AppendOrigin.REPLICATION,
            max_message_bytes=None,
            topic_partition=self.topic_partition,
            metrics=self.context.metrics,
            leader_epoch=leader_epoch,
        )
        with self.lock, self._append_guard:
            self.require_open()
            if not analyzed:
                return AppendResult.of_nothing(self.log_start_offset)
            batches = validator.as_they_are(analyzed)
            self._require_follower_offsets(batches)
            return self._append(
                batches,
                origin=AppendOrigin.REPLICATION,
                max_timestamp=max(batch.header.max_timestamp for batch in batches),
                log_append_time_ms=-1,
            )

    def _require_follower_offsets(self, batches: Sequence[ValidatedBatch]) -> None:
        first, last = batches[0].header.base_offset, -1
        for batch in batches:
            require_offset_after(self.topic_partition, batch.header.last_offset)
            if batch.header.last_offset <= last:
                raise OffsetsOutOfOrderError(
                    f"Out of order offsets found in append to {self.topic_partition}: "
                    f"{[b.header.last_offset for b in batches]}"
                )
            last = batch.header.last_offset
        if first < self.log_end_offset:
            if batches[0].header.magic < MAGIC:
                # A compressed message goes by its last record, and may begin further down.
                first = LegacyBatch.parse(batches[0].parts[0]).base_offset
            if self.log_end_offset == self.log_start_offset and last >= self.log_end_offset:
                # Records were deleted inside this batch, and it is the first the follower gets.
                self.truncate_fully_and_start_at(first, log_start_offset=self.log_start_offset)
                return
            raise UnexpectedAppendOffsetError(
                f"Unexpected offset in append to {self.topic_partition}. First offset {first} is "
                f"less than the next offset {self.log_end_offset}. First 10 offsets in append: "
                f"{[b.header.base_offset for b in batches[:10]]}, last offset in append: {last}. "
                f"Log start offset = {self.log_start_offset}",
                first_offset=first,
                last_offset=last,
            )

    def _append(
        self,
        batches: Sequence[ValidatedBatch],
        *,
        origin: AppendOrigin,
        max_timestamp: int,
        log_append_time_ms: int,
        records_converted: int = 0,
        guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """The order of steps is Kafka's: epochs and a roll come before producers are checked."""
        first = batches[0].header.base_offset
        parts: list[Buffer] = []
        appended = []
        size = count = 0
        for validated in batches:
            header = validated.header
            parts += validated.parts
            batch_bytes, last = header.size_bytes, header.last_offset
            appended.append(AppendedBatch(batch_bytes, last, header.max_timestamp))
            size += batch_bytes
            count += header.records_count
        if size > self.config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"Message batch size is {size} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{self.config.segment_bytes}."
            )
        _note_epochs(self.leader_epochs, batches)
        self.leader_epochs.flush()
        self._flush_topic_id()
        # Where a message of magic 0 or 1 begins is not known: as far down as an index can reach.
        base = first if batches[0].header.magic == MAGIC else last - INT32_MAX
        self._maybe_roll(size, max_timestamp, base_offset=base, last_offset=last)
        producers = AppendProducers(self.producer_state, origin, guard, transaction_version)
        duplicate = producers.analyze(batches)
        if duplicate is not None:
            return AppendResult(
                first_offset=duplicate.first_offset,
                last_offset=duplicate.last_offset,
                max_timestamp=duplicate.timestamp,
                log_append_time_ms=duplicate.timestamp,
                log_start_offset=self.log_start_offset,
                record_count=0,
                size_bytes=0,
                is_duplicate=True,
            )
        active, end = self.segments.active, last + 1
        active.append(parts, appended, self.context.clock.now_ms())
        self.end = LogPosition(end, active.base_offset, active.size_bytes)
        if self.high_watermark_position.offset >= end:  # a follower that started again
            self.high_watermark_position = LogPosition(end)
        producers.commit(active)
        self.producer_state.update_map_end_offset(end)
        if producers.touched:
            self._refresh_first_unstable()
        if end - self.recovery_point >= self.config.flush_messages:
            self.flush_records()
        return AppendResult(
            first_offset=first,
            last_offset=last,
            max_timestamp=max_timestamp,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=self.log_start_offset,
            record_count=count,
            size_bytes=size,
            records_converted=records_converted,
        )

    # ---- roll and flush

    def _maybe_roll(
        self, size: int, max_timestamp: int, *, base_offset: int, last_offset: int
    ) -> None:
        if self.active.should_roll(
            append_bytes=size,
            max_timestamp=max_timestamp,
            max_offset=last_offset,
            now_ms=self.context.clock.now_ms(),
            config=self.config,
        ):
            self.roll(base_offset)

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Makes a new active segment at the log's end, or further on where the next batch begins.

        The old one gets its last index entry, and is flushed by a task due at once.

        Raises:
            StorageError: a file could not be made; the log is as it was.
        """
        with self.lock, self.guard("rolling"):
            self.require_open()
            base = max(expected_next_offset or 0, self.log_end_offset)
            old = self.active
            if base == old.base_offset and not old.size_bytes:
                _log.warning(
                    "Trying to roll a new log segment with start offset %s while it already "
                    "exists and is active with size 0.",
                    base,
                )
                # Over the old files, not beside them: a log without any segment starts at 0 again.
                segment = self._new_segment(base)
                self.context.resources.forget(old)
                self.segments = self.segments.without([old]).with_added(segment)
                self._set_end(self.log_end_offset)
                return segment
            if base <= old.base_offset or self.segments.contains(base):
                raise StorageError(
                    f"Trying to roll a new log segment for topic partition {self.topic_partition} "
                    f"with start offset {base} = max(provided offset = {expected_next_offset}, "
                    f"LEO = {self.log_end_offset}) lower than start offset of the active segment "
                    f"{old}"
                )
            if self.recovery_point >= base:
                # No recovery will look at it once another follows: its indexes must last as well.
                old.on_become_inactive()
                old.flush()
            segment = self._new_segment(base)
            try:
                self.producer_state.update_map_end_offset(base)
                self.producer_state.take_snapshot(sync=False)
                old.on_become_inactive()
            except (OSError, CordwoodError):
                # The log continues in its old segment: a second one must not lie inside it.
                segment.delete_if_exists()
                raise
            self.segments = self.segments.with_added(segment)
            self._set_end(self.log_end_offset)
            if self.high_watermark >= self.log_end_offset:
                self.high_watermark_position = LogPosition(self.log_end_offset)
            self.context.scheduler.schedule_once("flush-log", lambda: self._flush_rolled(old, base))
            return segment

    def _flush_rolled(self, old: LogSegment, base: int) -> None:
        if self.is_closed:
            return
        with self.guard("flushing"):
            self._by_name(lambda: self.producer_state.snapshots.sync(base))
            self.flush_up_to(base)
            # Its records may have been flushed before the roll, but not its last index entries.
            self._by_name(lambda: self._sync([old], base))

    def _new_segment(self, base_offset: int) -> LogSegment:
        """The files of an empty segment; it is not in the log yet."""
        return LogSegment.create(
            self.directory,
            base_offset,
            config=self.config,
            resources=self.context.resources,
            now_ms=self.context.clock.now_ms(),
            roll_jitter_ms=self.context.draw_jitter_ms(self.config),
        )

    def flush(self, *, force_active: bool = True) -> None:
        """Makes everything up to the log's end last.

        Args:
            force_active: sync the active segment even if it is empty, as a clean stop does.
        """
        self.flush_up_to(self.log_end_offset, including_offset=force_active)

    def flush_records(self) -> None:
        """Flushes for flush.messages; records last even if an index does not fit the disk."""
        try:
            self.flush(force_active=False)
        except StorageError as error:
            if not error.is_out_of_space:
                raise
            _log.warning("%s; the recovery point stays at %s", error, self.recovery_point)

    def flush_up_to(self, offset: int, *, including_offset: bool = False) -> None:
        """Makes records below `offset` last, and raises the recovery point to it.

        Raises:
            StorageError: a sync failed, and the directory is offline; or there is no space for an
                index, and only the recovery point is not raised: the records last.
        """
        with self.guard("flushing"):
            with self.lock:
                self.require_open()
                known, end = self.recovery_point, offset + 1 if including_offset else offset
                truncation_count = self.truncation_count
            if end <= known:
                return
            dirty = self.segments.values(known, end)
            self._by_name(lambda: self._sync(dirty, known))
            with self.lock:
                # What was truncated and written again in the meantime has not been synced.
                if truncation_count == self.truncation_count:
                    self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
                self.last_flush_ms = self.context.clock.now_ms()

    def _by_name(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FileNotFoundError:
            # The directory is being renamed, or a segment is: no error once that is over.
            with self.lock:
                work()

    def _sync(self, segments: Sequence[LogSegment], known: int) -> None:
        dirty = [segment for segment in segments if self.segments.contains_this(segment)]
        begun_s = self.context.clock.monotonic_s()
        for segment in dirty:
            segment.flush_log()
        try:
            for segment in dirty:
                segment.indexes.flush()
        finally:
            if any(segment.base_offset >= known for segment in dirty):
                # A segment made since the last flush: its name has to last as well.
                self.context.fs.sync_directory(self.directory)
            self.context.flushes.note(len(dirty), self.context.clock.monotonic_s() - begun_s)

    # ---- segments that go, and come

    # Each swaps the tuple of segments at once: a reader sees the segments before or after, never a
    # mixture.

    def delete_segments(self, count: int, *, reason: str, lines: Sequence[str] = ()) -> int:
        """Removes the `count` oldest segments; how many went.

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
        with self.lock, self.guard("deleting segments of"):
            self.require_open()
            doomed = list(self.segments)[:count]
            if not doomed:
                return 0
            if len(doomed) == len(self.segments):
                if not self.active.size_bytes and self.active.base_offset == self.log_end_offset:
                    _log.info(
                        "Empty active segment at %s was deleted and recreated due to %s",
                        self.log_end_offset,
                        reason,
                    )
                try:
                    self.roll()
                except StorageError as error:
                    if len(doomed) == 1 or not error.is_out_of_space:
                        raise
                    # The others free space for a new segment; the next pass takes the active one.
                    count -= 1
                    doomed.pop()
                doomed = [
                    s for s in doomed if s is not self.active and self.segments.contains_this(s)
                ]
            rest = self.segments.without(doomed)
            note_segments(self, doomed, rest=rest)
            self.maybe_increment_log_start_offset(rest.first.base_offset, SEGMENT_DELETION)
            self.segments = rest
            for line in lines or [f"Deleting segment {s} due to {reason}." for s in doomed]:
                _log.info("%s", line)
            names = self._mark_deleted(doomed, snapshots=[s.base_offset for s in doomed])
            self._remove_later(doomed, names)
            return count

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log off: what is at or above `offset` goes, a batch that holds it wholly.

        Returns:
            Whether the log reached that far.

        Raises:
            ValueError: `offset` is negative.
            StorageError: the disk refused.
        """
        if offset < 0:
            raise ValueError(
                f"Cannot truncate partition {self.topic_partition} to a negative offset ({offset})."
            )
        with self.lock, self.guard(f"truncating to {offset}"):
            self.require_open()
            if offset >= self.log_end_offset:
                _log.info(
                    "Truncating to %s has no effect as the largest offset in the log is %s",
                    offset,
                    self.log_end_offset - 1,
                )
                # A leader that got no record has left its epoch at the log's end.
                self._change_epochs(
                    lambda: self.leader_epochs.truncate_from_end(self.log_end_offset)
                )
                return False
            _log.info("Truncating to offset %s", offset)
            if offset < self.high_watermark:
                _log.warning(
                    "Truncating %s to offset %s below high watermark %s",
                    self.topic_partition,
                    offset,
                    self.high_watermark,
                )
            if self.segments.first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            doomed = [s for s in self.segments if s.base_offset > offset]
            self.deleted_files.settle(doomed, self.directory)
            # What a crash in the middle leaves must never look flushed.
            self.truncation_count += 1
            self.recovery_point = min(self.recovery_point, offset)
            before = self.log_end_offset
            self.segments = self.segments.without(doomed)
            self.end = LogPosition(offset)  # readers find it in the segments that are left
            # The newest first: a crash must not leave a gap in the middle of the log.
            doomed.reverse()
            with _no_way_back(self.directory):
                self._remove_later(doomed, self._mark_deleted(doomed))
            if doomed:
                # They must not come back behind a segment that has been cut off.
                self.context.fs.sync_directory(self.directory)
            self.active.truncate_to(offset, now_ms=self.context.clock.now_ms())
            self._set_end(offset)
            _audit_truncated(self, offset, before)
            self._change_epochs(lambda: self.leader_epochs.truncate_from_end(offset))
            self.log_start_offset = min(offset, self.log_start_offset)
            self._rebuild_producers()
            if self.high_watermark > offset:
                self.set_high_watermark(LogPosition(offset))
            return True

    def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None
    ) -> None:
        """Empties the log; the next record gets `offset`.

        Args:
            offset: the new log end.
            log_start_offset: the new log start where it is another one.

        Raises:
            StorageError: the disk refused.
        """
        with self.lock, self.guard(f"truncating fully to {offset}"):
            self.require_open()
            _log.info(
                "Truncate and start at offset %s, logStartOffset: %s", offset, log_start_offset
            )
            old = list(self.segments)[::-1]
            self.deleted_files.settle(old, self.directory)
            self.truncation_count += 1
            self.recovery_point = min(self.recovery_point, offset)
            try:
                names = self._mark_deleted(old)
                segment = self._new_segment(offset)
            except (OSError, CordwoodError):
                for each in old:
                    each.change_suffix(DELETED_SUFFIX, "")
                raise
            before = self.log_end_offset
            self.segments = SegmentList([segment])
            self._remove_later(old, names)
            self._set_end(offset)
            _audit_truncated(self, offset, before)
            self._change_epochs(self.leader_epochs.clear_and_flush)
            self.producer_state.truncate_fully_and_start_at(offset)
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self.set_high_watermark(LogPosition(max(offset, self.log_start_offset)))

    def _rebuild_producers(self) -> None:
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            now_ms=self.context.clock.now_ms(),
            reload_from_clean_shutdown=False,
        )
        self._refresh_first_unstable()

    def replace_segments(
        self,
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
        with self.lock, self.guard("replacing segments of"):
            self.require_open()
            # Retention may have taken the oldest: what is gone is not marked twice.
            old = [s for s in map(self.segments.get, sources) if s is not None]
            if not old or old[-1].base_offset >= self.active.base_offset:
                raise StorageError(
                    f"the segments {list(sources)} of {self.topic_partition} are not there to be "
                    "replaced any more: the log was truncated or deleted since the clean began"
                )
            note_replaced(self, old, trashed)
            try:
                files = swap_in(staged, fs=self.context.fs)
            except NoSpaceError:
                undo_swap_in(staged, fs=self.context.fs)
                raise
            bases = [each.base_offset for each in staged]
            unreplaced = [s.base_offset for s in old if s.base_offset not in bases]
            with _no_way_back(self.directory):
                names = self._mark_deleted(old, snapshots=unreplaced)
                finish_swap(self.directory, files, fs=self.context.fs)
            new = [_open_segment(self, base) for base in bases]
            self.segments = self.segments.without(old).with_added(*new)
            self._remove_later(old, names)
            self._forget_high_watermark_position()
            return new

    def _mark_deleted(
        self, segments: Sequence[LogSegment], *, snapshots: Sequence[int] = ()
    ) -> list[str]:
        """Renames the files of segments to `.deleted`; the names, for `_remove_later`.

        A file that a crash leaves `.deleted` is removed when the log is next opened.

        Args:
            segments: they are in the log's list no more, or leave it in this very step; those that
                are already marked are skipped.
            snapshots: offsets of producer snapshots that go with them.

        Raises:
            OSError: a file could not be renamed.

        Source: LocalLog.deleteSegmentFiles, UnifiedLog.deleteProducerSnapshotAsync.
        """
        names: dict[str, None] = {}
        for segment in segments:
            names |= dict.fromkeys(self.deleted_files.keep(segment.base_offset))
            paths = segment.change_suffix("", DELETED_SUFFIX)
            names |= dict.fromkeys(path.name for path in paths)
            self.context.resources.forget(segment)  # who still reads it holds its file
        for offset in snapshots:
            path = self.producer_state.snapshots.mark_for_deletion(offset)
            if path is not None:
                names[path.name] = None
        return list(names)

    def _remove_later(self, segments: Sequence[LogSegment], names: Sequence[str]) -> None:
        """Removes what `_mark_deleted` renamed, after file.delete.delay.ms.

        The delay lets readers of other processes finish; readers of this one hold the files open
        anyway. With a delay of 0 another thread removes them at once, so the segments must have
        left the log's list: a reader that misses a file of a segment in the list takes the disk
        for failed.
        """
        if names:
            self._has_unsynced_names = True
            self.deleted_files.remove_later(self, segments, names)

    # ---- its life

    def update_config(self, config: LogConfig) -> LogConfig:
        """Applies other settings; returns the previous ones."""
        with self.lock:
            old, self.config = self.config, config
            return old

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Sets the topic id; it is written to `partition.metadata` before the first record.

        Raises:
            InconsistentTopicIdError: it has another one.

        Source: UnifiedLog.assignTopicId.
        """
        with self.lock:
            if self.topic_id is None:
                self.topic_id = topic_id
                self._topic_id_pending = topic_id
                self._flush_small_files_soon()
            elif self.topic_id != topic_id:
                raise InconsistentTopicIdError(
                    f"Tried to assign topic ID {uuid_text(topic_id)} to log for topic partition "
                    f"{self.topic_partition}, but log already contained topic ID "
                    f"{uuid_text(self.topic_id)}"
                )

    def assign_epoch(self, leader_epoch: int, start_offset: int | None = None) -> None:
        """Records the epoch that a new leader begins, by default at the log's end.

        It is in the file before the first record is appended with it, and soon.
        """
        with self.lock, self.guard("writing the leader epochs of"):
            start = self.log_end_offset if start_offset is None else start_offset
            if self.leader_epochs.assign(leader_epoch, start, durably=False):
                self._flush_small_files_soon()

    def maybe_start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, bumps_epoch: bool = True
    ) -> object | None:
        """The guard that a transaction's first batch has to bring; None when one is under way.

        Raises:
            InvalidProducerEpochError: the epoch is older than the one known.

        Source: KIP-890.
        """
        with self.lock:
            return self.producer_state.verifications.maybe_start(
                producer_id,
                sequence,
                producer_epoch,
                now_ms=self.context.clock.now_ms(),
                supports_epoch_bump=bumps_epoch,
            )

    def remove_expired_producers(self) -> None:
        """Forgets producers that have been silent for producer.id.expiration.ms."""
        with self.lock:
            self.producer_state.remove_expired(self.context.clock.now_ms())

    def rename_directory(self, directory: Path, *, sync_name: bool = True) -> None:
        """Renames the log's directory; open files and readers are not affected.

        Works on a full disk: a topic that is deleted must not need the space that it frees.

        Args:
            directory: the new name.
            sync_name: have the name on disk when this returns; else the caller syncs the parent.
        """
        with self.lock, self.guard("renaming the directory of"):
            with suppress(NoSpaceError):  # it stays pending, and is written later
                self._flush_topic_id()
            self.context.fs.rename(self.directory, directory)
            if sync_name:
                self.context.fs.sync_directory(directory.parent)
            if directory.parent != self.directory.parent:
                self.context.fs.sync_directory(self.directory.parent)
            self.directory = directory
            for segment in self.segments:
                segment.move_to(directory)
            self.leader_epochs.move_to(directory)
            self.producer_state.snapshots.move_to(directory)

    def close(self) -> None:
        """Writes what a clean stop leaves: a producer snapshot, the last index entries, all synced.

        Raises:
            StorageError: the directory is offline, or has just failed.
        """
        with self.lock, self.guard("closing"):
            if self.is_closed:
                return
            self._flush_topic_id()
            self.leader_epochs.flush()
            self.producer_state.take_snapshot()
            for segment in self.segments:
                segment.close()
            self.flush(force_active=True)
            self.sync_names()
            for segment in self.segments:
                self.context.resources.forget(segment)  # the flush has opened it again
            self.is_closed = True

    def close_handlers(self) -> None:
        """Releases files without a write, for a directory that has failed."""
        with self.lock:
            self.is_closed = True
            for segment in self.segments:
                segment.close_handlers()

    def delete(self) -> None:
        """Removes the log's directory and all in it.

        Raises:
            StorageError: the directory is offline, or has just failed.
        """
        with self.lock, self.guard("deleting"):
            self.close_handlers()
            self.context.fs.remove_tree(self.directory)
            self.context.fs.sync_directory(self.directory.parent)

    # ---- what the parts above share

    def _flush_small_files_soon(self, *, delay_ms: int = 0) -> None:
        """Schedules the write of topic id and leader epochs, unless a record comes first."""
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
                self._postpone_flush(error)
            else:
                self._is_flush_postponed = False

    def _flush_topic_id(self) -> None:
        if self._topic_id_pending is not None:
            data = build_partition_metadata(self._topic_id_pending)
            self.context.fs.replace_durably(self.directory / PARTITION_METADATA, data)
            self._topic_id_pending = None

    def _change_epochs(self, change: Callable[[], None]) -> None:
        """Removes leader epochs; on a full disk their file is written later.

        Retention, DeleteRecords and truncation must not need the space that they are to free.
        """
        try:
            change()
        except NoSpaceError as error:
            self._postpone_flush(error)

    def _postpone_flush(self, error: CordwoodError) -> None:
        if not self._is_flush_postponed:  # a full disk is reported once, however long it lasts
            self._is_flush_postponed = True
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

    def _set_end(self, offset: int) -> None:
        """Sets the log end offset to the end of the active segment."""
        if self.gap_offset is not None and offset <= self.gap_offset:
            self.gap_offset = None
        self.end = LogPosition(offset, self.active.base_offset, self.active.size_bytes)

    def set_high_watermark(self, position: LogPosition) -> None:
        """Sets the high watermark to the given value."""
        self.high_watermark_position = position
        self.producer_state.on_high_watermark_updated(position.offset)
        self._refresh_first_unstable()

    def _forget_high_watermark_position(self) -> None:
        """Looks up the high watermark's position again: its segment was replaced."""
        self.high_watermark_position = LogPosition(self.high_watermark)


def _audit_truncated(log: PartitionLog, offset: int, end_before: int) -> None:
    audit(
        LogTruncated(
            partition=log.topic_partition,
            log_dir=str(log.log_dir),
            offset=offset,
            log_end_offset_before=end_before,
        )
    )
