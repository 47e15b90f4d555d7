"""File systems, and files, that are only read: all changes are refused."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cordwood.format.varint import Buffer
from cordwood.storage.filesystem import File, FileFacts, FileSystem, Lock


class ReadOnlyFileSystem(FileSystem):
    """A file system whose changes are refused by an `OSError`, EROFS."""

    def create(self, path: Path) -> File:
        """Refuses."""
        refuse(path)

    def rename(self, path: Path, target: Path) -> None:
        """Refuses."""
        del target
        refuse(path)

    def remove(self, path: Path) -> None:
        """Refuses."""
        refuse(path)

    def make_directory(self, path: Path) -> None:
        """Refuses."""
        refuse(path)

    def remove_directory(self, path: Path) -> None:
        """Refuses."""
        refuse(path)

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        """Refuses."""
        del data, model
        refuse(path)

    def sync_directory(self, path: Path) -> None:
        """Does nothing: nothing is written."""

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Refuses."""
        del modified_ns
        refuse(path)

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Does nothing: nothing is written."""

    def lock(self, directory: Path) -> Lock:
        """Takes none."""
        del directory
        return _NoLock()


class _NoLock:
    def release(self) -> None:
        """Does nothing."""


class ReadOnlyFile(ABC):
    """A `File` that can only be read, by `read_at`; errors name it by `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    @abstractmethod
    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes` from `position`; fewer at the end of the file."""

    @abstractmethod
    def size(self) -> int:
        """The file's length in bytes."""

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads, and copies."""
        data = self.read_at(len(view), position)
        view[: len(data)] = data
        return len(data)

    def fileno(self) -> int:
        """Has none."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._name)

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        """Refuses."""
        del parts, position
        refuse(self._name)

    def truncate(self, size_bytes: int) -> None:
        """Refuses."""
        del size_bytes
        refuse(self._name)

    def sync(self) -> None:
        """Refuses."""
        refuse(self._name)


class BytesFile(ReadOnlyFile):
    """A `File` of bytes that are there already."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(name)
        self._content = content

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Cuts the bytes out."""
        return self._content[position : position + size_bytes]

    def size(self) -> int:
        """The number of the bytes."""
        return len(self._content)

    def read_ahead(self) -> None:
        """Does nothing: the hint is not used."""

    def close(self) -> None:
        """Does nothing: nothing is held."""


class PartOfFile(ReadOnlyFile):
    """The bytes of an open file from `start` to before `end`, as a `File` of its own."""

    def __init__(self, name: str, whole: File, start: int, end: int) -> None:
        super().__init__(name)
        self._whole, self._start, self._end = whole, start, end

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads from the whole."""
        start = self._start + position
        return self._whole.read_at(max(min(size_bytes, self._end - start), 0), start)

    def read_ahead(self) -> None:
        """Passes the hint on."""
        self._whole.read_ahead()

    def size(self) -> int:
        """The bytes of the part."""
        return self._end - self._start

    def close(self) -> None:
        """Closes the whole."""
        self._whole.close()


def refuse(path: Path | str) -> NoReturn:
    """Refuses a change of a file.

    Raises:
        OSError: EROFS.
    """
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def missing(path: Path) -> FileNotFoundError:
    """The error of a path at which nothing is."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
