"""Room kept on a disk, so that a broker whose disk is full can still do what it cannot do without.

A file of zeros beside the partitions. It is given up where the metadata log must be written: to
delete a topic, to stop, to start; and taken again as soon as there is room. A clean stop leaves
none. Kafka has no such thing: it halts when its disk is full.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)

RESERVE = "cordwood.reserve"
_PART_BYTES = 1 << 16


class RoomReserve:
    """The file, in one log directory that this process holds."""

    def __init__(self, log_dir: Path, *, size_bytes: int, fs: FileSystem) -> None:
        """Nothing is touched yet.

        Args:
            log_dir: where.
            size_bytes: how much to keep; 0 for nothing.
            fs: of the directory.
        """
        self._path = log_dir / RESERVE
        self._size_bytes = size_bytes
        self._fs = fs
        self._held_bytes = 0

    def take(self) -> None:
        """Keeps as much as there is room for, up to the size, on top of what is kept already."""
        if self._held_bytes >= self._size_bytes:
            return
        try:
            exists = self._held_bytes > 0
            file = self._fs.open(self._path, write=True) if exists else self._fs.create(self._path)
            try:
                while self._held_bytes < self._size_bytes:
                    part = bytes(min(_PART_BYTES, self._size_bytes - self._held_bytes))
                    file.write_at([part], self._held_bytes)
                    self._held_bytes += len(part)
            finally:
                file.close()
        except (NoSpaceError, OSError) as error:
            # What cannot be written here for another reason, cannot be elsewhere: others will say.
            _log.debug("Only %d bytes are kept: %s", self._held_bytes, error)

    def release(self) -> bool:
        """Gives the room up, also what another process left; whether any was held."""
        held, self._held_bytes = self._held_bytes, 0
        if not self._size_bytes:
            return False
        try:
            self._fs.remove(self._path)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._path, error)
            return False
        return held > 0
