"""The common part of the offset index and the time index of a segment.

An index is two columns in memory: keys, which ascend strictly, and values, which never descend. It
is read from its file when it is first asked, and may be let go again; entries not yet in the file
are written by `flush` and `trim`, not one by one: after a crash of the process the segments from
the recovery point on get their indexes rebuilt, as Kafka's do.

One thread appends and truncates; any number may look up meanwhile, without a lock: what they see is
one pair of columns, whose values are never shorter than its keys.

Differs: Kafka sets the whole of segment.index.bytes aside in the file of an index that is being
written, and maps it into memory. Here a file is as long as its entries. Once trimmed, both are the
same bytes.

Source: org.apache.kafka.storage.internals.log.AbstractIndex, LazyIndex.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import le, lt
from pathlib import Path
from struct import Struct
from typing import ClassVar, Literal, Protocol

from cordwood.format.columns import gather, interleave
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.filesystem import OS, File, FileSystem

INT32_MAX = (1 << 31) - 1
_FILE_BYTES_MAX = 64 << 20

Columns = tuple["array[int]", "array[int]"]


class IndexCache(Protocol):
    """The cache that limits the bytes of indexes in memory."""

    def note_index(self, index: SegmentIndex, size_bytes: int) -> None:
        """Registers a loaded index; may call `release` of others."""

    def forget(self, owner: object) -> None:
        """Unregisters an index."""


class SegmentIndex(ABC):
    """Keys and values of one segment's index; see the module."""

    __slots__ = (
        "_cache",
        "_capacity",
        "_columns",
        "_exists",
        "_fs",
        "_has_tail",
        "_is_pinned",
        "_is_synced",
        "_lock",
        "_saved",
        "base_offset",
        "max_index_bytes",
        "path",
        "was_used",
    )

    ENTRY_BYTES: ClassVar[int]
    _KEY: ClassVar[Literal["i", "q"]]
    _ENTRY: ClassVar[Struct]
    _KIND: ClassVar[str]
    #: Whether no two values may be equal.
    _VALUES_ASCEND: ClassVar[bool] = True

    def __init__(
        self,
        path: Path,
        base_offset: int,
        *,
        max_index_bytes: int = -1,
        fs: FileSystem = OS,
        cache: IndexCache | None = None,
        is_new: bool = False,
    ) -> None:
        """Touches no file.

        Args:
            path: the index file, which need not be there.
            base_offset: the segment's.
            max_index_bytes: how much a new file may hold; an existing one holds what it has,
                until `resize`.
            fs: the file system.
            cache: notified when the index is read; None keeps it in memory.
            is_new: the index is empty, whatever the file may hold.
        """
        self.path = path
        self.base_offset = base_offset
        self.max_index_bytes = max_index_bytes
        #: Set by look-ups, cleared by the cache: what is in use is released last.
        self.was_used = False
        self._fs = fs
        self._cache = cache
        self._lock = threading.Lock()
        # Invariant: len(values) >= len(keys), and both equal when nobody is appending.
        self._columns: Columns | None = None
        # Entries that fit; None: as many as the file holds.
        self._capacity: int | None = None
        # Invariant, while columns are there: the first `_saved` of them are in the file.
        self._saved = 0
        self._exists = not is_new
        self._has_tail = False  # the file is longer than the saved entries
        self._is_pinned = is_new  # a writer holds on to the columns
        self._is_synced = True
        if is_new:
            self._columns = self._empty()
            self._capacity = max(0, max_index_bytes) // self.ENTRY_BYTES

    def check_invariants(self) -> None:
        """Asserts that keys and values in memory ascend, and that the file has no more of them."""
        columns = self._columns
        if columns is None:
            return
        keys, values = columns
        assert len(keys) == len(values), f"{self.path}: {len(keys)} keys, {len(values)} values"
        assert self._saved <= len(keys), f"{self.path}: {self._saved} saved of {len(keys)}"
        assert all(map(lt, keys, islice(keys, 1, None))), f"{self.path}: keys do not ascend"
        assert all(map(le, values, islice(values, 1, None))), f"{self.path}: values descend"
        assert not values or values[0] >= 0, f"{self.path}: {values[0]}"

    # ---- what it holds

    @property
    def entries(self) -> int:
        """The number of entries."""
        return len(self.columns()[0])

    @property
    def max_entries(self) -> int:
        """The largest number of entries that fit."""
        capacity = self._capacity
        if capacity is None:
            self.columns()
            capacity = self._capacity
            assert capacity is not None, "set with the columns"
        return capacity

    @property
    def size_bytes(self) -> int:
        """Bytes of its entries."""
        return self.entries * self.ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self._free_entries() <= 0

    def _free_entries(self) -> int:
        columns, capacity = self._columns, self._capacity
        if columns is None or capacity is None:
            return self.max_entries - self.entries
        return capacity - len(columns[0])

    @property
    def is_loaded(self) -> bool:
        """Whether its entries are in memory."""
        return self._columns is not None

    def columns(self) -> Columns:
        """Keys and values, read from the file if they are not in memory.

        Raises:
            CorruptError: the file does not hold an index.
        """
        columns = self._columns
        return columns if columns is not None else self._load()

    def sanity_check(self) -> None:
        """Checks the file as it is now, and what is in memory.

        Raises:
            CorruptError: offsets or timestamps do not ascend, or lie below the segment's, or the
                file's size is not a multiple of an entry's.

        Source: OffsetIndex.sanityCheck, TimeIndex.sanityCheck.
        """
        if self._exists and self._fs.exists(self.path):
            self._require_multiple(self._fs.facts_of(self.path).size_bytes)
        self._require_sane(*self.columns())

    # ---- changes, by the one that writes

    def resize(self, size_bytes: int) -> bool:
        """Sets the maximum size; no entry is removed. Returns whether it has changed.

        An index that is not in memory is not read for that.
        """
        capacity = size_bytes // self.ENTRY_BYTES
        changed = self._capacity != capacity
        self._capacity = capacity
        return changed

    def truncate(self) -> None:
        """Removes all entries."""
        self.replace_all(self._empty())

    def reset(self) -> None:
        """Removes all entries, and makes space for as many as a new index holds."""
        self.truncate()
        self.resize(self.max_index_bytes)

    def replace_all(self, columns: Columns) -> None:
        """Replaces all entries, regardless of the file's content."""
        with self._lock:
            self._columns = columns
            self._is_pinned = True
            self._saved = 0
            self._has_tail = self._exists
            if self._capacity is None:
                self._capacity = len(columns[0])

    @abstractmethod
    def truncate_to(self, offset: int) -> None:
        """Removes entries with an offset at or above `offset`."""

    # ---- its file

    def create_file(self) -> None:
        """Creates the empty file of a new index, in the place of any of that name; syncs nothing.

        Raises:
            NoSpaceError: the file system is full.
        """
        with self._lock:
            assert not self.entries, f"{self.path} is not new"
            self._fs.create(self.path).close()
            self._exists, self._is_synced = True, False
            self._saved, self._has_tail = 0, False

    def flush(self, *, sync: bool = True) -> None:
        """Writes what the file does not have yet, and by default syncs it.

        Raises:
            NoSpaceError: the file system is full; nothing is lost in memory.
        """
        with self._lock:
            self._save(sync=sync)

    def trim(self) -> None:
        """Leaves the file with exactly the entries there are; the index is full then.

        An index that has not been read, and of which nothing waits to be written, is left alone.
        """
        with self._lock:
            columns = self._columns
            if columns is None:
                return
            self._save(sync=False)
            self._capacity = len(columns[0])
            self._is_pinned = False
        if self._cache is not None:
            self._cache.note_index(self, self._memory_bytes(columns))

    def release(self) -> bool:
        """Releases the entries in memory; False if they are being written."""
        with self._lock:
            if self._is_pinned or self._has_unsaved():
                return False
            self._columns = None
            return True

    def delete_if_exists(self) -> bool:
        """Removes the file; whether there was one."""
        with self._lock:
            existed = self._fs.exists(self.path)
            self._fs.remove(self.path)
            # Nothing in memory either, so that no flush brings the file back.
            self._columns = None
            self._exists, self._is_pinned, self._is_synced = False, False, True
        if self._cache is not None:
            self._cache.forget(self)
        return existed

    def rename_to(self, path: Path) -> bool:
        """Renames the file, also one that is created later; returns whether it existed.

        Raises:
            OSError: it could not be renamed.
        """
        with self._lock:
            try:
                if not self._exists:
                    return False
                self._fs.rename(self.path, path)
            except FileNotFoundError:
                return False
            finally:
                self.path = path
            return True

    def close_handlers(self) -> None:
        """Forgets what is in memory, and writes nothing: for a disk that has failed."""
        with self._lock:
            self._is_pinned = False
            self._exists = True
            self._saved = 0
            self._columns = None
        if self._cache is not None:
            self._cache.forget(self)

    # ---- for the classes below

    def relative(self, offset: int) -> int:
        """`offset` as the file holds it.

        Raises:
            SegmentOffsetOverflowError: it does not fit in four bytes.
        """
        relative = offset - self.base_offset
        if 0 <= relative <= INT32_MAX:
            return relative
        raise SegmentOffsetOverflowError(
            f"Integer overflow for offset: {offset} ({self.path})", base_offset=self.base_offset
        )

    def pin(self) -> Columns:
        """The columns, which stay in memory from now on until `trim`."""
        while True:
            self.columns()
            with self._lock:
                if self._columns is not None:
                    self._is_pinned = True
                    return self._columns

    def _slot(self, number: int) -> tuple[int, int]:
        keys, values = self.columns()
        if not 0 <= number < len(keys):
            raise ValueError(
                f"Attempt to fetch the {number}th entry from {self._KIND} {self.path}, which has "
                f"size {len(keys)}"
            )
        return keys[number], values[number]

    def _truncate_to_entries(self, count: int) -> None:
        keys, values = self.pin()
        if count >= len(keys):
            return
        with self._lock:
            # New columns: a lookup in progress continues with the old ones.
            self._columns = (keys[:count], values[:count])
            self._has_tail = self._has_tail or self._saved > count
            self._saved = min(self._saved, count)

    # ---- reading and writing the file

    def _empty(self) -> Columns:
        return array(self._KEY), array("i")

    def _parse(self, data: Buffer) -> Columns:
        stride = self.ENTRY_BYTES
        keys = gather(data, typecode=self._KEY, start=0, stride=stride)
        return keys, gather(data, typecode="i", start=self.ENTRY_BYTES - 4, stride=stride)

    def _load(self) -> Columns:
        with self._lock:
            columns = self._columns
            if columns is not None:
                return columns
            columns = self._read()
            self._columns = columns
        if self._cache is not None:
            self._cache.note_index(self, self._memory_bytes(columns))
        return columns

    def _read(self) -> Columns:
        limit = max(_FILE_BYTES_MAX, self.max_index_bytes)
        file: File | None = None
        try:
            file = self._fs.open(self.path)
            size = file.size()
            if size > limit:
                raise CorruptError(f"{self._KIND} of {size} bytes", path=str(self.path))
            data = file.read_at(size, 0)
        except FileNotFoundError:
            self._exists, self._has_tail, self._saved = False, False, 0
            if self._capacity is None:
                self._capacity = max(0, self.max_index_bytes) // self.ENTRY_BYTES
            return self._empty()
        finally:
            if file is not None:
                file.close()
        self._require_multiple(len(data))
        columns = self._parse(self._without_padding(data))
        self._require_sane(*columns)
        count = len(columns[0])
        self._exists, self._saved = True, count
        self._has_tail = len(data) > count * self.ENTRY_BYTES
        if self._capacity is None:
            self._capacity = len(data) // self.ENTRY_BYTES
        return columns

    def _without_padding(self, data: bytes) -> bytes:
        """Entries without the zeros that a broker which stopped hard leaves behind them.

        Eight or twelve zeros alone are an entry, as an open index is never that small.
        """
        end = len(data.rstrip(b"\0"))
        if end == 0 and len(data) > self.ENTRY_BYTES:
            return b""
        count = max(1, -(-end // self.ENTRY_BYTES))
        return data[: count * self.ENTRY_BYTES]

    def _has_unsaved(self) -> bool:
        columns = self._columns
        if columns is None:
            return False
        return not self._exists or self._has_tail or len(columns[0]) != self._saved

    def _save(self, *, sync: bool) -> None:
        columns = self._columns
        has_unsaved = columns is not None and self._has_unsaved()
        if not has_unsaved and (self._is_synced or not sync):
            return
        file = self._open_to_write()
        try:
            if columns is not None:
                keys, values = columns
                count = len(keys)
                if count > self._saved:
                    data = interleave(keys[self._saved : count], values[self._saved : count])
                    self._is_synced = False
                    file.write_at([data], self._saved * self.ENTRY_BYTES)
                if self._has_tail:
                    self._is_synced = False
                    file.truncate(count * self.ENTRY_BYTES)
                self._saved, self._has_tail = count, False
            if sync:
                try:
                    file.sync()
                except NoSpaceError:
                    # Whatever of it is lost is written again: a second sync alone would not do.
                    self._saved, self._has_tail = 0, True
                    raise
                self._is_synced = True
        finally:
            file.close()

    def _open_to_write(self) -> File:
        if self._exists:
            try:
                return self._fs.open(self.path, write=True)
            except FileNotFoundError:
                if self._columns is None:
                    raise
        # Not there yet, or somebody removed it: all that is in memory is written.
        file = self._fs.create(self.path)
        self._exists, self._is_synced = True, False
        self._saved, self._has_tail = 0, False
        return file

    @staticmethod
    def _memory_bytes(columns: Columns) -> int:
        return sum(len(column) * column.itemsize for column in columns)

    def _require_multiple(self, size_bytes: int) -> None:
        if size_bytes % self.ENTRY_BYTES:
            raise CorruptError(
                f"{self._KIND} is corrupt, found {size_bytes} bytes which is neither positive nor "
                f"a multiple of {self.ENTRY_BYTES}",
                path=str(self.path),
            )

    def _require_sane(self, keys: array[int], values: array[int]) -> None:
        """Checks that offsets ascend from the base offset on, and their positions or times, too."""
        count = min(len(keys), len(values))
        if not count:
            return
        if keys[0] < 0 or values[0] < 0:
            raise CorruptError(
                f"{self._KIND} has an entry below that of the base offset {self.base_offset}",
                path=str(self.path),
            )
        ascend = all(map(lt, islice(keys, count - 1), islice(keys, 1, count)))
        order = lt if self._VALUES_ASCEND else le
        if not ascend or not all(map(order, islice(values, count - 1), islice(values, 1, count))):
            raise CorruptError(f"{self._KIND} has entries that do not ascend", path=str(self.path))


def floor_slot(keys: array[int], key: int) -> int:
    """The slot of the last key <= `key`, -1 if there is none."""
    return bisect_right(keys, key) - 1


def ceiling_slot(column: array[int], value: int) -> int:
    """The slot of the first element >= `value`; the length of the column if there is none."""
    return bisect_left(column, value)
