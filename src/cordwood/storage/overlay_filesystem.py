"""A file system whose changes stay in memory: for looking at a directory that another process uses.

A log opened through it is recovered, cut and indexed as any other, and not a byte on disk is
touched, nor any lock taken. What the other process writes meanwhile to files that were not changed
here is seen or not, as it happens; a log's end is what it was when it was opened.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.format.varint import Buffer
from cordwood.storage.filesystem import OS, Entry, File, FileFacts, FileSystem, Lock


class _Content:
    """A file's bytes: the beginning of one on disk, and what was added in memory.

    `path` is that of the file on disk, None without one. The reader opens it, so that
    no more descriptors are held than there are readers.
    """

    __slots__ = ("facts", "kept_bytes", "path", "tail")

    def __init__(self, path: Path | None, facts: FileFacts) -> None:
        self.path = path
        self.kept_bytes = 0 if path is None else facts.size_bytes
        self.tail = bytearray()
        self.facts = facts

    def size(self) -> int:
        return self.kept_bytes + len(self.tail)

    def read(self, base: File | None, size_bytes: int, position: int) -> bytes:
        data = b""
        if base is not None and position < self.kept_bytes:
            data = base.read_at(min(size_bytes, self.kept_bytes - position), position)
            if len(data) < min(size_bytes, self.kept_bytes - position):
                return data
        start = position + len(data) - self.kept_bytes
        return data + bytes(self.tail[start : start + size_bytes - len(data)])

    def write(self, base: File | None, data: bytes, position: int) -> None:
        if position < self.kept_bytes:
            self.tail = bytearray(self.read(base, self.size(), 0))
            self.kept_bytes = 0
        at = position - self.kept_bytes
        if at > len(self.tail):
            self.tail += bytes(at - len(self.tail))
        self.tail[at : at + len(data)] = data

    def truncate(self, size_bytes: int) -> None:
        if size_bytes <= self.kept_bytes:
            self.kept_bytes = size_bytes
            self.tail.clear()
        elif size_bytes < self.size():
            del self.tail[size_bytes - self.kept_bytes :]
        else:
            self.tail += bytes(size_bytes - self.size())


class _OverlayFile:
    """A `File` of an overlay; `base` is the open file on disk."""

    __slots__ = ("_base", "_content")

    def __init__(self, content: _Content, base: File | None = None) -> None:
        self._content = content
        self._base = base

    def read_at(self, size_bytes: int, position: int) -> bytes:
        return self._content.read(self._base, size_bytes, position)

    def read_into(self, view: memoryview, position: int) -> int:
        data = self.read_at(len(view), position)
        view[: len(data)] = data
        return len(data)

    def read_ahead(self) -> None:
        """Does nothing: the hint is not passed on."""

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        self._content.write(self._base, b"".join(parts), position)

    def truncate(self, size_bytes: int) -> None:
        self._content.truncate(size_bytes)

    def sync(self) -> None:
        """Does nothing: memory has nothing to wait for."""

    def size(self) -> int:
        return self._content.size()

    def fileno(self) -> int:
        if self._base is not None and not self._content.tail:
            return self._base.fileno()
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def close(self) -> None:
        """Closes the file on disk; what was written stays."""
        if self._base is not None:
            self._base.close()


class _NoLock:
    """A lock that keeps nobody out."""

    def release(self) -> None:
        """Does nothing: nothing is held."""


class OverlayFileSystem(FileSystem):
    """File system over `base`, whose changes are in memory, where nobody else sees them.

    Names and metadata are those of the moment when they were first asked for: a log is loaded from
    one look at its directory.
    """

    def __init__(self, base: FileSystem = OS) -> None:
        self._base = base
        self._listed: dict[Path, list[Entry]] = {}
        self._facts: dict[Path, FileFacts] = {}
        self._files: dict[Path, _Content | None] = {}
        self._directories: dict[Path, bool] = {}

    # ---- looking

    def entries_in(self, directory: Path) -> list[Entry]:
        """Lists what the lower file system has, and what was made or removed here."""
        if self._directories.get(directory) is False:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        entries: dict[str, Entry] = {}
        if directory not in self._directories:
            if directory not in self._listed:
                self._listed[directory] = self._base.entries_in(directory)
            if not self._files and not self._directories:
                return self._listed[directory]
            entries = {entry.name: entry for entry in self._listed[directory]}
        for path, there in self._directories.items():
            if path.parent == directory:
                entries.pop(path.name, None)
                if there:
                    entries[path.name] = Entry(path.name, is_directory=True)
        for path, content in self._files.items():
            if path.parent == directory:
                entries.pop(path.name, None)
                if content is not None:
                    entries[path.name] = Entry(path.name, is_directory=False, is_regular=True)
        return [entries[name] for name in sorted(entries)]

    def exists(self, path: Path) -> bool:
        """Looks a path up here, then in the lower file system."""
        if path in self._files:
            return self._files[path] is not None
        known = self._directories.get(path)
        return self._base.exists(path) if known is None else known

    def is_directory(self, path: Path) -> bool:
        """Looks a directory up here, then in the lower file system."""
        known = self._directories.get(path)
        return self._base.is_directory(path) if known is None else known

    def facts_of(self, path: Path) -> FileFacts:
        """Returns the facts of the file here, or else those of the lower one, read once."""
        content = self._files.get(path)
        if path in self._files:
            if content is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return replace(content.facts, size_bytes=content.size())
        if self._directories.get(path):
            return self.facts_of(path.parent)
        facts = self._facts.get(path)
        if facts is None:
            facts = self._facts[path] = self._base.facts_of(path)
        return facts

    def free_bytes(self, path: Path) -> int:
        """Returns the free bytes of the lower file system."""
        return self._base.free_bytes(path)

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file; what is written stays in memory."""
        if path in self._files:
            content = self._files[path]
            if content is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            source = content.path if content.kept_bytes else None
            return _OverlayFile(content, self._base.open(source) if source else None)
        base = self._base.open(path)
        return _OverlayFile(self._adopt(path), base) if write else base

    def _adopt(self, path: Path) -> _Content:
        content = _Content(path, self._base.facts_of(path))
        self._files[path] = content
        return content

    # ---- changing

    def create(self, path: Path) -> File:
        """Makes a file in memory."""
        if not self.is_directory(path.parent):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        content = _Content(None, self.facts_of(path.parent))
        self._files[path] = content
        return _OverlayFile(content)

    def rename(self, path: Path, target: Path) -> None:
        """Renames a file in memory; a directory cannot be renamed."""
        if self.is_directory(path):
            raise OSError(errno.EROFS, "a directory that is only looked at keeps its name")
        content = self._files.get(path)
        if content is None:
            if path in self._files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            content = self._adopt(path)
        self._files[path] = None
        self._files[target] = content

    def remove(self, path: Path) -> None:
        """Hides a file."""
        self._files[path] = None

    def make_directory(self, path: Path) -> None:
        """Makes a directory in memory."""
        if not self.is_directory(path):
            self.make_directory(path.parent)
            self._directories[path] = True

    def remove_directory(self, path: Path) -> None:
        """Hides an empty directory."""
        if self.entries_in(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._directories[path] = False

    def sync_directory(self, path: Path) -> None:
        """Does nothing: memory has nothing to wait for."""

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets the modification time in memory."""
        content = self._files.get(path)
        if content is None:
            if path in self._files:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            content = self._adopt(path)
        content.facts = replace(
            content.facts, modified_ns=modified_ns, modified_ms=modified_ns // 1_000_000
        )

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Does nothing: owners are those of the disk."""

    def lock(self, directory: Path) -> Lock:
        """Returns a lock that keeps nobody out: the owner of the directory keeps running."""
        return _NoLock()
