"""One partition's log: append, roll, its life.

`log.offsets` are the offsets that bound it, `log.reader` reads, `log.flusher` flushes. Functions of
`truncation` cut off its end, those of `segment_removal` remove and replace other segments. Segments
ascend by base offset; there is at least one, the last is active.

One lock serialises whatever changes the log. `log.reader` takes none: neither an append nor a clean
nor a delete makes it wait.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import MAGIC
from cordwood.format.legacy import LegacyBatch
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import (
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from cordwood.model.pauses import background, is_pausing
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.append import validator
from cordwood.storage.append.validator import AnalyzedBatch, ValidatedBatch, ValidationResult
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.damage import require_ascending, require_offsets_left
from cordwood.storage.log.deleted_files import DeletedFiles
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_flusher import LogFlusher
from cordwood.storage.log.log_offsets import LogOffsets, LogPosition
from cordwood.storage.log.log_reader import LogReader
from cordwood.storage.log.metadata_files import MetadataFiles
from cordwood.storage.log.truncation import truncate_fully_and_start_at
from cordwood.storage.producers.append_producers import AppendProducers
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_indexes import AppendedBatch
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

CLIENT_DELETION = "client delete records request"
LEADER_OFFSET_INCREMENT = "leader offset increment"


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
        active = segments.active
        self.offsets = LogOffsets(
            log_start=log_start_offset,
            recovery_point=recovery_point,
            end=LogPosition(log_end_offset, active.base_offset, active.size_bytes),
            producers=producer_state,
        )
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.topic_id = topic_id
        self.lock = threading.RLock()
        self.is_closed = False
        #: What was replaced or deleted, and waits for file.delete.delay.ms.
        self.deleted_files = DeletedFiles(context, producer_state.snapshots)
        #: Reads records and timestamps, without the lock.
        self.reader = LogReader(self)
        self.flusher = LogFlusher(self)
        self.metadata_files = MetadataFiles(self)

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
            self.offsets.check_invariants()
            end = self.log_end_offset
            assert self.active.base_offset <= end, f"{self!r}: active {self.active}"
            first = self.segments.first
            assert first.base_offset <= self.log_start_offset, f"{self!r}: first {first}"
            assert self.producer_state.map_end_offset <= end, f"{self!r}: producers know more"
            self.segments.check_invariants()
            self.producer_state.check_invariants()
            self.leader_epochs.check_invariants()

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
    def log_start_offset(self) -> int:
        """The first offset that is served."""
        return self.offsets.log_start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.offsets.end.offset

    @property
    def high_watermark(self) -> int:
        """Records below it are on all in-sync replicas; exclusive."""
        return self.offsets.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Records below it belong to no open transaction; exclusive, at most the high watermark."""
        return self.offsets.last_stable

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
            return self.offsets.update_high_watermark(offset)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Raises the high watermark, never lowers it; the old one, or None if nothing changed.

        Raises:
            ValueError: `offset` is beyond the log's end.
        """
        with self.lock:
            old, end = self.high_watermark, self.log_end_offset
            if offset > end:
                raise ValueError(
                    f"High watermark {offset} update exceeds current log end offset {end}"
                )
            if offset <= old:
                return None
            self.update_high_watermark(offset)
            return old

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
            self.offsets.log_start = offset
            _log.info("Incremented log start offset to %s due to %s", offset, reason)
            self.metadata_files.change_epochs(
                lambda: self.leader_epochs.truncate_from_start(offset)
            )
            self.producer_state.on_log_start_offset_incremented(offset)
            self.offsets.refresh_first_unstable()
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
            end = self.log_end_offset
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
        first, last = batches[0].header.base_offset, batches[-1].header.last_offset
        require_ascending(self.topic_partition, [b.header.last_offset for b in batches])
        if first < self.log_end_offset:
            if batches[0].header.magic < MAGIC:
                # A compressed message goes by its last record, and may begin further down.
                first = LegacyBatch.parse(batches[0].parts[0]).base_offset
            if self.log_end_offset == self.log_start_offset and last >= self.log_end_offset:
                # Records were deleted inside this batch, and it is the first the follower gets.
                truncate_fully_and_start_at(self, first, log_start_offset=self.log_start_offset)
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
        headers = [batch.header for batch in batches]
        first, last = headers[0].base_offset, headers[-1].last_offset
        size = sum([header.size_bytes for header in headers])
        if size > self.config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"Message batch size is {size} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{self.config.segment_bytes}."
            )
        _note_epochs(self.leader_epochs, batches)
        self.metadata_files.flush()
        # Where a message of magic 0 or 1 begins is not known: as far down as an index can reach.
        base = first if batches[0].header.magic == MAGIC else last - INT32_MAX
        self._maybe_roll(size, max_timestamp, base_offset=base, last_offset=last)
        producers = AppendProducers(self.producer_state, origin, guard, transaction_version)
        duplicate = producers.analyze(batches)
        if duplicate is not None:
            return AppendResult.of_duplicate(duplicate, self.log_start_offset)
        active, end = self.segments.active, last + 1
        active.append(
            [part for batch in batches for part in batch.parts],
            [AppendedBatch(h.size_bytes, h.last_offset, h.max_timestamp) for h in headers],
            self.context.clock.now_ms(),
        )
        offsets = self.offsets
        offsets.end = LogPosition(end, active.base_offset, active.size_bytes)
        if offsets.high_watermark.offset >= end:  # a follower that started again
            offsets.high_watermark = LogPosition(end)
        producers.commit(active)
        self.producer_state.update_map_end_offset(end)
        if producers.touched:
            offsets.refresh_first_unstable()
        if end - offsets.recovery_point >= self.config.flush_messages:
            self.flusher.flush_records()
        return AppendResult(
            first_offset=first,
            last_offset=last,
            max_timestamp=max_timestamp,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=self.log_start_offset,
            record_count=sum([header.records_count for header in headers]),
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
                segment = self.context.create_segment(self.directory, base, self.config)
                self.context.resources.forget(old)
                self.segments = self.segments.without([old]).with_added(segment)
                self.offsets.set_end(self.log_end_offset, segment)
                return segment
            if base <= old.base_offset or self.segments.contains(base):
                raise StorageError(
                    f"Trying to roll a new log segment for topic partition {self.topic_partition} "
                    f"with start offset {base} = max(provided offset = {expected_next_offset}, "
                    f"LEO = {self.log_end_offset}) lower than start offset of the active segment "
                    f"{old}"
                )
            if self.offsets.recovery_point >= base:
                # No recovery will look at it once another follows: its indexes must last as well.
                old.on_become_inactive()
                old.flush()
            segment = self.context.create_segment(self.directory, base, self.config)
            try:
                self.producer_state.update_map_end_offset(base)
                self.producer_state.take_snapshot(sync=False)
                old.on_become_inactive()
            except (OSError, CordwoodError):
                # The log continues in its old segment: a second one must not lie inside it.
                segment.delete_if_exists()
                raise
            self.segments = self.segments.with_added(segment)
            self.offsets.set_end(self.log_end_offset, segment)
            if self.high_watermark >= self.log_end_offset:
                self.offsets.high_watermark = LogPosition(self.log_end_offset)
            snapshots = self.producer_state.snapshots
            self.context.scheduler.schedule_once(
                "flush-log", lambda: self.flusher.flush_rolled(old, base, snapshots)
            )
            return segment

    def flush(self, *, force_active: bool = True) -> None:
        """Makes everything up to the log's end last.

        Args:
            force_active: sync the active segment even if it is empty, as a clean stop does.
        """
        self.flusher.flush_up_to(self.log_end_offset, including_offset=force_active)

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
                self.metadata_files.write_topic_id(topic_id)
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
                self.metadata_files.flush_soon()

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
                self.metadata_files.flush_topic_id()
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
            self.metadata_files.flush()
            self.producer_state.take_snapshot()
            for segment in self.segments:
                segment.close()
            self.flush(force_active=True)
            self.flusher.sync_names()
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

    def guard(self, doing: str) -> AbstractContextManager[None]:
        """Turns files' errors into `StorageError`s, and takes the directory offline."""
        return self.context.failures.guard(self.log_dir, doing, self.topic_partition)

    def require_open(self) -> None:
        """Refuses work on a closed log.

        Raises:
            StorageError: it is closed.
        """
        if self.is_closed:
            raise StorageError(f"The log for {self.topic_partition} is already closed")
