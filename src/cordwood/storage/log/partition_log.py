"""One partition's log: append, roll, flush, truncate, and the offsets that bound it.

Invariant: log start offset <= last stable offset <= high watermark <= log end offset, and recovery
point <= log end offset. Segments ascend by base offset; there is at least one, the last is active.

One lock serialises whatever changes the log. Readers take none: they see the tuple of segments and
the offsets as they are at one moment, and hold open the files they read, so that neither an append
nor a clean nor a delete makes them wait.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import MAGIC
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import (
    InconsistentTopicIdError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from cordwood.model.pauses import background, is_pausing
from cordwood.storage.append import validator
from cordwood.storage.append.validator import AnalyzedBatch, ValidatedBatch, ValidationResult
from cordwood.storage.log import log_changes, log_reader
from cordwood.storage.log.append_result import AppendResult, LogPosition
from cordwood.storage.log.log_reader import Fetched, Isolation, ListedOffset
from cordwood.storage.log.log_state import LogState
from cordwood.storage.producers.append_producers import AppendProducers
from cordwood.storage.replace import StagedSegment
from cordwood.storage.segment.log_segment import AppendedBatch, LogSegment
from cordwood.storage.segment.segment_index import INT32_MAX

_log = logging.getLogger(__name__)


class PartitionLog(LogState):
    """A partition's log; `storage.log_loader.load_log` opens one."""

    # ---- append

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: object | None = None,
        transaction_version: int = 0,
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

        Raises:
            KafkaError: as the classes of `model.kafka_errors` say; nothing was written. A
                `StorageError` says that the disk is full, or that the directory is now offline.
        """
        is_sliced = origin is AppendOrigin.CLIENT and is_pausing()
        checked: ValidationResult | None = None
        with background() if is_sliced else nullcontext():
            analyzed = validator.analyze(
                records,
                origin=origin,
                max_message_bytes=self.config.max_message_bytes,
                topic_partition=self.topic_partition,
                metrics=self.context.metrics,
            )
            if is_sliced and analyzed:
                # Without the lock: a batch may expand to 128 MiB, and readers go on meanwhile.
                checked = self._validated(analyzed, origin, leader_epoch, first_offset=0)
        with self.lock, self.guard("appending records to"):
            self.require_open()
            if not analyzed:
                return self._nothing()
            end = self.log_end_offset
            if checked is None:
                result = self._validated(analyzed, origin, leader_epoch, first_offset=end)
            else:
                result = validator.placed(checked, end)
            return self._append(
                result.batches,
                origin=origin,
                max_timestamp=result.max_timestamp,
                log_append_time_ms=result.log_append_time_ms,
                records_converted=result.record_stats.records_converted,
                guard=verification_guard,
                transaction_version=transaction_version,
            )

    def _validated(
        self,
        analyzed: Sequence[AnalyzedBatch],
        origin: AppendOrigin,
        leader_epoch: int,
        *,
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
        with self.lock, self.guard("appending records to"):
            self.require_open()
            if not analyzed:
                return self._nothing()
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
        last = batches[-1].header.last_offset
        size = sum([batch.header.size_bytes for batch in batches])
        if size > self.config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"Message batch size is {size} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{self.config.segment_bytes}."
            )
        self._note_epochs(batches)
        self.leader_epochs.flush()
        self._flush_topic_id()
        # Where a message of magic 0 or 1 begins is not known: as far down as an index can reach.
        base = first if batches[0].header.magic == MAGIC else last - INT32_MAX
        self._maybe_roll(size, max_timestamp, base_offset=base, last_offset=last)
        producers = AppendProducers(self, origin, guard, transaction_version)
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
        parts: list[Buffer] = []
        appended = []
        count = 0
        for validated in batches:
            header = validated.header
            parts += validated.parts
            appended.append(
                AppendedBatch(header.size_bytes, header.last_offset, header.max_timestamp)
            )
            count += header.records_count
        self.active.append(parts, appended)
        self.set_end(last + 1)
        if self._high_watermark.offset >= self.log_end_offset:  # a follower that began anew
            self._high_watermark = LogPosition(self.log_end_offset)
        producers.commit()
        self.producer_state.update_map_end_offset(self.log_end_offset)
        if producers.touched:
            self.refresh_first_unstable()
        if self.unflushed_messages >= self.config.flush_messages:
            self._flush_appended()
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

    def _note_epochs(self, batches: Sequence[ValidatedBatch]) -> None:
        for batch in batches:
            header = batch.header
            epoch = header.partition_leader_epoch
            if epoch >= 0 and epoch != self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(epoch, header.base_offset)
            elif header.magic < MAGIC and self.leader_epochs.non_empty:
                # Epochs that do not cover all of the log would mislead the next truncation.
                _log.warning(
                    "Clearing leader epoch cache after unexpected append with message format v%s",
                    header.magic,
                )
                self.leader_epochs.clear_and_flush()

    def _nothing(self) -> AppendResult:
        return AppendResult(
            first_offset=-1,
            last_offset=-1,
            max_timestamp=-1,
            log_append_time_ms=-1,
            log_start_offset=self.log_start_offset,
            record_count=0,
            size_bytes=0,
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
                # Over the old files, not beside them: a log without any segment begins anew at 0.
                segment = self.new_segment(base)
                self.context.resources.forget(old)
                self.segments = self.segments.without([old]).with_added(segment)
                self.set_end(self.log_end_offset)
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
            segment = self.new_segment(base)
            try:
                self.producer_state.update_map_end_offset(base)
                self.producer_state.take_snapshot(sync=False)
                old.on_become_inactive()
            except (OSError, CordwoodError):
                # The log goes on in its old segment: a second one must not lie inside it.
                segment.delete_if_exists()
                raise
            self.segments = self.segments.with_added(segment)
            self.set_end(self.log_end_offset)
            if self.high_watermark >= self.log_end_offset:
                self._high_watermark = LogPosition(self.log_end_offset)
            self.context.scheduler.schedule_once("flush-log", lambda: self._flush_rolled(old, base))
            return segment

    def _flush_rolled(self, old: LogSegment, base: int) -> None:
        if self.is_closed:
            return
        with self.guard("flushing"):
            self._by_name(lambda: self.producer_state.sync_snapshot(base))
            self.flush_up_to(base)
            # Its records may have been flushed before the roll, but not its last index entries.
            self._by_name(lambda: self._sync([old], base))

    def new_segment(self, base_offset: int) -> LogSegment:
        """The files of an empty segment; it is not in the log yet."""
        return LogSegment.create(
            self.directory,
            base_offset,
            config=self.config,
            resources=self.context.resources,
            now_ms=self.context.clock.now_ms(),
            roll_jitter_ms=self.draw_jitter(),
        )

    def draw_jitter(self) -> int:
        """How much earlier than segment.ms a new segment rolls, in ms.

        Source: LogConfig.randomSegmentJitter.
        """
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self.context.chance.below(jitter) if jitter > 0 else 0

    def flush(self, *, force_active: bool = True) -> None:
        """Makes everything up to the log's end last.

        Args:
            force_active: sync the active segment even if it is empty, as a clean stop does.
        """
        self.flush_up_to(self.log_end_offset, including_offset=force_active)

    def _flush_appended(self) -> None:
        """Flushes for flush.messages; records last even where an index finds no room."""
        try:
            self.flush(force_active=False)
        except StorageError as error:
            if not error.is_out_of_space:
                raise
            _log.warning("%s; the recovery point stays at %s", error, self.recovery_point)

    def flush_up_to(self, offset: int, *, including_offset: bool = False) -> None:
        """Makes records below `offset` last, and raises the recovery point to it.

        Raises:
            StorageError: a sync failed, and the directory is offline; or an index found no room,
                and only the recovery point is not raised: the records last.
        """
        with self.guard("flushing"):
            with self.lock:
                self.require_open()
                known, end = self.recovery_point, offset + 1 if including_offset else offset
                generation = self.generation
            if end <= known:
                return
            dirty = self.segments.values(known, end)
            self._by_name(lambda: self._sync(dirty, known))
            with self.lock:
                # What was cut off meanwhile, and written anew, has not been synced.
                if generation == self.generation:
                    self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
                self.last_flush_ms = self.context.clock.now_ms()

    def _by_name(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FileNotFoundError:
            # The directory is being renamed, or a segment retired: no error once that is over.
            with self.lock:
                work()

    def _sync(self, segments: Sequence[LogSegment], known: int) -> None:
        dirty = [segment for segment in segments if self.segments.contains_this(segment)]
        begun_s = self.context.clock.monotonic_s()
        for segment in dirty:
            segment.flush_log()
        try:
            for segment in dirty:
                segment.flush_indexes()
        finally:
            if any(segment.base_offset >= known for segment in dirty):
                # A segment made since the last flush: its name has to last as well.
                self.context.fs.sync_directory(self.directory)
            self.context.flushes.note(len(dirty), self.context.clock.monotonic_s() - begun_s)

    # ---- read

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one: bool = True,
    ) -> Fetched:
        """Where in a file the batches from `start_offset` on lie; see `log_reader.read`."""
        return log_reader.read(self, start_offset, max_bytes, isolation=isolation, min_one=min_one)

    def list_offset(
        self, timestamp: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> ListedOffset | None:
        """What ListOffsets answers for a timestamp; see `log_reader.list_offset`."""
        return log_reader.list_offset(self, timestamp, isolation=isolation)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of OffsetForLeaderEpoch; (-1, -1) when undefined."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # ---- segments that go, and come

    def delete_segments(self, count: int, *, reason: str, lines: Sequence[str] = ()) -> int:
        """Removes the `count` oldest segments; see `log_changes.delete_segments`."""
        return log_changes.delete_segments(self, count, reason=reason, lines=lines)

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log off at `offset`; see `log_changes.truncate_to`."""
        return log_changes.truncate_to(self, offset)

    def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None
    ) -> None:
        """Empties the log; see `log_changes.truncate_fully_and_start_at`."""
        log_changes.truncate_fully_and_start_at(self, offset, log_start_offset=log_start_offset)

    def replace_segments(self, staged: StagedSegment, sources: Sequence[int]) -> LogSegment:
        """Puts a cleaned segment in place; see `log_changes.replace_segments`."""
        return log_changes.replace_segments(self, staged, sources)

    # ---- its life

    def update_config(self, config: LogConfig) -> LogConfig:
        """Puts other settings in force; those before."""
        with self.lock:
            old, self.config = self.config, config
            return old

    def assign_topic_id(self, topic_id: str) -> None:
        """Gives the log its topic's id; in `partition.metadata` before the first record, and soon.

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
                    f"Tried to assign topic ID {topic_id} to log for topic partition "
                    f"{self.topic_partition}, but log already contained topic ID {self.topic_id}"
                )

    def assign_epoch(self, leader_epoch: int, start_offset: int | None = None) -> None:
        """Records the epoch that a new leader begins, at the log's end unless told otherwise.

        It is in the file before the first record is appended with it, and soon.
        """
        with self.lock, self.guard("writing the leader epochs of"):
            start = self.log_end_offset if start_offset is None else start_offset
            if self.leader_epochs.assign(leader_epoch, start, durably=False):
                self._flush_small_files_soon()

    def maybe_start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int
    ) -> object | None:
        """The guard that a transaction's first batch has to bring; None when one is under way.

        Source: KIP-890.
        """
        with self.lock:
            return self.producer_state.maybe_start_verification(
                producer_id, sequence, producer_epoch, now_ms=self.context.clock.now_ms()
            )

    def remove_expired_producers(self) -> None:
        """Forgets producers that have been silent for producer.id.expiration.ms."""
        with self.lock:
            self.producer_state.remove_expired(self.context.clock.now_ms())

    def rename_directory(self, directory: Path, *, sync_name: bool = True) -> None:
        """Gives the log's directory another name; open files and readers are not disturbed.

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
            self.producer_state.move_to(directory)

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
        """Lets go of files and writes nothing: for a directory that has failed."""
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
