"""The producer snapshots in a log's directory: which there are, and which may stay.

A snapshot that a crash has left half written has a wrong CRC: the loader drops it and takes the one
before. So none is ever replaced with care, and a roll need not wait for the disk.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, SnapshotFile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from cordwood.format.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from cordwood.format.producer_snapshot import (
    ProducerEntry,
    build_producer_snapshot,
    parse_producer_snapshot,
)
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem

_log = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshots of one log by their offsets.

    A snapshot's offset is the log's end when it was taken, exclusive.
    """

    __slots__ = ("_directory", "_fs", "_offsets")

    def __init__(self, directory: Path, *, fs: FileSystem = OS) -> None:
        self._directory = directory
        self._fs = fs
        self._offsets = set(snapshot_offsets(directory, fs=fs))

    @property
    def offsets(self) -> list[int]:
        """Their offsets, ascending."""
        return sorted(self._offsets)

    @property
    def latest(self) -> int | None:
        """The highest offset."""
        return max(self._offsets, default=None)

    @property
    def oldest(self) -> int | None:
        """The lowest offset."""
        return min(self._offsets, default=None)

    def path(self, offset: int) -> Path:
        """The path of the snapshot at `offset`, whether or not it exists."""
        return self._directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def list_again(self) -> None:
        """Reads the directory again: other code has removed files there."""
        self._offsets = set(snapshot_offsets(self._directory, fs=self._fs))

    def read(self, offset: int) -> list[ProducerEntry]:
        """The entries of a snapshot, in the order stored.

        Raises:
            CorruptError: it is damaged, or of an unknown version.
            OSError: it cannot be read.
        """
        path = self.path(offset)
        try:
            return parse_producer_snapshot(self._fs.read_bytes(path))
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def write(self, offset: int, entries: Sequence[ProducerEntry], *, sync: bool = True) -> Path:
        """Writes a snapshot; its path.

        Args:
            offset: the log's end.
            entries: in the order to be stored.
            sync: return when it is on disk, its name too; else `sync` sees to that.

        Raises:
            NoSpaceError: the file system is full; there is no snapshot at that offset.
        """
        path = self.path(offset)
        file = self._fs.create(path)
        try:
            file.write_at([build_producer_snapshot(entries)], 0)
            if sync:
                file.sync()
        except (NoSpaceError, OSError):
            self._offsets.discard(offset)
            self._fs.remove(path)
            raise
        finally:
            file.close()
        if sync:
            self._fs.sync_directory(self._directory)
        self._offsets.add(offset)
        return path

    def sync(self, offset: int) -> None:
        """Returns when the snapshot at `offset` is on disk; one that is gone is no error."""
        with suppress(FileNotFoundError):
            file = self._fs.open(self.path(offset), write=True)
            try:
                file.sync()
            finally:
                file.close()
            self._fs.sync_directory(self._directory)

    def remove(self, offset: int) -> None:
        """Removes the snapshot at `offset`, if there is one."""
        if offset in self._offsets:
            self._offsets.discard(offset)
            self._fs.remove(self.path(offset))

    def remove_before(self, offset: int) -> None:
        """Removes those below `offset`."""
        for found in self.offsets:
            if found < offset:
                self.remove(found)

    def remove_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Removes those that are not above the log's start, or beyond its end."""
        for offset in self.offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.remove(offset)

    def remove_stray(self, bases: Collection[int]) -> None:
        """Reads the directory again, and removes snapshots that belong to no segment.

        Source: ProducerStateManager.removeStraySnapshots.
        """
        self.list_again()
        for offset in stray_snapshots(self._offsets, bases):
            self.remove(offset)

    def mark_for_deletion(self, offset: int) -> Path | None:
        """Renames the snapshot at `offset`, which counts no more; its new path.

        None where there is none, or somebody else has removed it.

        Source: ProducerStateManager.removeAndMarkSnapshotForDeletion.
        """
        if offset not in self._offsets:
            return None
        self._offsets.discard(offset)
        path = self.path(offset)
        target = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._fs.rename(path, target)
        except FileNotFoundError:
            _log.info(
                "Failed to rename producer state snapshot %s with deletion suffix because it was "
                "already deleted",
                path,
            )
            return None
        return target

    def move_to(self, directory: Path) -> None:
        """The log's directory has another name now."""
        self._directory = directory


def snapshot_offsets(directory: Path, *, fs: FileSystem = OS) -> list[int]:
    """The offsets of a directory's producer snapshots, ascending; none where it is not there.

    Raises:
        CorruptError: the name of one does not begin with an offset.
    """
    try:
        entries = fs.entries_in(directory)
    except FileNotFoundError:
        return []
    return sorted(
        base_offset_of(entry.name)
        for entry in entries
        if entry.name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and not entry.is_directory
    )


def stray_snapshots(offsets: Collection[int], bases: Collection[int]) -> list[int]:
    """The snapshots at no segment's base, without the one that a clean stop has left.

    That is the newest of them, unless it lies below the last base. With no segments at all, the
    newest stays in any case.

    Source: ProducerStateManager.removeStraySnapshots.
    """
    strays = sorted(set(offsets) - set(bases))
    if strays and (not bases or strays[-1] >= max(bases)):
        strays.pop()
    return strays


def tidy_snapshots(
    directory: Path,
    bases: Sequence[int],
    *,
    log_start_offset: int,
    log_end_offset: int,
    clean_shutdown: bool,
    fs: FileSystem = OS,
) -> None:
    """Leaves the snapshots that a loader leaves.

    1. Those at no segment's base go, but the newest of them stays if it lies behind the last base:
       a clean stop writes it at the log's end.
    2. If none is left after a clean stop, empty ones are written.
    3. Else, where the log start offset lies beyond the first base, those up to it go.

    Differs: a loader that finds none, with such a log start offset, writes empty ones and drops
    them again at its next start; here none are written then, so that a second run finds nothing to
    do.

    Source: ProducerStateManager.removeStraySnapshots, truncateAndReload;
    UnifiedLog.rebuildProducerState.
    """
    offsets = snapshot_offsets(directory, fs=fs)
    doomed = stray_snapshots(offsets, bases)
    left = [offset for offset in offsets if offset not in doomed]
    if log_start_offset > bases[0]:
        doomed += [offset for offset in left if offset <= log_start_offset]
    elif not left and clean_shutdown:
        _write_empty_snapshots(directory, bases, log_end_offset, fs)
    for offset in doomed:
        fs.remove(directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX))


def _write_empty_snapshots(
    directory: Path, bases: Sequence[int], log_end_offset: int, fs: FileSystem
) -> None:
    model = fs.facts_of(directory / segment_file_name(bases[-1], LOG_SUFFIX))
    for offset in sorted({*bases[-2:], log_end_offset} - {0}):
        path = directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
        fs.replace_durably(path, build_producer_snapshot([]), model=model)
