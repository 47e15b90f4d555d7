"""Open files and loaded indexes of segments, bounded: the least recently used go first.

A process holds thousands of segments, and is allowed far fewer open files. Each file is opened when
it is read or written and stays open within the limit; one beyond the limit is dropped, not
closed: a reader that holds it reads on, and the last to let go closes it. What was written through
it is synced through the next one opened: fsync works on the file, not on the descriptor.

Indexes that are being written to are not let go, whatever the bound.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import OS, File, FileSystem
from cordwood.storage.segment.segment_index import SegmentIndex

_FILES_MAX = 8192


class FileOwner(Protocol):
    """An object that has a file at a path that may change."""

    @property
    def path(self) -> Path:
        """The present path of the file."""

    @property
    def naming_lock(self) -> threading.Lock:
        """Held while the file is given another name."""


class ResourceCache:
    """Bounds open files and index bytes held by segments; any number of threads may call it."""

    def __init__(
        self, fs: FileSystem = OS, *, files_max: int | None = None, index_bytes_max: int = 64 << 20
    ) -> None:
        """Opens nothing yet.

        Args:
            fs: opens the files.
            files_max: how many are kept open; half of what the process may open, within reason, if
                None.
            index_bytes_max: how many bytes of indexes are kept in memory.
        """
        self.fs = fs
        if files_max is None:
            files_max = min(fs.open_files_max() // 2, _FILES_MAX)
        self._files_max = max(1, files_max)
        self._index_bytes_max = index_bytes_max
        self._lock = threading.Lock()
        self._files: OrderedDict[FileOwner, File] = OrderedDict()
        self._indexes: OrderedDict[SegmentIndex, int] = OrderedDict()
        # Invariant: the sum of the values of `_indexes`.
        self._index_bytes = 0
        #: How often an index was wrong and rebuilt: results from the old one may be wrong.
        self.rebuilds = 0

    def check_invariants(self) -> None:
        """Asserts the bounds, and that the bytes of indexes are counted."""
        with self._lock:
            assert len(self._files) <= self._files_max, f"{len(self._files)} files are open"
            held = sum(self._indexes.values())
            assert self._index_bytes == held, f"{self._index_bytes} bytes of indexes, not {held}"

    @property
    def files_open(self) -> int:
        """The number of files that are kept open."""
        return len(self._files)

    @property
    def index_bytes(self) -> int:
        """The number of bytes of the noted indexes."""
        return self._index_bytes

    def file(self, owner: FileOwner) -> File:
        """The owner's file, open for reading and writing.

        It stays open for its users, even after the cache has dropped it.

        Raises:
            OSError: it cannot be opened.
        """
        with self._lock:
            file = self._files.get(owner)
            if file is not None:
                self._files.move_to_end(owner)
                return file
        with owner.naming_lock:
            opened = self.fs.open(owner.path, write=True)
        return self.keep(owner, opened)

    def keep(self, owner: FileOwner, file: File) -> File:
        """Adds an open file; returns the file to use, which is the one added first."""
        with self._lock:
            file = self._files.setdefault(owner, file)
            self._files.move_to_end(owner)
            while len(self._files) > self._files_max:
                self._files.popitem(last=False)
            return file

    def forget(self, owner: object) -> None:
        """Drops the file of a segment, or an index, that will not be asked for again."""
        with self._lock:
            self._files.pop(owner, None)  # type: ignore[call-overload]
            self._index_bytes -= self._indexes.pop(owner, 0)  # type: ignore[call-overload]

    def note_index(self, index: SegmentIndex, size_bytes: int) -> None:
        """Registers an index in memory; the least recently used ones are released for it.

        An index that was looked up since it was last spared is spared once.
        """
        with self._lock:
            self._index_bytes += size_bytes - self._indexes.pop(index, 0)
            self._indexes[index] = size_bytes
            chances = 2 * len(self._indexes)
            while self._index_bytes > self._index_bytes_max and chances > 0:
                chances -= 1
                oldest, held = self._indexes.popitem(last=False)
                is_spared = oldest is index or oldest.was_used
                oldest.was_used = False
                if is_spared or not oldest.release():
                    self._indexes[oldest] = held
                else:
                    self._index_bytes -= held

    def note_rebuild(self) -> None:
        """Notes that an index was wrong and has been rebuilt."""
        with self._lock:
            self.rebuilds += 1

    def close(self) -> None:
        """Releases all files and indexes; their owners open them again when needed."""
        with self._lock:
            self._files.clear()
            for index in self._indexes:
                index.release()
            self._indexes.clear()
            self._index_bytes = 0


def sync_log(file: File) -> None:
    """Syncs a log's file, whose bytes exist nowhere else.

    Raises:
        OSError: it failed, also for lack of space: a second attempt would say nothing about the
            bytes that the first one lost.
    """
    try:
        file.sync()
    except NoSpaceError as error:
        raise OSError(errno.ENOSPC, str(error)) from error
