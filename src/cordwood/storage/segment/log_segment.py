"""One segment of a log: a file of record batches, and its indexes (`segment_indexes`).

One thread at a time changes a segment: the log's lock sees to that. Any number of threads read it
meanwhile, and never wait for that one. A reader looks into an index first and takes the log's size
after that: whatever an index names was in the file before it was named.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.format.batch_header import BatchHeader
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.file_names import (
    LOG_SUFFIX,
    segment_file_name,
)
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.format.varint import Buffer
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.filesystem import File, FileFacts
from cordwood.storage.reading.batch_heads import (
    BatchPosition,
    FileRange,
    iter_heads,
    iter_producer_batches,
)
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.resources import ResourceCache, sync_log
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_indexes import AppendedBatch, SegmentIndexes
from cordwood.storage.segment.segment_recovery import (
    C,
    LeaderEpochs,
    Producers,
    SegmentWalk,
)
from cordwood.storage.segment.time_index import NO_TIMESTAMP, TimeIndex
from cordwood.storage.segment.timestamp_lookup import (
    TimestampAndOffset,
    first_with,
)

_log = logging.getLogger(__name__)


class LogSegment:
    """A segment; see the module."""

    __slots__ = (
        "_changes",
        "_changes_synced",
        "_first_batch_timestamp",
        "_is_preallocated",
        "_resources",
        "base_offset",
        "content_note",
        "created_ms",
        "directory",
        "indexes",
        "naming_lock",
        "path",
        "roll_jitter_ms",
        "size_bytes",
        "suffix",
        "written_ms",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        now_ms: int,
        roll_jitter_ms: int,
        size_bytes: int | None,
        is_new: bool,
        on_warning: Callable[[str], None] | None,
        trusts_indexes: bool = False,
    ) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.suffix = ""
        self.base_offset = base_offset
        self.path = directory / segment_file_name(base_offset, LOG_SUFFIX)
        self.created_ms = now_ms
        # When this process appended last, by the log's clock; 0 where it has not.
        self.written_ms = 0
        self.roll_jitter_ms = roll_jitter_ms
        # Invariant: as many bytes of the file are whole batches, and readers see those.
        self.size_bytes = (
            resources.fs.facts_of(self.path).size_bytes if size_bytes is None else size_bytes
        )
        # What a reader remembers of the content; a truncation replaces it by what nobody knows.
        self.content_note: object = None
        self.naming_lock = threading.Lock()
        self._resources = resources
        # How often the file was changed, and how many of these changes are known to be on disk.
        self._changes = 1
        self._changes_synced = 0
        self._is_preallocated = False
        self._first_batch_timestamp: int | None = None
        self.indexes = SegmentIndexes(
            directory,
            base_offset,
            config=config,
            resources=resources,
            is_new=is_new,
            on_warning=on_warning,
            trusts_files=trusts_indexes,
        )

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        now_ms: int,
        roll_jitter_ms: int = 0,
        on_warning: Callable[[str], None] | None = None,
    ) -> LogSegment:
        """A new, empty segment with both of its indexes; files of the same name are replaced.

        Raises:
            NoSpaceError: the file system is full; no file of the segment is left.

        Differs: Kafka creates the files of the indexes at the first use (LazyIndex), which a broker
        makes of them at once; here an index is first written when it is flushed.
        """
        segment = cls(
            directory,
            base_offset,
            config=config,
            resources=resources,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            size_bytes=0,
            is_new=True,
            on_warning=on_warning,
        )
        try:
            segment.indexes.files.create()
            file = resources.fs.create(segment.path)
        except (OSError, NoSpaceError):
            segment.indexes.files.remove()
            raise
        if config.preallocate:
            file.truncate(config.segment_bytes)
            segment._is_preallocated = True
        resources.keep(segment, file)
        return segment

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        now_ms: int,
        roll_jitter_ms: int = 0,
        facts: FileFacts | None = None,
        on_warning: Callable[[str], None] | None = None,
        trusts_indexes: bool = False,
    ) -> LogSegment:
        """A segment that is there; nothing of it is read yet.

        Args:
            directory: the partition's.
            base_offset: which segment.
            config: of the topic; its index settings are taken over.
            resources: opens and keeps its files.
            now_ms: taken for the time it was created.
            roll_jitter_ms: how much earlier than segment.ms it rolls.
            facts: of the log file, where they are known already.
            on_warning: called for damage that was repaired; the module's logger otherwise.
            trusts_indexes: what an index says of the segment as a whole (its last entries, how many
                there are) is not compared with the log, as in Kafka.

        Raises:
            FileNotFoundError: there is no such log file.
        """
        return cls(
            directory,
            base_offset,
            config=config,
            resources=resources,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            size_bytes=None if facts is None else facts.size_bytes,
            is_new=False,
            on_warning=on_warning,
            trusts_indexes=trusts_indexes,
        )

    def __str__(self) -> str:
        return (
            f"LogSegment(baseOffset={self.base_offset}, size={self.size_bytes}, "
            f"lastModifiedTime={self._modified_ms_or_0()}, "
            f"largestRecordTimestamp={self.indexes.known_max_timestamp})"
        )

    def __repr__(self) -> str:
        return str(self)

    # ---- indexes and what they say

    def check_invariants(self) -> None:
        """Asserts that size, indexes and what is known to be on disk agree."""
        name = segment_file_name(self.base_offset, LOG_SUFFIX) + self.suffix
        assert self.path == self.directory / name, f"{self.path} is not {name}"
        assert 0 <= self.size_bytes <= INT32_MAX, f"{self.path}: {self.size_bytes} bytes"
        assert self._changes_synced <= self._changes, f"{self.path}: synced before it was changed"
        self.indexes.check_invariants(self)

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, in memory and in accord with the log's end."""
        return self.indexes.offset_index(self)

    @property
    def time_index(self) -> TimeIndex:
        """The time index, in memory and in accord with the log."""
        return self.indexes.time_index(self)

    @property
    def max_timestamp_so_far(self) -> int:
        """The largest timestamp of a batch in ms, -1 without one."""
        return self.indexes.max_timestamp(self).timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has it."""
        return self.indexes.max_timestamp(self).offset

    @property
    def largest_record_timestamp(self) -> int:
        """The largest timestamp in ms, -1 if no record has one."""
        return max(NO_TIMESTAMP, self.max_timestamp_so_far)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp in ms; the log file's modification time if no record has one."""
        known = self.max_timestamp_so_far
        return known if known >= 0 else self.last_modified_ms

    @property
    def last_modified_ms(self) -> int:
        """Time (ms) of the last write to the log file.

        Raises:
            OSError: it is gone.
        """
        return self._resources.fs.facts_of(self.path).modified_ms

    @property
    def appended_ms(self) -> int:
        """Upper bound (ms, by the log's clock) of the time at which the newest record was appended.

        It is when this process appended last, or where it has not, the modification time: each
        append changes it, a compaction keeps that of the newest segment it merges, and whatever
        else changes it (a truncation, a copy) makes it later.

        Raises:
            OSError: the log file is gone.
        """
        return max(self.last_modified_ms, self.written_ms)

    def can_hold(self, offset: int) -> bool:
        """Whether the offset is in reach of the base offset."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """Ms between the first batch and the one to come; without timestamps, since creation."""
        first = self.first_batch_timestamp()
        return now_ms - self.created_ms if first == LONG_MAX else message_timestamp - first

    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch in ms; 2^63 - 1 where there is none."""
        first = self._first_batch_timestamp
        if first is None:
            if not self.size_bytes:
                return LONG_MAX
            heads = iter_heads(
                self._resources.file(self), 0, self.size_bytes, path=self.path, is_strict=False
            )
            head = next(heads, None)
            first = NO_TIMESTAMP if head is None else head.max_timestamp
            self._first_batch_timestamp = first
        return first if first >= 0 else LONG_MAX

    # ---- read

    def translate_offset(self, offset: int, starting_position: int = 0) -> BatchPosition | None:
        """The first batch whose last offset is at least `offset`; None if there is none.

        Args:
            offset: inclusive.
            starting_position: a batch's start, known to be at or before the one looked for.

        Raises:
            CorruptError: the log is damaged on the way there.
        """
        return self.indexes.find(self, offset, starting_position)

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        min_one: bool = False,
    ) -> tuple[FileRange | None, BatchPosition] | None:
        """The bytes from the batch that holds `start_offset` on, or the next one there is.

        Args:
            start_offset: inclusive.
            max_bytes: how many at most; the end may cut a batch.
            max_position: where in the file to stop, the segment's end by default.
            min_one: give the first batch whole even if it is larger than `max_bytes`.

        Returns:
            The range, None if it is empty, and the first batch; None beyond the last batch.

        Raises:
            ValueError: `max_bytes` is negative.
            CorruptError: the log is damaged on the way there.
        """
        if max_bytes < 0:
            raise ValueError(f"Invalid max size {max_bytes} for log read from segment {self.path}")
        batch = self.indexes.find(self, start_offset, 0)
        if batch is None:
            return None
        limit = self.size_bytes if max_position is None else max_position
        wanted = max(max_bytes, batch.size_bytes) if min_one else max_bytes
        size = min(limit - batch.position, wanted)
        if size <= 0:
            return None, batch
        return FileRange(self._resources.file(self), batch.position, size), batch

    def fetch_upper_bound_offset(self, start: BatchPosition, size_bytes: int) -> int | None:
        """An offset above all of the `size_bytes` bytes read from a batch on, if an index has one.

        Raises:
            CorruptError: the log is damaged there.
        """
        return self.indexes.upper_bound_offset(self, start, size_bytes)

    def find_offset_by_timestamp(
        self, timestamp: int, starting_offset: int, *, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> TimestampAndOffset | None:
        """The first record with at least that timestamp (ms) and offset; None if there is none.

        Raises:
            OversizedRecordError: a record up to it, compressed, is of more than `record_bytes_max`.
            CorruptError: the log is damaged on the way there.
        """
        return self.indexes.find_timestamp(
            self, timestamp, starting_offset, record_bytes_max=record_bytes_max
        )

    def find_max_timestamp(
        self, *, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> TimestampAndOffset | None:
        """The first record with the segment's largest timestamp, which is -1 if none has one.

        Returns:
            None: the segment has no batch with this timestamp, as when it is empty.

        Raises:
            OversizedRecordError: as `find_offset_by_timestamp`.
            CorruptError: the log is damaged on the way there.
        """
        largest, last_offset = self.indexes.max_timestamp(self)
        batch = self.indexes.find(self, last_offset, 0)
        if batch is None:
            return None
        file = self._resources.file(self)
        heads = iter_heads(file, batch.position, self.size_bytes, path=self.path)
        return first_with(heads, file, largest, record_bytes_max=record_bytes_max, path=self.path)

    def producer_batches(
        self, start_offset: int, end_offset: int, *, is_strict: bool = True
    ) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
        """Batches with a producer id that reach into offsets from start to end, exclusive.

        With each control batch comes its marker, None if a clean has taken it away. If not
        `is_strict`, the batches end before the first that cannot be; no index is read.

        Raises:
            CorruptError: the log is damaged on the way, or a control batch holds no marker.
        """
        position: int | None = 0
        if is_strict:
            batch = self.indexes.find(self, start_offset, 0)
            position = None if batch is None else batch.position
        if position is not None:
            yield from iter_producer_batches(
                self._resources.file(self),
                position,
                self.size_bytes,
                start_offset=start_offset,
                end_offset=end_offset,
                path=self.path,
                is_strict=is_strict,
            )

    def read_next_offset(self) -> int:
        """One past the last whole batch's last offset; the base offset of an empty segment."""
        return self.indexes.end(self)[0]

    def valid_bytes(self) -> int:
        """The end of the last whole batch by its header; less than the size if torn."""
        return self.indexes.end(self)[1]

    def has_overflow(self) -> bool:
        """Whether the last offset is out of reach of the base offset."""
        following = self.read_next_offset()
        return following > self.base_offset and not self.can_hold(following - 1)

    # ---- append and roll

    def append(self, parts: Sequence[Buffer], batches: Sequence[AppendedBatch], at_ms: int) -> None:
        """Writes batches behind those there are.

        Args:
            parts: their bytes, in as many pieces as it takes.
            batches: each of them, in order.
            at_ms: now, by the log's clock.

        Raises:
            SegmentOffsetOverflowError: the last offset is out of reach of the base offset; nothing
                was written.
            ValueError: the file would grow beyond 2^31 - 1 bytes; nothing was written.
            NoSpaceError: the file system is full. The segment is as it was.
            OSError: the disk refused. The segment is as it was.
        """
        if not batches:
            return
        position = self.size_bytes
        if not 0 <= batches[-1].last_offset - self.base_offset <= INT32_MAX:
            raise self._overflow(batches[-1].last_offset)
        end = position + sum([batch[0] for batch in batches])
        if end > INT32_MAX:
            raise ValueError(
                f"Append of size {end - position} bytes is too large for segment with current file "
                f"position at {position}"
            )
        self.indexes.begin_writing(self)
        file, self.written_ms = self._resources.file(self), at_ms
        try:
            file.write_at(parts, position)
        except (NoSpaceError, OSError):
            self._is_preallocated = False
            # If this fails too, a lack of space is not the reason.
            self._cut(file, position)
            raise
        with self.indexes.lock:
            self._changes += 1
            self.size_bytes = end
            self.indexes.note_appended(position, batches)

    def should_roll(
        self,
        *,
        append_bytes: int,
        max_timestamp: int,
        max_offset: int,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Whether a new segment has to take `append_bytes` bytes with these largest values."""
        size = self.size_bytes
        if size > config.segment_bytes - append_bytes:
            return True
        if size > 0:
            waited = self.time_waited_for_roll(now_ms, max_timestamp)
            if waited > config.segment_ms_max - self.roll_jitter_ms:
                return True
        if not 0 <= max_offset - self.base_offset <= INT32_MAX:
            return True
        self.indexes.begin_writing(self)
        return self.indexes.files.is_full

    # ---- truncated, rebuilt

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> int:
        """Removes batches that reach `offset` or beyond, and their index entries; how many bytes.

        Args:
            offset: a batch that holds it goes wholly.
            now_ms: taken for the time of creation when the segment is empty after that.

        Raises:
            CorruptError: the log is damaged on the way to the offset.
            OSError: the disk refused.
        """
        if offset <= self.base_offset:
            position = 0
        else:
            batch = self.indexes.find(self, offset, 0)
            position = self.size_bytes if batch is None else batch.position
            # In memory before the lock is taken: rebuilding them takes it too.
            self.indexes.begin_writing(self)
        self.content_note = object()
        with self.indexes.lock:
            self.indexes.truncate_to(offset)
            removed = self.size_bytes - position
            if removed:
                # Readers first: nobody is to look for what is about to go.
                self.size_bytes = position
                self._is_preallocated = False
                self._changes += 1
                self._cut(self._resources.file(self), position)
            if position == 0:
                self._first_batch_timestamp = None
                self.created_ms = self.created_ms if now_ms is None else now_ms
            self.indexes.find_max_timestamp_again(self)
        return removed

    @staticmethod
    def _cut(file: File, size_bytes: int) -> None:
        """Cuts the log off for good.

        Were the cut to come undone by a power loss, batches that were cut off could turn up behind
        new ones, where these happen to take as many bytes.
        """
        file.truncate(size_bytes)
        sync_log(file)

    def recover(
        self,
        *,
        producer_state: Producers[C] | None = None,
        leader_epochs: LeaderEpochs | None = None,
        flushed_offset: int = 0,
        next_base_offset: int | None = None,
        native: bool | None = None,
    ) -> int:
        """Checks every batch, truncates the log at the first bad one, and rebuilds the indexes.

        Args:
            flushed_offset: batches below it were flushed, and are not torn by a crash.
            next_base_offset: the next segment's base offset, which no offset here may reach.
            producer_state: that of the segment's base offset, brought up to its end; without one
                the transaction index stays as it is.
            leader_epochs: called for epochs that begin here.
            native: by compiled code or not; None lets the segment's size decide.

        Returns:
            How many bytes were cut off.

        Raises:
            SegmentOffsetOverflowError: an offset is out of reach of the base offset; the log was
                not cut.
            ImpossibleOffsetError: a whole batch has offsets that no append writes; the log was
                not cut.
            KafkaError: the state of producers refuses a batch.
        """
        indexes = self.indexes
        with indexes.lock:
            indexes.files.reset(resets_transactions=producer_state is not None)
            builder = indexes.builder(self)
            walk = SegmentWalk(
                self._resources.file(self),
                self.size_bytes,
                builder,
                path=self.path,
                flushed_offset=flushed_offset,
                next_base_offset=next_base_offset,
                on_batch=None if producer_state is None else self._replayed_by(producer_state),
                leader_epochs=leader_epochs,
            )
            walk.run(native=native)
            if walk.reason is not None:
                indexes.warn(
                    f"Found invalid messages in log segment {self.path} at byte offset "
                    f"{walk.position}: {walk.reason.reason}."
                )
            builder.finish()
            if producer_state is not None and walk.next_offset >= 0:
                producer_state.update_map_end_offset(walk.next_offset)
            removed = self.size_bytes - walk.position
            if removed:
                self.size_bytes = walk.position
                self._cut(self._resources.file(self), walk.position)
            self._is_preallocated = indexes.is_writing = False
            self._changes += 1
            self._first_batch_timestamp = None
            indexes.install(self, builder)
        return removed

    def _replayed_by(
        self, producers: Producers[C]
    ) -> Callable[[BatchHeader, EndTxnMarker | None], None]:
        def replay(header: BatchHeader, marker: EndTxnMarker | None) -> None:
            completed = producers.replay(header, marker)
            if completed is not None:
                if completed.is_aborted:
                    self.indexes.note_completed(completed, producers.last_stable_offset(completed))
                producers.complete_transaction(completed)

        return replay

    # ---- flush, close, rename, delete

    def flush(self) -> None:
        """Returns when the log and its indexes are on disk; their names need the directory synced.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        self.flush_log()
        self.indexes.files.flush()

    def flush_log(self) -> None:
        """Returns when the log is on disk.

        Raises:
            OSError: the disk refused, for lack of space or otherwise: its content is unknown.
        """
        changes = self._changes
        if self._changes_synced < changes:
            sync_log(self._resources.file(self))
            # What was written meanwhile is for the next one.
            self._changes_synced = max(self._changes_synced, changes)

    def on_become_inactive(self) -> None:
        """Adds the last time index entry, and leaves all files exactly as long as they need be.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        self.indexes.begin_writing(self)
        self._finish_writing()

    def close(self) -> None:
        """Does as `on_become_inactive` if it was written to, and closes its file; syncs nothing.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        if self.indexes.is_writing:
            self._finish_writing()
        else:
            self.indexes.files.trim()
        self._resources.forget(self)
        self.indexes.transactions.close()

    def _finish_writing(self) -> None:
        with self.indexes.lock:
            self.indexes.finish_writing()
            if self._is_preallocated:
                # For good: what it was set aside for would look like a torn end, and take all that
                # lies behind it.
                self._cut(self._resources.file(self), self.size_bytes)
                self._is_preallocated = False
            self.indexes.is_writing = False

    def close_handlers(self) -> None:
        """Releases all files without a write, for a disk that has failed."""
        self._resources.forget(self)
        self.indexes.files.close_handlers()
        self.indexes.is_writing = False

    def change_suffix(self, old: str, new: str) -> list[Path]:
        """Renames the files from one suffix to another, "" for none; the new paths of those there.

        A segment whose files do not have the old suffix is left alone.

        Raises:
            OSError: a file could not be renamed.
        """
        if self.suffix != old:
            return []
        path = self.path.with_name(self.path.name.removesuffix(old) + new)
        with self.naming_lock:
            self._resources.fs.rename(self.path, path)
            self.path, self.suffix = path, new
        return [path, *self.indexes.files.change_suffix(old, new)]

    def move_to(self, directory: Path) -> None:
        """Updates the paths after the directory was renamed."""
        with self.naming_lock:
            self.directory = directory
            self.path = directory / self.path.name
        self.indexes.files.move_to(directory)

    def delete_if_exists(self) -> None:
        """Removes the files; all that can be, even if one cannot.

        Raises:
            OSError: a file could not be removed.
        """
        self._resources.forget(self)
        errors = []
        try:
            self._resources.fs.remove(self.path)
        except OSError as error:
            errors.append(error)
        errors += self.indexes.files.delete_if_exists()
        if errors:
            raise errors[0]

    def _overflow(self, offset: int) -> SegmentOffsetOverflowError:
        return SegmentOffsetOverflowError(
            f"Detected offset overflow at offset {offset} in segment {self}",
            base_offset=self.base_offset,
        )

    def _modified_ms_or_0(self) -> int:
        try:
            return self.last_modified_ms
        except OSError:
            return 0
