"""One segment of a log: a file of record batches, and three indexes into it.

One thread at a time changes a segment: the log's lock sees to that. Any number of threads read it
meanwhile, and never wait for that one. A reader looks into an index first and takes the log's size
after that: whatever an index names was in the file before it was named.

An index is only believed as far as the log bears it out: the batch at an entry's position, or one
behind it, ends at the entry's offset; the batch that a time index names has that timestamp. Where
it does not, both indexes are rebuilt from the log, once, and the question is asked again.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.record_batch import BatchHeader
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.filesystem import File, FileFacts, FileSystem
from cordwood.storage.reading.batch_heads import (
    HEADER_READ_BYTES,
    LARGE_BATCH_BYTES,
    READ_BYTES,
    BatchHead,
    BatchPosition,
    FileRange,
    find_offset,
    iter_heads,
    iter_producer_batches,
)
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.resources import ResourceCache, sync_log
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_recovery import (
    C,
    Completed,
    LeaderEpochs,
    Producers,
    SegmentWalk,
)
from cordwood.storage.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from cordwood.storage.segment.timestamp_lookup import (
    TimestampAndOffset,
    first_at_or_after,
    first_with,
    largest_from,
    require_entry,
)
from cordwood.storage.segment.transaction_index import TransactionIndex

__all__ = ["AppendedBatch", "BatchPosition", "FileRange", "LogSegment", "TimestampAndOffset"]

_log = logging.getLogger(__name__)


T = TypeVar("T")


class AppendedBatch(NamedTuple):
    """The facts about a batch that a segment appends; the timestamp in ms, -1 for none."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


def _create_files(segment: LogSegment, *, fs: FileSystem) -> File:
    """Creates the log and both indexes of a new segment; no file is left where one fails."""
    indexes = segment._offset_index, segment._time_index
    fs.remove(segment.transaction_index.path)
    try:
        for index in indexes:
            index.create_file()
        return fs.create(segment.path)
    except (OSError, NoSpaceError):
        for index in indexes:
            fs.remove(index.path)
        raise


class LogSegment:
    """A segment; see the module."""

    __slots__ = (
        "_changes",
        "_changes_synced",
        "_first_batch_timestamp",
        "_index_interval_bytes",
        "_index_lock",
        "_is_preallocated",
        "_is_writing",
        "_max_index_bytes",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_on_warning",
        "_read_bytes",
        "_rebuilds",
        "_resources",
        "_time_index",
        "_trusts_indexes",
        "base_offset",
        "bytes_since_last_index_entry",
        "content_note",
        "created_ms",
        "directory",
        "naming_lock",
        "path",
        "roll_jitter_ms",
        "size_bytes",
        "suffix",
        "transaction_index",
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
        self.bytes_since_last_index_entry = 0
        self.naming_lock = threading.Lock()
        self._resources = resources
        self._index_interval_bytes = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._on_warning = on_warning
        self._trusts_indexes = trusts_indexes
        # Held while entries are added to the indexes, or both are rebuilt.
        self._index_lock = threading.Lock()
        self._rebuilds = 0
        self._read_bytes = READ_BYTES
        self._is_writing = is_new
        # How often the file was changed, and how many of these changes are known to be on disk.
        self._changes = 1
        self._changes_synced = 0
        self._is_preallocated = False
        # None: not known, the time index will tell.
        self._max_timestamp: int | None = NO_TIMESTAMP if is_new else None
        self._offset_of_max_timestamp = base_offset
        self._first_batch_timestamp: int | None = None
        fs = resources.fs
        self._offset_index = OffsetIndex(
            directory / segment_file_name(base_offset, INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            fs=fs,
            cache=resources,
            is_new=is_new,
        )
        self._time_index = TimeIndex(
            directory / segment_file_name(base_offset, TIME_INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            fs=fs,
            cache=resources,
            is_new=is_new,
        )
        self.transaction_index = TransactionIndex(
            directory / segment_file_name(base_offset, TXN_INDEX_SUFFIX),
            base_offset,
            fs=fs,
            is_new=is_new,
        )
        # No other file takes the space for an index, so a whole one always fits.
        self.resize_indexes(config.segment_index_bytes)

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
        file = _create_files(segment, fs=resources.fs)
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
        known = self._max_timestamp
        return (
            f"LogSegment(baseOffset={self.base_offset}, size={self.size_bytes}, "
            f"lastModifiedTime={self._modified_ms_or_0()}, "
            f"largestRecordTimestamp={NO_TIMESTAMP if known is None else known})"
        )

    def __repr__(self) -> str:
        return str(self)

    # ---- indexes and what they say

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, in memory and in accord with the log's end."""
        if not self._offset_index.is_loaded and not self._trusts_indexes:
            self._mend(self._check_offset_index)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, in memory and in accord with the log."""
        if not self._time_index.is_loaded and not self._trusts_indexes:
            self._mend(self._check_time_index)
        return self._time_index

    @property
    def max_timestamp_so_far(self) -> int:
        """The largest timestamp of a batch in ms, -1 without one."""
        known = self._max_timestamp
        if known is None:
            self._read_max_timestamp()
            known = self._max_timestamp
            assert known is not None, "just read"
        return known

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has it."""
        if self._max_timestamp is None:
            self._read_max_timestamp()
        return self._offset_of_max_timestamp

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
        """When the log file was last written.

        Raises:
            OSError: it is gone.
        """
        return self._resources.fs.facts_of(self.path).modified_ms

    @property
    def appended_ms(self) -> int:
        """When its newest record was appended, or later, by the log's clock (ms).

        It is when this process appended last, or where it has not, the modification time: each
        append changes it, a compaction keeps that of the newest segment it merges, and whatever
        else changes it (a truncation, a copy) makes it later.

        Raises:
            OSError: the log file is gone.
        """
        return max(self.last_modified_ms, self.written_ms)

    def resize_indexes(self, size_bytes: int) -> None:
        """Sets the maximum size of each index; no entry is removed, and nothing is read."""
        self._offset_index.resize(size_bytes)
        self._time_index.resize(size_bytes)

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
        return self._find(offset, starting_position)

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
        batch = self._find(start_offset, 0)
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

        def look_up() -> int | None:
            entry = self._offset_index.fetch_upper_bound_offset(start.position, size_bytes)
            if entry is None:
                return None
            self._require_entry(entry.offset, entry.position)
            return entry.offset

        return self._mend(look_up)

    def find_offset_by_timestamp(
        self, timestamp: int, starting_offset: int
    ) -> TimestampAndOffset | None:
        """The first record with at least that timestamp (ms) and offset; None if there is none.

        Raises:
            CorruptError: the log is damaged on the way there.
        """

        def look_up() -> TimestampAndOffset | None:
            entry = self._time_index.lookup(timestamp)
            file = self._resources.file(self)
            heads = self._heads_reaching(file, max(entry.offset, starting_offset))
            if entry.timestamp >= 0 and entry.offset >= starting_offset:
                first = self._require_time_entry(entry, next(heads, None))
                heads = chain((first,), heads)
            return first_at_or_after(heads, file, timestamp, starting_offset, path=self.path)

        return self._mend(look_up)

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the segment's largest timestamp; None if no record has one.

        Raises:
            CorruptError: the log is damaged on the way there.
        """
        largest = self.max_timestamp_so_far
        batch = self._find(self._offset_of_max_timestamp, 0) if largest >= 0 else None
        if batch is None:
            return None
        file = self._resources.file(self)
        heads = iter_heads(file, batch.position, self.size_bytes, path=self.path)
        return first_with(heads, file, largest, path=self.path)

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
            batch = self._find(start_offset, 0)
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
        return self._end()[0]

    def valid_bytes(self) -> int:
        """Where the last whole batch ends, as far as headers tell; less than the size if torn."""
        return self._end()[1]

    def has_overflow(self) -> bool:
        """Whether the last offset is out of reach of the base offset."""
        following = self.read_next_offset()
        return following > self.base_offset and not self.can_hold(following - 1)

    def _end(self) -> tuple[int, int]:
        """(next offset, position behind the last whole batch)."""

        def look_up() -> tuple[int, int]:
            entry = self._offset_index.lookup_on_disk(self.base_offset + INT32_MAX)
            size = self.size_bytes
            next_offset, position = self.base_offset, entry.position
            is_borne_out = position == 0
            heads = iter_heads(
                self._resources.file(self), position, size, path=self.path, is_strict=False
            )
            for head in heads:
                is_borne_out = is_borne_out or head.last_offset == entry.offset
                next_offset = head.last_offset + 1
                position += head.size_bytes
            if not is_borne_out:
                raise self._wrong_entry(entry.offset, entry.position)
            return next_offset, position

        return self._mend(look_up)

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
        if not self._is_writing:
            self._begin_writing()
        file, self.written_ms = self._resources.file(self), at_ms
        try:
            file.write_at(parts, position)
        except (NoSpaceError, OSError):
            self._is_preallocated = False
            # If this fails too, a lack of space is not the reason.
            self._cut(file, position)
            raise
        with self._index_lock:
            self._changes += 1
            self.size_bytes = end
            self._note_appended(position, batches)

    def _note_appended(self, position: int, batches: Sequence[AppendedBatch]) -> None:
        """Adds index entries as they fall due.

        A set of batches that does not fit an index is only looked up less quickly: the log is
        rolled before the next.
        """
        newest = self._max_timestamp
        assert newest is not None, "known since writing began"
        since = self.bytes_since_last_index_entry
        interval = self._index_interval_bytes
        for size, last_offset, timestamp in batches:
            if timestamp > newest:
                self._max_timestamp = newest = timestamp
                self._offset_of_max_timestamp = last_offset
            if since > interval:
                if not (self._offset_index.is_full or self._time_index.is_full):
                    self._offset_index.append(last_offset, position)
                    self._time_index.maybe_append(newest, self._offset_of_max_timestamp)
                since = 0
            position += size
            since += size
        self.bytes_since_last_index_entry = since

    def _begin_writing(self) -> None:
        """Loads both indexes, consistent with the log, before the first write."""
        self.offset_index.pin()
        self.time_index.pin()
        if self._max_timestamp is None:
            self._read_max_timestamp()
        self._is_writing = True

    def note_completed(self, completed: Completed, last_stable_offset: int) -> None:
        """Adds an aborted transaction to the index; a committed one leaves no trace.

        Raises:
            OSError: the disk refused; a full one does not.

        Source: LogSegment.updateTxnIndex.
        """
        if completed.is_aborted:
            self.transaction_index.append(
                AbortedTransaction(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=last_stable_offset,
                )
            )

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
        if not self._is_writing:
            self._begin_writing()
        return self._offset_index.is_full or self._time_index.is_full

    def sanity_check(
        self, *, time_index_newly_created: bool = False, has_transaction_index: bool | None = None
    ) -> None:
        """Checks for a loader: the offset index exists, the transaction index is complete.

        Args:
            time_index_newly_created: there is no time index; an empty one is made.
            has_transaction_index: whether there is one; None has it looked for.

        Raises:
            FileNotFoundError: there is no offset index.
            CorruptError: the transaction index is damaged.
        """
        path = self._offset_index.path
        if not self._resources.fs.exists(path):
            raise FileNotFoundError(f"Offset index file {path} does not exist")
        if time_index_newly_created:
            self._time_index.truncate()
            self._time_index.trim()
            self.resize_indexes(self._max_index_bytes)
        if has_transaction_index is False:
            self.transaction_index.forget_file()
        else:
            self.transaction_index.sanity_check()

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
            batch = self._find(offset, 0)
            position = self.size_bytes if batch is None else batch.position
            # In memory before the lock is taken: rebuilding them takes it too.
            self._begin_writing()
        self.content_note = object()
        with self._index_lock:
            if offset <= self.base_offset:
                self._offset_index.truncate()
                self._time_index.truncate()
                self.transaction_index.reset()
            else:
                self._offset_index.truncate_to(offset)
                self._time_index.truncate_to(offset)
                self.transaction_index.truncate_to(offset)
            self.resize_indexes(self._max_index_bytes)
            self._is_writing = True
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
            self.bytes_since_last_index_entry = 0
            self._find_max_timestamp_again()
        return removed

    @staticmethod
    def _cut(file: File, size_bytes: int) -> None:
        """Cuts the log off for good.

        Were the cut to come undone by a power loss, batches that were cut off could turn up behind
        new ones, where these happen to take as many bytes.
        """
        file.truncate(size_bytes)
        sync_log(file)

    def _find_max_timestamp_again(self) -> None:
        """Source: LogSegment.readLargestTimestamp."""
        known = self._time_index.last_entry
        position = self._offset_index.lookup(known.offset).position
        later = largest_from(self._resources.file(self), position, self.size_bytes, path=self.path)
        newest = later if later.timestamp > known.timestamp else known
        self._max_timestamp, self._offset_of_max_timestamp = newest.timestamp, newest.offset

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
        with self._index_lock:
            self._offset_index.reset()
            self._time_index.reset()
            if producer_state is not None:
                self.transaction_index.reset()
            builder = IndexBuilder(self.base_offset, self._index_interval_bytes, self.path)
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
                self.warn(
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
            self._is_preallocated = self._is_writing = False
            self._changes += 1
            self._first_batch_timestamp = None
            self._install(builder)
            self._rebuilds += 1
        return removed

    def _replayed_by(
        self, producers: Producers[C]
    ) -> Callable[[BatchHeader, EndTxnMarker | None], None]:
        def replay(header: BatchHeader, marker: EndTxnMarker | None) -> None:
            completed = producers.replay(header, marker)
            if completed is not None:
                if completed.is_aborted:
                    self.note_completed(completed, producers.last_stable_offset(completed))
                producers.complete_transaction(completed)

        return replay

    def rebuild_indexes(self) -> None:
        """Rebuilds both indexes from the log's headers; the log does not change.

        Raises:
            KafkaError: offsets do not ascend, or are out of reach of the base offset.
        """
        with self._index_lock:
            self._make_indexes_anew()

    # ---- flush, close, rename, delete

    def flush(self) -> None:
        """Returns when the log and its indexes are on disk; their names need the directory synced.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        self.flush_log()
        self.flush_indexes()

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

    def flush_indexes(self) -> None:
        """Returns when the indexes are on disk.

        Raises:
            NoSpaceError: the file system has no space for them.
            OSError: the disk refused.
        """
        self._offset_index.flush()
        self._time_index.flush()
        self.transaction_index.flush()

    def on_become_inactive(self) -> None:
        """Adds the last time index entry, and leaves all files exactly as long as they need be.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        if not self._is_writing:
            self._begin_writing()
        self._finish_writing()

    def close(self) -> None:
        """The same for a segment that was written to, and lets go of its file; syncs nothing.

        Raises:
            NoSpaceError: the file system has no space for the indexes.
            OSError: the disk refused.
        """
        if self._is_writing:
            self._finish_writing()
        else:
            self._offset_index.trim()
            self._time_index.trim()
        self._resources.forget(self)
        self.transaction_index.close()

    def _finish_writing(self) -> None:
        with self._index_lock:
            newest = self._max_timestamp
            assert newest is not None, "known since writing began"
            self._time_index.maybe_append(
                newest, self._offset_of_max_timestamp, skip_full_check=True
            )
            self._offset_index.trim()
            self._time_index.trim()
            if self._is_preallocated:
                # For good: what it was set aside for would look like a torn end, and take all that
                # lies behind it.
                self._cut(self._resources.file(self), self.size_bytes)
                self._is_preallocated = False
            self._is_writing = False

    def close_handlers(self) -> None:
        """Releases all files without a write, for a disk that has failed."""
        self._resources.forget(self)
        self._offset_index.close_handlers()
        self._time_index.close_handlers()
        self.transaction_index.close_handlers()
        self._is_writing = False

    def change_suffix(self, old: str, new: str) -> list[Path]:
        """Renames the files from one suffix to another, "" for none; the new paths of those there.

        A segment whose files do not have the old suffix is left alone.

        Raises:
            OSError: a file could not be renamed.
        """
        if self.suffix != old:
            return []
        path = self._renamed(self.path, old, new)
        with self.naming_lock:
            self._resources.fs.rename(self.path, path)
            self.path, self.suffix = path, new
        renamed = [path]
        for index in (self._offset_index, self._time_index, self.transaction_index):
            if index.rename_to(self._renamed(index.path, old, new)):
                renamed.append(index.path)
        return renamed

    @staticmethod
    def _renamed(path: Path, old: str, new: str) -> Path:
        return path.with_name(path.name.removesuffix(old) + new)

    def move_to(self, directory: Path) -> None:
        """Updates the paths after the directory was renamed."""
        with self.naming_lock:
            self.directory = directory
            self.path = directory / self.path.name
        for index in (self._offset_index, self._time_index, self.transaction_index):
            index.path = directory / index.path.name

    def delete_if_exists(self) -> None:
        """Removes the files; all that can be, even if one cannot.

        Raises:
            OSError: a file could not be removed.
        """
        self._resources.forget(self)
        errors = []
        removals: tuple[Callable[[], object], ...] = (
            lambda: self._resources.fs.remove(self.path),
            self._offset_index.delete_if_exists,
            self._time_index.delete_if_exists,
            self.transaction_index.delete_if_exists,
        )
        for remove in removals:
            try:
                remove()
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _index_paths(self) -> tuple[Path, Path, Path]:
        return self._offset_index.path, self._time_index.path, self.transaction_index.path

    def _overflow(self, offset: int) -> SegmentOffsetOverflowError:
        return SegmentOffsetOverflowError(
            f"Detected offset overflow at offset {offset} in segment {self}",
            base_offset=self.base_offset,
        )

    # ---- indexes against the log

    def _find(self, offset: int, starting_position: int) -> BatchPosition | None:
        try:
            return self._find_once(offset, starting_position)
        except CorruptError:
            return self._mend(lambda: self._find_once(offset, starting_position))

    def _find_once(self, offset: int, starting_position: int) -> BatchPosition | None:
        position, known = self._offset_index.position_of(offset)
        end = self.size_bytes
        if position <= starting_position:
            position, known = starting_position, None
        elif position >= end:
            raise self._wrong_entry(offset if known is None else known, position)
        found = find_offset(
            self._resources.file(self),
            position,
            end,
            offset,
            path=self.path,
            entry_offset=known,
            read_bytes=self._read_bytes,
        )
        if found is not None:
            # What batches are like here is the best guess of what the next one asked for is like.
            is_large = found[3] >= LARGE_BATCH_BYTES
            self._read_bytes = HEADER_READ_BYTES if is_large else READ_BYTES
        return found

    def _require_entry(self, offset: int, position: int) -> None:
        """Checks an offset index entry against the log."""
        end = self.size_bytes
        if position >= end:
            raise self._wrong_entry(offset, position)
        file = self._resources.file(self)
        find_offset(file, position, end, offset, path=self.path, entry_offset=offset)

    def _heads_from(self, file: File, batch: BatchPosition | None) -> Iterator[BatchHead]:
        """That batch and those behind it."""
        end = self.size_bytes
        return iter_heads(file, end if batch is None else batch.position, end, path=self.path)

    def _heads_reaching(self, file: File, offset: int) -> Iterator[BatchHead]:
        """The batches that end at or behind an offset; the index entry is checked on the way."""
        position, known = self._offset_index.position_of(offset)
        end = self.size_bytes
        for head in iter_heads(file, position, end, path=self.path):
            if known is not None and head.last_offset >= known:
                if head.last_offset > known:
                    raise self._wrong_entry(known, position)
                known = None
            if head.last_offset >= offset:
                yield head
        if known is not None:
            raise self._wrong_entry(known, position)

    def _require_time_entry(self, entry: TimestampOffset, head: BatchHead | None) -> BatchHead:
        """Checks a time index entry against the first batch that ends at or behind its offset."""
        if head is None:
            raise CorruptError(
                f"time index entry {entry} points beyond the log", path=str(self._time_index.path)
            )
        require_entry(entry, head, path=self.path)
        return head

    def _check_offset_index(self) -> None:
        last = self._offset_index.last_entry
        if last.position:
            self._require_entry(last.offset, last.position)

    def _check_time_index(self) -> None:
        last = self._time_index.last_entry
        if last.timestamp >= 0:
            heads = self._heads_reaching(self._resources.file(self), last.offset)
            self._require_time_entry(last, next(heads, None))

    def _read_max_timestamp(self) -> None:
        """Learns the largest timestamp from the time index, without reading all of it."""

        def look_up() -> TimestampOffset:
            entry = self._time_index.last_entry_on_disk()
            if entry.timestamp >= 0 and not self._trusts_indexes:
                known = self._offset_index.lookup_on_disk(entry.offset)
                file = self._resources.file(self)
                batch = find_offset(
                    file,
                    known.position,
                    self.size_bytes,
                    entry.offset,
                    path=self.path,
                    entry_offset=known.offset if known.position else None,
                )
                self._require_time_entry(entry, next(self._heads_from(file, batch), None))
            return entry

        entry = self._mend(look_up)
        self._offset_of_max_timestamp = entry.offset
        self._max_timestamp = entry.timestamp

    def _mend(self, look_up: Callable[[], T]) -> T:
        """The result of `look_up`, repeated if the indexes did not match the log."""
        seen = self._rebuilds
        try:
            return look_up()
        except CorruptError:
            pass
        try:
            # Perhaps the log was cut off between a look into the index and one into the log.
            return look_up()
        except CorruptError as error:
            if not self._rebuild(seen, error):
                raise
        return look_up()

    def _rebuild(self, seen: int, reason: CorruptError) -> bool:
        """Rebuilds both indexes from the log; False if that cannot improve them.

        Args:
            seen: how often that had been done when the question was asked.
            reason: what was found to be wrong.

        Raises:
            KafkaError: offsets in the log do not ascend, or are out of reach of the base offset.
        """
        with self._index_lock:
            if self._rebuilds > seen:
                return True
            if self._rebuilds and self._offset_index.is_loaded and self._time_index.is_loaded:
                return False
            self.warn(
                f"Found a corrupted index file corresponding to log file {self.path} due to "
                f"{reason}, rebuilding index files..."
            )
            self._make_indexes_anew()
            return True

    def _make_indexes_anew(self) -> None:
        """From the log's headers; the caller holds the lock."""
        builder = IndexBuilder(self.base_offset, self._index_interval_bytes, self.path)
        file = self._resources.file(self)
        SegmentWalk(file, self.size_bytes, builder, path=self.path, checks_crc=False).run()
        builder.finish()
        self._install(builder)
        self._rebuilds += 1
        self._resources.note_rebuild()

    def _install(self, builder: IndexBuilder) -> None:
        """Installs rebuilt indexes; the caller holds the lock."""
        self._offset_index.replace_all(builder.offset_columns)
        self._time_index.replace_all(builder.time_columns)
        self._max_timestamp = builder.max_timestamp
        self._offset_of_max_timestamp = (
            builder.offset_of_max_timestamp if builder.max_timestamp >= 0 else self.base_offset
        )
        if not self._is_writing:
            try:
                self._offset_index.trim()
                self._time_index.trim()
            except (NoSpaceError, OSError) as error:
                self.warn(f"Could not write the indexes of {self.path}: {error}")
        self.resize_indexes(self._max_index_bytes)

    def warn(self, message: str) -> None:
        """Reports damage that was repaired."""
        if self._on_warning is not None:
            self._on_warning(message)
        else:
            _log.warning("%s", message)

    def _wrong_entry(self, offset: int, position: int) -> CorruptError:
        return CorruptError(
            f"offset index entry {offset} points to byte {position} of the log, where it is not",
            path=str(self._offset_index.path),
        )

    def _modified_ms_or_0(self) -> int:
        try:
            return self.last_modified_ms
        except OSError:
            return 0
