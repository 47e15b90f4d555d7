"""A disk that is smaller than the machine's."""

from __future__ import annotations

from pathlib import Path

from cordwood.storage.filesystem import OsFileSystem


class SmallDisk(OsFileSystem):
    """The machine's files on a disk of so many bytes, of which those below `root` are used."""

    def __init__(self, root: Path, size_bytes: int) -> None:
        self._root = root
        self._size_bytes = size_bytes

    def free_bytes(self, path: Path) -> int:
        """The free bytes that the logs below `root` leave, wherever `path` is."""
        del path
        used = sum(each.stat().st_size for each in self._root.rglob("*.log*"))
        return self._size_bytes - used
