"""Space reserved on a disk, so that a broker can write its metadata log when the disk is full.

The reserve is a file of zeros beside the partitions. It is released when the metadata log must be
written: to delete a topic, to stop, to start. It is taken again as soon as the disk has space. A
clean stop removes it.

Differs: Kafka has no reserve; it halts when its disk is full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)

RESERVE = "cordwood.reserve"
_PART_BYTES = 1 << 16

T = TypeVar("T")


class DiskReserve:
    """The file, in one log directory that this process holds."""

    def __init__(self, log_dir: Path, *, size_bytes: int, fs: FileSystem) -> None:
        """Writes nothing yet.

        Args:
            log_dir: the directory of the file.
            size_bytes: how much to reserve; 0 for nothing.
            fs: of the directory.
        """
        self._path = log_dir / RESERVE
        self._size_bytes = size_bytes
        self._fs = fs
        self._held_bytes = 0

    def take(self) -> None:
        """Extends the reserve up to its size, as far as the disk has space."""
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
            # Any other error occurs at the next write of a log too, and is reported there.
            _log.debug("Only %d bytes are reserved: %s", self._held_bytes, error)

    def at_need(self, work: Callable[[], T]) -> T:
        """The result of `work`; on a full disk it is done again in the space of the reserve.

        Raises:
            StorageError: as `work`, which does not fit the reserve either.
        """
        try:
            return work()
        except StorageError as error:
            if not error.is_out_of_space or not self.release():
                raise
            try:
                return work()
            finally:
                self.take()

    def release(self) -> bool:
        """Removes the file, even one of another process; returns whether space was reserved."""
        held, self._held_bytes = self._held_bytes, 0
        if not self._size_bytes:
            return False
        try:
            self._fs.remove(self._path)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._path, error)
            return False
        return held > 0
