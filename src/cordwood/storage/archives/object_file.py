"""An object as an open file: read by ranges, in blocks that are kept for small reads."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.storage.objects.object_store import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
)
from cordwood.storage.read_only import ReadOnlyFile

#: What a small read fetches at least: a search of an index reads a few of these.
BLOCK_BYTES: Final = 64 << 10
#: What a request fetches of a file that is read from start to end.
AHEAD_BYTES: Final = 8 << 20
#: The blocks that are kept of a file: the first steps of each search of an index are the same.
_BLOCKS_MAX: Final = 16


class ObjectFile(ReadOnlyFile):
    """A `File` that is an object, which never changes; it can only be read.

    Every method that reads raises `FileNotFoundError` where the object is gone, and `OSError` where
    the store refuses or does not answer.
    """

    def __init__(self, store: ObjectStore, key: str, size_bytes: int | None = None) -> None:
        """Asks nothing yet; the size, if it is not known, with the first read."""
        super().__init__(store.url_of(key))
        self._store = store
        self._key = key
        self._known_size = size_bytes
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._is_sequential = False
        # What was fetched ahead, and where it begins.
        self._ahead, self._ahead_start = b"", 0

    @property
    def _size(self) -> int:
        if self._known_size is None:
            with self._errors():
                self._known_size = self._store.size(self._key)
        return self._known_size

    @contextmanager
    def _errors(self) -> Iterator[None]:
        url = self._store.url_of(self._key)
        try:
            yield
        except ObjectMissingError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        except ObjectStoreError as error:
            raise OSError(errno.EIO, str(error), url) from error

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads from blocks, or a range of its own where it is large."""
        size_bytes = min(size_bytes, self._size - position)
        if size_bytes <= 0:
            return b""
        if self._is_sequential:
            return self._read_ahead(size_bytes, position)
        if size_bytes >= BLOCK_BYTES:
            return self._get(size_bytes, position)
        first, last = position // BLOCK_BYTES, (position + size_bytes - 1) // BLOCK_BYTES
        found = b"".join([self._block(number) for number in range(first, last + 1)])
        start = position - first * BLOCK_BYTES
        return found[start : start + size_bytes]

    def read_ahead(self) -> None:
        """Has reads fetch more than they are asked for."""
        self._is_sequential = True

    def _read_ahead(self, size_bytes: int, position: int) -> bytes:
        start = position - self._ahead_start
        found = self._ahead[start : start + size_bytes] if start >= 0 else b""
        if len(found) < size_bytes:
            self._ahead_start = position + len(found)
            missing = size_bytes - len(found)
            self._ahead = self._get(max(missing, AHEAD_BYTES), self._ahead_start)
            found += self._ahead[:missing]
        return found

    def _block(self, number: int) -> bytes:
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        data = self._get(BLOCK_BYTES, number * BLOCK_BYTES)
        self._blocks[number] = data
        if len(self._blocks) > _BLOCKS_MAX:
            self._blocks.popitem(last=False)
        return data

    def _get(self, size_bytes: int, position: int) -> bytes:
        size_bytes = min(size_bytes, self._size - position)
        with self._errors():
            data = self._store.get_range(self._key, position, size_bytes)
        if len(data) != size_bytes:
            url = self._store.url_of(self._key)
            raise OSError(errno.EIO, f"the object ends before its {self._size} bytes", url)
        return data

    def size(self) -> int:
        """The bytes of the object."""
        return self._size

    def close(self) -> None:
        """Forgets what was fetched."""
        self._blocks.clear()
        self._ahead = b""
