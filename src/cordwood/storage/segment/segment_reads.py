"""What may be asked of a segment: batches by offset and by timestamp, and what its indexes say.

Any number of threads read a segment while one writes to it, and never wait for that one. A reader
looks into an index first and takes the log's size after that: whatever an index names was in the
file before it was named.

An index is only believed as far as the log bears it out: the batch at an entry's position, or one
behind it, ends at the entry's offset; the batch that a time index names has that timestamp. Where
it does not, both indexes are made anew from the log, once, and the question is asked again.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from cordwood.format.control_record import EndTxnMarker
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.record_batch import BatchHeader
from cordwood.model.config import LogConfig
from cordwood.model.config_values import LONG_MAX
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import File
from cordwood.storage.segment.batch_walk import (
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
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_recovery import SegmentWalk
from cordwood.storage.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from cordwood.storage.segment.timestamp_lookup import (
    TimestampAndOffset,
    first_at_or_after,
    first_with,
    require_entry,
)
from cordwood.storage.segment.transaction_index import TransactionIndex

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SegmentReads:
    """A segment as its readers see it; see the module."""

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
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "directory",
        "naming_lock",
        "path",
        "roll_jitter_ms",
        "size_bytes",
        "suffix",
        "transaction_index",
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
        size_bytes: int,
        is_new: bool,
        on_warning: Callable[[str], None] | None,
    ) -> None:
        """Use `LogSegment.create` or `LogSegment.open`."""
        self.directory = directory
        self.suffix = ""
        self.base_offset = base_offset
        self.path = directory / segment_file_name(base_offset, LOG_SUFFIX)
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        # Invariant: as many bytes of the file are whole batches, and readers see those.
        self.size_bytes = size_bytes
        self.bytes_since_last_index_entry = 0
        self.naming_lock = threading.Lock()
        self._resources = resources
        self._index_interval_bytes = config.index_interval_bytes
        self._max_index_bytes = config.segment_index_bytes
        self._on_warning = on_warning
        # Held while entries are added to the indexes, or both are made anew.
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
        # No file is set aside for an index, so that there is always room for a whole one.
        self.resize_indexes(config.segment_index_bytes)

    def __str__(self) -> str:
        known = self._max_timestamp
        return (
            f"LogSegment(baseOffset={self.base_offset}, size={self.size_bytes}, "
            f"lastModifiedTime={self._modified_ms_or_0()}, "
            f"largestRecordTimestamp={NO_TIMESTAMP if known is None else known})"
        )

    __repr__ = __str__

    # ---- indexes and what they say

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, in memory and in accord with the log's end."""
        if not self._offset_index.is_loaded:
            self._mend(self._check_offset_index)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, in memory and in accord with the log."""
        if not self._time_index.is_loaded:
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

    def set_last_modified(self, modified_ms: int) -> None:
        """Sets the modification time of the log and its indexes, of those that are there."""
        for path in (self.path, self._offset_index.path, self._time_index.path):
            with suppress(FileNotFoundError):
                self._resources.fs.set_modified(path, modified_ms * 1_000_000)

    def resize_indexes(self, size_bytes: int) -> None:
        """Says how many bytes each index may hold; no entry goes, and nothing is read."""
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
        self, start_offset: int, end_offset: int
    ) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
        """Batches with a producer id that reach into offsets from start to end, exclusive.

        With each control batch comes its marker, None if a clean has taken it away.

        Raises:
            CorruptError: the log is damaged on the way.
        """
        batch = self._find(start_offset, 0)
        if batch is not None:
            yield from iter_producer_batches(
                self._resources.file(self),
                batch.position,
                self.size_bytes,
                start_offset=start_offset,
                end_offset=end_offset,
                path=self.path,
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
            if entry.timestamp >= 0:
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
        """What `look_up` gives, asked again where the indexes did not fit the log."""
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
        """Makes both indexes anew from the log; False if they cannot get any better by that.

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
        """Puts rebuilt indexes in place; the caller holds the lock."""
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
        """Tells of damage that was mended."""
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
