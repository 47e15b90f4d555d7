"""The indexes of a segment: offsets, timestamps and aborted transactions, checked against its log.

An offset or time index is only believed as far as the log bears it out: the batch at an entry's
position, or one behind it, ends at the entry's offset; the batch that a time index names has that
timestamp. Where it does not, both indexes are rebuilt from the log, once, and the question is asked
again.

The log is an argument of each question, so that indexes and segment do not refer to each other in a
circle, which only the garbage collector would end.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from cordwood.configs.log_config import LogConfig
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError, NoSpaceError, OversizedRecordError
from cordwood.storage.filesystem import File
from cordwood.storage.reading.batch_heads import (
    HEADER_READ_BYTES,
    LARGE_BATCH_BYTES,
    READ_BYTES,
    BatchHead,
    BatchPosition,
    find_offset,
    iter_heads,
)
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.segment.index_files import IndexFiles
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.resources import FileOwner, ResourceCache
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_recovery import Completed, SegmentWalk
from cordwood.storage.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from cordwood.storage.segment.timestamp_lookup import (
    TimestampAndOffset,
    first_at_or_after,
    largest_from,
    require_entry,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")


class AppendedBatch(NamedTuple):
    """The facts about a batch that a segment appends; the timestamp in ms, -1 for none."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class IndexedLog(FileOwner, Protocol):
    """The log file that indexes are of."""

    @property
    def size_bytes(self) -> int:
        """Bytes of whole batches."""


class SegmentIndexes:
    """The indexes of one segment; see the module.

    Look-ups raise a CorruptError if the log is damaged on the way to the batch.

    `lock` is held while the log grows or is cut off, and while both indexes are rebuilt.
    """

    __slots__ = (
        "_bytes_since_last_entry",
        "_interval_bytes",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_offsets",
        "_read_bytes",
        "_rebuilds",
        "_resources",
        "_times",
        "_trusts_files",
        "base_offset",
        "files",
        "is_writing",
        "lock",
        "transactions",
        "warn",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        is_new: bool,
        on_warning: Callable[[str], None] | None,
        trusts_files: bool,
    ) -> None:
        """Reads nothing yet.

        Args:
            directory: the partition's.
            base_offset: the segment's.
            config: of the topic.
            resources: keeps the file of the log, and the indexes in memory.
            is_new: the segment is empty, whatever its files hold.
            on_warning: called for damage that was repaired; None logs it.
            trusts_files: what an index says of the segment as a whole is not compared with the log.
        """
        self.base_offset = base_offset
        self.lock = threading.Lock()
        #: Whether both indexes are in memory, and get entries as batches are appended.
        self.is_writing = is_new
        self._resources = resources
        self._interval_bytes = config.index_interval_bytes
        self._bytes_since_last_entry = 0
        self._trusts_files = trusts_files
        self.warn: Callable[[str], None] = _log.warning if on_warning is None else on_warning
        self._rebuilds = 0
        self._read_bytes = READ_BYTES
        # None: not known, the time index will tell.
        self._max_timestamp: int | None = NO_TIMESTAMP if is_new else None
        self._offset_of_max_timestamp = base_offset
        #: The three indexes and their files.
        self.files = IndexFiles(
            directory, base_offset, config=config, resources=resources, is_new=is_new
        )
        self._offsets, self._times = self.files.offsets, self.files.times
        self.transactions = self.files.transactions

    def check_invariants(self, log: IndexedLog) -> None:
        """Asserts that what is in memory points into the log, and is no newer than the newest."""
        for index in (self._offsets, self._times, self.transactions):
            index.check_invariants()
        if self._offsets.is_loaded:
            last = self._offsets.last_entry
            assert last.position <= log.size_bytes, f"{log.path}: {last} behind {log.size_bytes}"
            assert last.offset >= self.base_offset, f"{log.path}: {last} below the base offset"
        newest = self._max_timestamp
        if self._times.is_loaded and newest is not None:
            entry = self._times.last_entry
            assert entry.timestamp <= newest, f"{log.path}: {entry} is newer than {newest}"

    # ---- while the segment is written to

    def begin_writing(self, log: IndexedLog) -> None:
        """Loads both indexes, consistent with the log, before the first write."""
        if self.is_writing:
            return
        self.offset_index(log).pin()
        self.time_index(log).pin()
        if self._max_timestamp is None:
            self._read_max_timestamp(log)
        self.is_writing = True

    def note_appended(self, position: int, batches: Sequence[AppendedBatch]) -> None:
        """Adds entries as they fall due, for batches from a position on; the caller has the lock.

        A set of batches that does not fit an index is only looked up less quickly: the log is
        rolled before the next.
        """
        newest = self._max_timestamp
        assert newest is not None, "known since writing began"
        since = self._bytes_since_last_entry
        interval = self._interval_bytes
        for size, last_offset, timestamp in batches:
            if timestamp > newest:
                self._max_timestamp = newest = timestamp
                self._offset_of_max_timestamp = last_offset
            if since > interval:
                if not (self._offsets.is_full or self._times.is_full):
                    self._offsets.append(last_offset, position)
                    self._times.maybe_append(newest, self._offset_of_max_timestamp)
                since = 0
            position += size
            since += size
        self._bytes_since_last_entry = since

    def note_completed(self, completed: Completed, last_stable_offset: int) -> None:
        """Adds an aborted transaction; a committed one leaves no trace.

        Raises:
            OSError: the disk refused; a full one does not.

        Source: LogSegment.updateTxnIndex.
        """
        if completed.is_aborted:
            self.transactions.append(
                AbortedTransaction(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=last_stable_offset,
                )
            )

    def finish_writing(self) -> None:
        """Adds the last time index entry, and trims both indexes; the caller has the lock."""
        newest = self._max_timestamp
        assert newest is not None, "known since writing began"
        self._times.maybe_append(newest, self._offset_of_max_timestamp, skip_full_check=True)
        self.files.trim()

    def truncate_to(self, offset: int) -> None:
        """Removes entries for `offset` and beyond; the caller has the lock, and cuts the log."""
        if offset <= self.base_offset:
            self._offsets.truncate()
            self._times.truncate()
            self.transactions.reset()
        else:
            self._offsets.truncate_to(offset)
            self._times.truncate_to(offset)
            self.transactions.truncate_to(offset)
        self.files.resize()
        self.is_writing = True
        self._bytes_since_last_entry = 0

    def find_max_timestamp_again(self, log: IndexedLog) -> None:
        """Reads the largest timestamp of a log that was cut off; the caller has the lock.

        Source: LogSegment.readLargestTimestamp.
        """
        known = self._times.last_entry
        position = self._offsets.lookup(known.offset).position
        later = largest_from(self._resources.file(log), position, log.size_bytes, path=log.path)
        newest = later if later.timestamp > known.timestamp else known
        self._max_timestamp, self._offset_of_max_timestamp = newest.timestamp, newest.offset

    # ---- what they say

    def offset_index(self, log: IndexedLog) -> OffsetIndex:
        """The offset index, in memory and in accord with the log's end."""
        if not self._offsets.is_loaded and not self._trusts_files:
            self._mend(log, lambda: self._check_offset_index(log))
        return self._offsets

    def time_index(self, log: IndexedLog) -> TimeIndex:
        """The time index, loaded, and rebuilt first where it does not agree with the log."""
        if not self._times.is_loaded and not self._trusts_files:
            self._mend(log, lambda: self._check_time_index(log))
        return self._times

    @property
    def known_max_timestamp(self) -> int:
        """The largest timestamp as far as it is known without a look into a file; -1 if not."""
        known = self._max_timestamp
        return NO_TIMESTAMP if known is None else known

    def max_timestamp(self, log: IndexedLog) -> TimestampOffset:
        """The largest timestamp in ms, -1 without one, and the last offset of its first batch."""
        if self._max_timestamp is None:
            self._read_max_timestamp(log)
        known = self._max_timestamp
        assert known is not None, "just read"
        return TimestampOffset(known, self._offset_of_max_timestamp)

    def find(self, log: IndexedLog, offset: int, starting_position: int) -> BatchPosition | None:
        """The first batch from a position on whose last offset is at least `offset`."""
        try:
            return self._find_once(log, offset, starting_position)
        except CorruptError:
            return self._mend(log, lambda: self._find_once(log, offset, starting_position))

    def _find_once(
        self, log: IndexedLog, offset: int, starting_position: int
    ) -> BatchPosition | None:
        position, known = self._offsets.position_of(offset)
        end = log.size_bytes
        if position <= starting_position:
            position, known = starting_position, None
        elif position >= end:
            raise self._wrong_entry(offset if known is None else known, position)
        found = find_offset(
            self._resources.file(log),
            position,
            end,
            offset,
            path=log.path,
            entry_offset=known,
            read_bytes=self._read_bytes,
        )
        if found is not None:
            # What batches are like here is the best guess of what the next one asked for is like.
            is_large = found[3] >= LARGE_BATCH_BYTES
            self._read_bytes = HEADER_READ_BYTES if is_large else READ_BYTES
        return found

    def upper_bound_offset(
        self, log: IndexedLog, start: BatchPosition, size_bytes: int
    ) -> int | None:
        """An offset above all of the `size_bytes` bytes from a batch on, if an index has one."""

        def look_up() -> int | None:
            entry = self._offsets.fetch_upper_bound_offset(start.position, size_bytes)
            if entry is None:
                return None
            self._require_entry(log, entry.offset, entry.position)
            return entry.offset

        return self._mend(log, look_up)

    def find_timestamp(
        self, log: IndexedLog, timestamp: int, starting_offset: int, *, record_bytes_max: int
    ) -> TimestampAndOffset | None:
        """The first record with at least that timestamp (ms) and offset; None if there is none."""

        def look_up() -> TimestampAndOffset | None:
            entry = self._times.lookup(timestamp)
            file = self._resources.file(log)
            heads = self._heads_reaching(log, file, max(entry.offset, starting_offset))
            if entry.timestamp >= 0 and entry.offset >= starting_offset:
                first = self._require_time_entry(log, entry, next(heads, None))
                heads = chain((first,), heads)
            return first_at_or_after(
                heads,
                file,
                timestamp,
                starting_offset,
                record_bytes_max=record_bytes_max,
                path=log.path,
            )

        return self._mend(log, look_up)

    def end(self, log: IndexedLog) -> tuple[int, int]:
        """(next offset, position behind the last whole batch) as far as headers tell."""

        def look_up() -> tuple[int, int]:
            entry = self._offsets.lookup_on_disk(self.base_offset + INT32_MAX)
            next_offset, position = self.base_offset, entry.position
            is_borne_out = position == 0
            file = self._resources.file(log)
            for head in iter_heads(file, position, log.size_bytes, path=log.path, is_strict=False):
                is_borne_out = is_borne_out or head.last_offset == entry.offset
                next_offset = head.last_offset + 1
                position += head.size_bytes
            if not is_borne_out:
                raise self._wrong_entry(entry.offset, entry.position)
            return next_offset, position

        return self._mend(log, look_up)

    # ---- against the log

    def _require_entry(self, log: IndexedLog, offset: int, position: int) -> None:
        """Checks an offset index entry against the log."""
        end = log.size_bytes
        if position >= end:
            raise self._wrong_entry(offset, position)
        file = self._resources.file(log)
        find_offset(file, position, end, offset, path=log.path, entry_offset=offset)

    def _heads_reaching(self, log: IndexedLog, file: File, offset: int) -> Iterator[BatchHead]:
        """The batches that end at or behind an offset; the index entry is checked on the way."""
        position, known = self._offsets.position_of(offset)
        for head in iter_heads(file, position, log.size_bytes, path=log.path):
            if known is not None and head.last_offset >= known:
                if head.last_offset > known:
                    raise self._wrong_entry(known, position)
                known = None
            if head.last_offset >= offset:
                yield head
        if known is not None:
            raise self._wrong_entry(known, position)

    def _require_time_entry(
        self, log: IndexedLog, entry: TimestampOffset, head: BatchHead | None
    ) -> BatchHead:
        """Checks a time index entry against the first batch that ends at or behind its offset."""
        if head is None:
            raise CorruptError(
                f"time index entry {entry} points beyond the log", path=str(self._times.path)
            )
        require_entry(entry, head, path=log.path)
        return head

    def _check_offset_index(self, log: IndexedLog) -> None:
        last = self._offsets.last_entry
        if last.position:
            self._require_entry(log, last.offset, last.position)

    def _check_time_index(self, log: IndexedLog) -> None:
        last = self._times.last_entry
        if last.timestamp >= 0:
            heads = self._heads_reaching(log, self._resources.file(log), last.offset)
            self._require_time_entry(log, last, next(heads, None))

    def _read_max_timestamp(self, log: IndexedLog) -> None:
        """Learns the largest timestamp from the time index, without reading all of it."""

        def look_up() -> TimestampOffset:
            entry = self._times.last_entry_on_disk()
            if entry.timestamp >= 0 and not self._trusts_files:
                known = self._offsets.lookup_on_disk(entry.offset)
                file, end = self._resources.file(log), log.size_bytes
                batch = find_offset(
                    file,
                    known.position,
                    end,
                    entry.offset,
                    path=log.path,
                    entry_offset=known.offset if known.position else None,
                )
                position = end if batch is None else batch.position
                heads = iter_heads(file, position, end, path=log.path)
                self._require_time_entry(log, entry, next(heads, None))
            return entry

        entry = self._mend(log, look_up)
        self._offset_of_max_timestamp = entry.offset
        self._max_timestamp = entry.timestamp

    def _mend(self, log: IndexedLog, look_up: Callable[[], T]) -> T:
        """The result of `look_up`, repeated if the indexes did not match the log."""
        seen = self._rebuilds
        try:
            return look_up()
        except OversizedRecordError:
            raise
        except CorruptError:
            pass
        try:
            # Perhaps the log was cut off between a look into the index and one into the log.
            return look_up()
        except CorruptError as error:
            if not self._rebuild_once(log, seen, error):
                raise
        return look_up()

    def _rebuild_once(self, log: IndexedLog, seen: int, reason: CorruptError) -> bool:
        """Rebuilds both indexes from the log; False if that cannot improve them.

        Args:
            log: the log.
            seen: how often that had been done when the question was asked.
            reason: what was found to be wrong.

        Raises:
            KafkaError: offsets in the log do not ascend, or are out of reach of the base offset.
        """
        with self.lock:
            if self._rebuilds > seen:
                return True
            if self._rebuilds and self._offsets.is_loaded and self._times.is_loaded:
                return False
            self.warn(
                f"Found a corrupted index file corresponding to log file {log.path} due to "
                f"{reason}, rebuilding index files..."
            )
            self._rebuild(log)
            return True

    def rebuild(self, log: IndexedLog) -> None:
        """Rebuilds both indexes from the log's headers; the log does not change.

        Raises:
            KafkaError: offsets do not ascend, or are out of reach of the base offset.
        """
        with self.lock:
            self._rebuild(log)

    def _rebuild(self, log: IndexedLog) -> None:
        builder = self.builder(log)
        file = self._resources.file(log)
        SegmentWalk(file, log.size_bytes, builder, path=log.path, checks_crc=False).run()
        builder.finish()
        self.install(log, builder)
        self._resources.note_rebuild()

    def builder(self, log: IndexedLog) -> IndexBuilder:
        """A builder of the entries of both indexes."""
        return IndexBuilder(self.base_offset, self._interval_bytes, log.path)

    def install(self, log: IndexedLog, builder: IndexBuilder) -> None:
        """Installs rebuilt indexes; the caller has the lock."""
        self._offsets.replace_all(builder.offset_columns)
        self._times.replace_all(builder.time_columns)
        self._max_timestamp = builder.max_timestamp
        self._offset_of_max_timestamp = (
            builder.offset_of_max_timestamp if builder.max_timestamp >= 0 else self.base_offset
        )
        if not self.is_writing:
            try:
                self.files.trim()
            except (NoSpaceError, OSError) as error:
                self.warn(f"Could not write the indexes of {log.path}: {error}")
        self.files.resize()
        self._rebuilds += 1

    def _wrong_entry(self, offset: int, position: int) -> CorruptError:
        return CorruptError(
            f"offset index entry {offset} points to byte {position} of the log, where it is not",
            path=str(self._offsets.path),
        )
