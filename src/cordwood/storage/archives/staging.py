"""Staged files of a compaction in an archive: workers on other machines share nothing else.

A rewritten segment's file is put where it will stay, as an object that no manifest names yet; what
is announced, and the marks of an attempt, are small objects below `staging/`.

| path, in the directory of a log's staging | key |
| --- | --- |
| `BASE.log.TOKEN.staged`, and of indexes | `data/TOPIC-TOPICID/PARTITION/BASE-TOKEN.log` |
| any other name | `staging/TOPIC-TOPICID/PARTITION/NAME` |
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cordwood.format.varint import Buffer
from cordwood.storage.archives.digested import CHUNK_BYTES, put_digested
from cordwood.storage.archives.manifest import DATA, ArchivedLogId
from cordwood.storage.archives.object_file import ObjectFile
from cordwood.storage.filesystem import File
from cordwood.storage.objects.object_store import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
)
from cordwood.storage.replace import STAGED_SUFFIX

STAGING: Final = "staging/"

_SEGMENT_FILE: Final = re.compile(
    rf"(\d{{20}})(\.log|\.index|\.timeindex|\.txnindex)\.(\w+){re.escape(STAGED_SUFFIX)}", re.ASCII
)


def staged_key(place: str, name: str) -> str:
    """The key of a staged file; `place` is that of the log, and ends with a slash."""
    found = _SEGMENT_FILE.fullmatch(name)
    if found is None:
        return f"{STAGING}{place}{name}"
    base, suffix, token = found.groups()
    return f"{DATA}{place}{base}-{token}{suffix}"


class Staging:
    """The staged files of an archive, by paths below `root`; each is written once, then read."""

    def __init__(self, store: ObjectStore, root: Path) -> None:
        """Asks nothing yet."""
        self._store = store
        self.root = root
        self._digests: dict[str, str] = {}

    def directory_of(self, log: ArchivedLogId) -> Path:
        """The directory in which tasks stage what they write of a log."""
        return self.root / log.place

    def has(self, path: Path) -> bool:
        """Whether a path is of a staged file, or of a directory of such."""
        return path.is_relative_to(self.root)

    def key_of(self, path: Path) -> str:
        """The key of a staged file."""
        return staged_key(f"{path.parent.relative_to(self.root)}/", path.name)

    def digest_of(self, path: Path) -> str:
        """The SHA-256, in hexadecimal, of a file that was written in this process."""
        return self._digests[self.key_of(path)]

    def names_in(self, directory: Path) -> list[str]:
        """The names of what is announced and marked; not those of segments' files."""
        prefix = f"{STAGING}{directory.relative_to(self.root)}/"
        return sorted(each.key.removeprefix(prefix) for each in self._store.list(prefix))

    def size_of(self, path: Path) -> int | None:
        """The bytes of a file, None if there is none."""
        try:
            return self._store.size(self.key_of(path))
        except ObjectMissingError:
            return None

    def opened(self, path: Path) -> File:
        """A file to be read."""
        size_bytes = self.size_of(path)
        if size_bytes is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return ObjectFile(self._store, self.key_of(path), size_bytes)

    def create(self, path: Path) -> File:
        """A new file, which is put when it is synced or closed."""
        return _StagedFile(self._store, self.key_of(path), self._digests)

    def rename(self, path: Path, target: Path) -> None:
        """Puts a small file under another name; it is there as a whole or not at all."""
        self._store.put(self.key_of(target), self._store.get(self.key_of(path)))
        self._store.delete([self.key_of(path)])

    def remove(self, path: Path) -> None:
        """Removes a file."""
        self._store.delete([self.key_of(path)])


class _StagedFile:
    """A `File` that is kept in a temporary file here until it is put as a whole."""

    def __init__(self, store: ObjectStore, key: str, digests: dict[str, str]) -> None:
        self._store = store
        self._key = key
        self._digests = digests
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this file
        self._size = 0
        self._is_put = False

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads what was written."""
        self._file.seek(position)
        return self._file.read(size_bytes)

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads what was written."""
        data = self.read_at(len(view), position)
        view[: len(data)] = data
        return len(data)

    def read_ahead(self) -> None:
        """Does nothing."""

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        """Writes to the temporary file."""
        self._file.seek(position)
        for part in parts:
            self._file.write(part)
        self._size = max(self._size, self._file.tell())
        self._is_put = False

    def truncate(self, size_bytes: int) -> None:
        """Cuts the temporary file off."""
        self._file.truncate(size_bytes)
        self._size = size_bytes
        self._is_put = False

    def sync(self) -> None:
        """Puts the object."""
        if self._is_put:
            return
        starts = range(0, self._size, CHUNK_BYTES)
        chunks = (self.read_at(CHUNK_BYTES, start) for start in starts)
        try:
            digest = put_digested(self._store, self._key, chunks, self._size)
        except ObjectStoreError as error:
            raise OSError(errno.EIO, str(error), self._store.url_of(self._key)) from error
        self._digests[self._key] = digest
        self._is_put = True

    def size(self) -> int:
        """The bytes that were written."""
        return self._size

    def fileno(self) -> int:
        """Has none."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._store.url_of(self._key))

    def close(self) -> None:
        """Puts the object, unless that was done."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                with suppress(OSError):
                    self._file.close()
