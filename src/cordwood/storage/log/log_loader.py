"""Opens a partition's log: finishes what a crash left half done, recovers, finds its offsets.

1. Temporary files: `.deleted` go; `.swap` files are a clean's result and win, unless a `.cleaned`
   file at or below them says that not all of them had been renamed.
2. Segments: an index without its log goes; a log without its offset index gets its indexes rebuilt.
3. After an unclean stop, segments from the recovery point on are walked: every batch's size and
   CRC. At the first bad byte the log is cut, and the segments behind it go. A whole batch with
   offsets that no append writes is an error, and leaves the files as they are.
4. Leader epochs are cut to the log's offsets, and the state of producers is brought up to its end
   from the newest good snapshot.

A second load of what a load left changes nothing.

`RecoveryPolicy.KEEP` is for a log that is opened to be cleaned while its broker is stopped. Nothing
is recovered then, which is left to the broker's own start: step 3 does not happen, the log ends
behind its last whole batch, and what Kafka would repair by cutting a segment is an error. With an
`OverlayFileSystem`, no file of the directory changes.

Source: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import enum
import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    DELETE_DIR_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    is_index_file,
    is_log_file,
    segment_file_name,
)
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.model.errors import CorruptError, ImpossibleOffsetError
from cordwood.model.kafka_errors import (
    InconsistentTopicIdError,
    InvalidOffsetError,
    InvalidRecordError,
    SegmentOffsetOverflowError,
)
from cordwood.model.offsets import OFFSET_MAX
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.log.epoch_recovery import open_epochs, with_first_epochs
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.unrecovered_log import end_of_unrecovered, index_whole
from cordwood.storage.producers.producer_rebuild import (
    rebuild_producer_state,
    take_snapshot_if_space,
)
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.replace import remove_leftovers
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList
from cordwood.storage.segment.segment_split import split_overflowed

_log = logging.getLogger(__name__)

_TRIES = 5
_ALL = 1 << 63
_LOST = (
    "Deleting all segments because logEndOffset (%s) is smaller than logStartOffset %s. This could "
    "happen if segment files were deleted from the file system."
)


class RecoveryPolicy(enum.Enum):
    """The policy of a load for a log that was not closed."""

    RECOVER = "segments above the recovery point are checked, and cut at the first bad batch"
    KEEP = "segments stay as they are"


@dataclass(slots=True, kw_only=True)
class LoadRequest:
    """The log to open, and its known state.

    `recovery_point` and `log_start_offset` are those of the checkpoints, 0 where these say nothing.
    With `sync_name` the name of a directory that is made is on disk afterwards; else the caller
    syncs its parent. `on_segment` is called with (number, of how many) before each segment that is
    recovered, `on_warning` for damage. With `is_in_use` a broker has the log open: a Kafka makes
    the index files of a segment at their first use (LazyIndex), so that those of segments above the
    recovery point may not be there yet. With `for_reading` a log without any producer snapshot is
    read for its producers although it was closed: it may be a copy of one that was not.
    """

    directory: Path
    topic_partition: TopicPartition
    config: LogConfig
    context: LogContext
    clean_shutdown: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    topic_id: UUID | None = None
    sync_name: bool = True
    policy: RecoveryPolicy = RecoveryPolicy.RECOVER
    is_in_use: bool = False
    for_reading: bool = False
    on_segment: Callable[[int, int], None] | None = None
    on_warning: Callable[[str], None] = _log.warning


def load_log(request: LoadRequest) -> PartitionLog:
    """Opens the log of a directory, which is made where there is none.

    Raises:
        StorageError: a file of the directory could not be read or written.
        CorruptError: a file's name is no offset, or a file of another kind cannot be read; with
            `RecoveryPolicy.KEEP` also what only a recovery would repair.
        ImpossibleOffsetError: a whole batch has offsets that no append writes; it is left as it is.
        InconsistentTopicIdError: the directory belongs to another topic of the same name.
    """
    context = request.context
    with context.failures.guard(
        request.directory.parent, f"loading the log {request.topic_partition}"
    ):
        return _Loader(request).load()


class _Loader:
    """One load."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._directory = request.directory
        self._context = request.context
        self._fs = request.context.fs
        self._keeps = request.policy is RecoveryPolicy.KEEP
        self._is_deleted_dir = request.directory.name.endswith(DELETE_DIR_SUFFIX)
        self._segments = SegmentList()
        if not self._keeps and not self._fs.exists(self._directory):
            self._fs.make_directory(self._directory)
            if request.sync_name:
                self._fs.sync_directory(self._directory.parent)
        self._epochs: LeaderEpochCache

    def load(self) -> PartitionLog:
        """Does the steps in order; again where a file has gone that was there a moment ago.

        That is so in a directory that is only inspected, while its owner runs.
        """
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return self._load()
        return self._load()

    def _load(self) -> PartitionLog:
        request = self._request
        names = remove_leftovers(self._directory, dispose=request.context.dispose, fs=self._fs)
        self._epochs = open_epochs(
            self._directory,
            names,
            fs=self._fs,
            is_repaired=not self._keeps,
            on_warning=request.on_warning,
        )
        self._gap_offset: int | None = None
        while True:
            try:
                self._load_segments(names)
                recovery_point, end = self._recover_log()
                break
            except SegmentOffsetOverflowError as overflow:
                if self._keeps:
                    raise
                _log.info("Caught segment overflow error: %s. Split segment and retry.", overflow)
                split_overflowed(
                    self._directory,
                    overflow.base_offset,
                    next_base_offset=self._base_after(overflow.base_offset),
                    fs=self._fs,
                )
                names = self._fs.names_in(self._directory)
        start = max(request.log_start_offset, self._segments.first.base_offset)
        if self._keeps:
            start = min(start, end)
        producers = self._producers_at(start, end)
        log = PartitionLog(
            topic_partition=request.topic_partition,
            directory=self._directory,
            config=request.config,
            context=self._context,
            segments=self._segments,
            log_start_offset=start,
            recovery_point=recovery_point,
            log_end_offset=end,
            producer_state=producers,
            leader_epochs=self._epochs,
            topic_id=None if self._keeps else self._topic_id(),
        )
        waiting = [name for name in names if name.endswith(DELETED_SUFFIX)]
        if waiting and self._context.trash is not None:  # which has not taken them yet
            log.deleted_files.remove_later(log, (), waiting)
        log.offsets.gap = self._gap_offset
        if request.topic_id is not None:
            log.assign_topic_id(request.topic_id)
        if not self._keeps and end - recovery_point >= request.config.flush_messages:
            # What was found without its sync is served from now on: a coordinator sends the
            # markers of a decision that it has read.
            log.flusher.flush_records()
        return log

    def _producers_at(self, start: int, end: int) -> ProducerStateManager:
        """The producers at the log's end, once the leader epochs are cut to start and end."""
        producers = self._producers()
        if self._is_deleted_dir:
            return producers
        # In this order, so that an epoch without records is forgotten at once.
        is_written = not self._keeps
        self._epochs.truncate_from_start(self._request.log_start_offset, durably=is_written)
        self._epochs.truncate_from_end(end, durably=is_written)
        if is_written:
            self._epochs = with_first_epochs(
                self._epochs, self._segments, start, resources=self._context.resources
            )
        producers.snapshots.remove_stray([s.base_offset for s in self._segments])
        rebuild_producer_state(
            producers,
            self._segments,
            log_start_offset=start,
            log_end_offset=end,
            now_ms=self._context.clock.now_ms(),
            reload_from_clean_shutdown=self._request.clean_shutdown
            and not self._request.for_reading,
            # A recovery would have cut the log at a damaged batch.
            is_strict=not self._keeps,
        )
        return producers

    def _producers(self) -> ProducerStateManager:
        return ProducerStateManager(
            self._request.topic_partition,
            self._directory,
            fs=self._fs,
            max_transaction_timeout_ms=self._context.max_transaction_timeout_ms,
            producer_id_expiration_ms=self._context.producer_id_expiration_ms,
            verify_transactions=self._context.verify_transactions,
            on_warning=self._request.on_warning,
        )

    def _topic_id(self) -> UUID | None:
        path = self._directory / PARTITION_METADATA
        try:
            found = parse_partition_metadata(self._fs.read_bytes(path)).topic_id
        except FileNotFoundError:
            return None
        except CorruptError as error:
            raise error.located(path=str(path)) from error
        wanted = self._request.topic_id
        if wanted is not None and wanted != found:
            raise InconsistentTopicIdError(
                f"Tried to assign topic ID {uuid_text(wanted)} to log for topic partition "
                f"{self._request.topic_partition}, but log already contained topic ID "
                f"{uuid_text(found)}"
            )
        return found

    # ---- segments

    def _load_segments(self, names: list[str]) -> None:
        present = set(names)
        segments = []
        for name in names:
            if is_index_file(name):
                log_name = segment_file_name(base_offset_of(name), LOG_SUFFIX)
                if log_name not in present:
                    self._request.on_warning(
                        f"Found an orphaned index file {self._directory / name}, with no "
                        "corresponding log file."
                    )
                    self._fs.remove(self._directory / name)
            elif is_log_file(name):
                segments.append(self._open(base_offset_of(name)))
        if self._keeps and not segments:
            raise FileNotFoundError(errno.ENOENT, "no segment is left", str(self._directory))
        self._segments = SegmentList(segments)
        if not self._is_deleted_dir:  # what nobody will read may be damaged
            for segment in segments:
                self._check_indexes(segment, present)

    def _check_indexes(self, segment: LogSegment, present: set[str]) -> None:
        """Rebuilds indexes that are missing or damaged, unless recovery rebuilds them anyway."""
        request = self._request
        base = segment.base_offset
        is_flushed = self._keeps or request.clean_shutdown or base < request.recovery_point
        try:
            if segment_file_name(base, INDEX_SUFFIX) not in present:
                raise FileNotFoundError
            segment.indexes.files.sanity_check(
                time_index_newly_created=segment_file_name(base, TIME_INDEX_SUFFIX) not in present,
                has_transaction_index=segment_file_name(base, TXN_INDEX_SUFFIX) in present,
            )
        except FileNotFoundError:
            if not is_flushed:
                return
            is_active = segment is self._segments.active
            is_expected = segment.size_bytes or not is_active or not self._keeps
            following = self._base_after(base)
            is_unflushed = following is None or following > request.recovery_point
            if is_expected and not (request.is_in_use and is_unflushed):
                request.on_warning(
                    f"Could not find offset index file corresponding to log file {segment.path}, "
                    "recovering segment and rebuilding index files..."
                )
            if self._keeps:
                index_whole(segment, self._context.resources, is_active=is_active)
            else:
                self._recover_segment(segment)
        except CorruptError as error:
            if self._keeps:
                raise
            _log.warning(
                "Found a corrupted index file corresponding to log file %s due to %s, recovering "
                "segment and rebuilding index files...",
                segment.path,
                error,
            )
            if is_flushed:  # else the segments before it may be torn, which update the producers
                self._recover_segment(segment)

    def _open(self, base_offset: int) -> LogSegment:
        return LogSegment.open(
            self._directory,
            base_offset,
            config=self._request.config,
            resources=self._context.resources,
            now_ms=self._context.clock.now_ms(),
            roll_jitter_ms=self._context.draw_jitter_ms(self._request.config),
            on_warning=self._request.on_warning,
            trusts_indexes=self._keeps,
        )

    # ---- recovery

    def _recover_log(self) -> tuple[int, int]:
        """Recovers the log if it was not closed; returns (recovery point, log end offset)."""
        request = self._request
        if self._is_deleted_dir:
            if not self._segments:
                self._segments = SegmentList([self._create(0)])
            return 0, 0
        if self._keeps:
            end = end_of_unrecovered(
                self._segments.active, self._context.resources, on_warning=request.on_warning
            )
            if end < request.log_start_offset:
                request.on_warning(_LOST % (end, request.log_start_offset))
            return (end if request.clean_shutdown else min(request.recovery_point, end)), end
        truncated = False
        if not request.clean_shutdown:
            truncated = self._recover_unflushed()
        elif self._segments and not self._ends_whole(self._segments.active):
            # A clean stop leaves no torn end: something else has written to the file.
            truncated = self._recover_one(self._segments.active)
        end = self._log_end()
        active = self._segments.active if self._segments else None
        if active is not None and end != active.base_offset and not active.can_hold(end - 1):
            # Its last batch's offset is damaged. Were it believed, all of the log would go, or
            # appends would continue far away.
            truncated = self._recover_one(active) or truncated
            end = self._log_end()
        if self._segments and end < request.log_start_offset:
            _log.warning(_LOST, end, request.log_start_offset)
            self._remove_segments(list(self._segments))
            self._epochs.clear_and_flush()
            self._producers().truncate_fully_and_start_at(request.log_start_offset)
        if not self._segments:
            self._segments = SegmentList([self._create(request.log_start_offset)])
            end = request.log_start_offset
        if request.clean_shutdown and not truncated:
            return end, end
        return min(request.recovery_point, end), end

    def _ends_whole(self, segment: LogSegment) -> bool:
        try:
            return segment.valid_bytes() == segment.size_bytes
        except InvalidOffsetError:  # no index can be made of its offsets
            return False

    def _log_end(self) -> int:
        if not self._segments:
            return 0
        active = self._segments.active
        end = active.read_next_offset()
        if end > OFFSET_MAX and active.can_hold(end - 1):
            raise ImpossibleOffsetError(
                f"the last batch ends at offset {end - 1}, behind which no record can follow",
                path=str(active.path),
            )
        return end

    def _create(self, base_offset: int) -> LogSegment:
        return self._context.create_segment(self._directory, base_offset, self._request.config)

    def _recover_unflushed(self) -> bool:
        """Recovers the segments that were not flushed; whether anything was cut off."""
        unflushed = self._segments.values(self._request.recovery_point, _ALL)
        for number, segment in enumerate(unflushed):
            _log.info(
                "Recovering unflushed segment %s. %s/%s recovered for %s.",
                segment.base_offset,
                number,
                len(unflushed),
                self._request.topic_partition,
            )
            if self._request.on_segment is not None:
                self._request.on_segment(number, len(unflushed))
            if self._recover_one(segment):
                _log.warning(
                    "Corruption found in segment %s, truncating to offset %s",
                    segment.base_offset,
                    segment.read_next_offset(),
                )
                self._remove_segments(list(unflushed[number + 1 :]))
                return True
            self._look_for_gap(segment, unflushed[number + 1 :])
        return False

    def _look_for_gap(self, segment: LogSegment, later: Sequence[LogSegment]) -> None:
        """Notes where records may be missing at the end of a segment that was not flushed.

        When power is lost after a roll, the file system may have the next segment, but not the last
        batches of this one, which then ends with a whole batch. A cleaning leaves the same.
        """
        if later and self._gap_offset is None:
            end = segment.read_next_offset()
            if end < later[0].base_offset:
                self._gap_offset = end

    def _recover_one(self, segment: LogSegment) -> bool:
        try:
            return self._recover_segment(segment) > 0
        except (SegmentOffsetOverflowError, ImpossibleOffsetError):
            raise
        except (InvalidOffsetError, InvalidRecordError, CorruptError) as error:
            _log.warning(
                "Found invalid offset during recovery. Deleting the corrupt segment and creating "
                "an empty one with starting offset %s: %s",
                segment.base_offset,
                error,
            )
            return segment.truncate_to(segment.base_offset) > 0

    def _recover_segment(self, segment: LogSegment) -> int:
        """Bytes cut off. Batches are checked against the producers as of the segment's start."""
        producers = self._producers()
        rebuild_producer_state(
            producers,
            self._segments,
            log_start_offset=max(self._request.log_start_offset, self._segments.first.base_offset),
            log_end_offset=segment.base_offset,
            now_ms=self._context.clock.now_ms(),
            reload_from_clean_shutdown=False,
        )
        request = self._request
        truncated = segment.recover(
            producer_state=producers,
            leader_epochs=self._epochs,
            flushed_offset=_ALL if request.clean_shutdown else request.recovery_point,
            next_base_offset=self._base_after(segment.base_offset),
        )
        take_snapshot_if_space(producers)
        return truncated

    def _base_after(self, base_offset: int) -> int | None:
        """The base offset of the next segment; None behind the last one."""
        following = self._segments.higher(base_offset)
        return None if following is None else following.base_offset

    def _remove_segments(self, doomed: list[LogSegment]) -> None:
        """Removes segments, the newest first, so that a crash leaves no gap."""
        self._segments = self._segments.without(doomed)
        producers = self._producers()
        for segment in reversed(doomed):
            segment.delete_if_exists()
            path = producers.snapshots.mark_for_deletion(segment.base_offset)
            if path is not None:
                self._fs.remove(path)
        self._fs.sync_directory(self._directory)
