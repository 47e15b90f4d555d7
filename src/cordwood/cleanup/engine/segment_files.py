"""Destinations for the bytes of a rewritten segment: staged files, or counters.

`StagedFiles` writes the segment beside the log, under names that no Kafka knows. `CountedFiles`
writes nothing: a compaction that is measured takes no space, and its manifest has the same numbers.
They need no compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from cordwood.cleanup.access.announcements import staging_errors
from cordwood.format.file_names import LOG_SUFFIX, TXN_INDEX_SUFFIX
from cordwood.format.varint import Buffer
from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import OS, FileFacts, FileSystem, FileWriter
from cordwood.storage.replace import StagedSegment


class SegmentFiles(Protocol):
    """Destination for the bytes of a rewritten segment."""

    @property
    def log_bytes(self) -> int:
        """The number of bytes of the log so far."""

    def write_log(self, data: Buffer) -> None:
        """Appends to the log.

        Raises:
            NoSpaceError, StagingError: it cannot be written.
        """

    def finish(self, indexes: Mapping[str, bytes]) -> None:
        """Adds the indexes, by suffix; everything lasts. Another thread may call it.

        Raises:
            NoSpaceError, StagingError: a file cannot be written; all are removed again.
        """

    @property
    def sha256(self) -> dict[str, str]:
        """The digests of the files by suffix, once they are finished; none that is not known."""

    def discard(self) -> None:
        """Removes everything, as far as it can be."""


class StagedFiles:
    """`SegmentFiles` under staged names, with owner, mode and time as Kafka would set them."""

    def __init__(
        self, staged: StagedSegment, *, model: FileFacts, modified_ns: int, fs: FileSystem = OS
    ) -> None:
        """Creates the log.

        Raises:
            NoSpaceError, StagingError: it cannot be created.
        """
        self._fs = fs
        self._model = model
        self._modified_ns = modified_ns
        self._paths = staged.paths()
        log = self._paths[LOG_SUFFIX]
        with staging_errors(log):
            self._log = FileWriter(log, fs=fs)
        self._is_closed = False
        self._sha256: dict[str, str] = {}

    @property
    def sha256(self) -> dict[str, str]:
        """The digests that the file system knows."""
        return self._sha256

    @property
    def log_bytes(self) -> int:
        """The number of bytes written."""
        return self._log.size_bytes

    def write_log(self, data: Buffer) -> None:
        """Appends to the staged log; errors name its path."""
        with staging_errors(self._log.path):
            self._log.write(data)

    def finish(self, indexes: Mapping[str, bytes]) -> None:
        """Writes the indexes, and syncs all files; after an error nothing is left of them."""
        try:
            with staging_errors(self._log.path):
                self._finish(indexes)
        except BaseException:
            self.discard()
            raise

    def _finish(self, indexes: Mapping[str, bytes]) -> None:
        self._is_closed = True
        self._log.close()
        for suffix, data in indexes.items():
            writer = FileWriter(self._paths[suffix], fs=self._fs)
            try:
                writer.write(data)
            finally:
                writer.close()
        for suffix in (LOG_SUFFIX, *indexes):
            path = self._paths[suffix]
            digest = self._fs.digest_of(path)
            if digest:
                self._sha256[suffix] = digest
            self._fs.take_after(path, self._model)
            if suffix != TXN_INDEX_SUFFIX:
                self._fs.set_modified(path, self._modified_ns)

    def discard(self) -> None:
        """Removes the files; those that the disk keeps are removed at the compaction's end."""
        if not self._is_closed:
            self._log.close(durably=False)
        for path in self._paths.values():
            with suppress(OSError, NoSpaceError):
                self._fs.remove(path)


class CountedFiles:
    """`SegmentFiles` of which only the size is known."""

    def __init__(self) -> None:
        self.log_bytes = 0
        self.sha256: dict[str, str] = {}

    def write_log(self, data: Buffer) -> None:
        """Counts the bytes."""
        self.log_bytes += memoryview(data).nbytes

    def finish(self, indexes: Mapping[str, bytes]) -> None:
        """Does nothing: the sizes are in the manifest."""

    def discard(self) -> None:
        """Does nothing: there are no files."""
