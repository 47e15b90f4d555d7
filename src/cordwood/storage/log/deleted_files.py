"""The files of a log that are marked `.deleted`, until they are removed or moved to the trash.

A name may be marked again while its file waits for removal: a segment was compacted twice within
file.delete.delay.ms, a log was truncated, filled and truncated again. The newer file has then taken
the place of the older one. It must not be removed at the older one's time, when its segment may not
have left the log yet. With a trash, where the older file has a place of its own, that goes there
first (`settle`).

Source: org.apache.kafka.storage.internals.log.LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.model.errors import NoSpaceError, TrashError
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.producers.producer_snapshots import ProducerSnapshots
from cordwood.storage.segment.log_segment import LogSegment

_log = logging.getLogger(__name__)
_TRASH_RETRY_MS = 60_000
_SUFFIXES = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
)


@contextmanager
def no_way_back(directory: Path) -> Iterator[None]:
    """Raises a full disk as OSError, and so takes the directory offline until a restart."""
    try:
        yield
    except NoSpaceError as error:
        raise OSError(errno.ENOSPC, str(error), str(directory)) from error


class LocatedLog(Protocol):
    """A log whose files wait."""

    config: LogConfig

    @property
    def directory(self) -> Path:
        """The present directory of the files."""


class DeletedFiles:
    """Names of marked files and the removals they wait for; any thread may call it.

    `has_unsynced_names` says that files were marked since the last sync of the directory: after a
    crash they may be there under their old names. The log is locked while it is read or set.
    """

    __slots__ = ("_context", "_lock", "_removals", "_snapshots", "has_unsynced_names")

    def __init__(self, context: LogContext, snapshots: ProducerSnapshots) -> None:
        """No file waits; `snapshots` are those of the log's producers."""
        self._context = context
        self._snapshots = snapshots
        self._lock = threading.Lock()
        self._removals: dict[str, object] = {}
        self.has_unsynced_names = False

    def mark(self, segments: Sequence[LogSegment], *, snapshots: Sequence[int] = ()) -> list[str]:
        """Renames the files of segments to `.deleted`; the names, for `remove_later`.

        A file that a crash leaves `.deleted` is removed when the log is next opened.

        Args:
            segments: they are in the log's list no more, or leave it in this very step; those that
                are already marked are skipped.
            snapshots: offsets of producer snapshots that go with them.

        Raises:
            OSError: a file could not be renamed.

        Source: LocalLog.deleteSegmentFiles, UnifiedLog.deleteProducerSnapshotAsync.
        """
        names: dict[str, None] = {}
        for segment in segments:
            names |= dict.fromkeys(self._keep(segment.base_offset))
            paths = segment.change_suffix("", DELETED_SUFFIX)
            names |= dict.fromkeys(path.name for path in paths)
            self._context.resources.forget(segment)  # who still reads it holds its file
        for offset in snapshots:
            path = self._snapshots.mark_for_deletion(offset)
            if path is not None:
                names[path.name] = None
        if names:
            self.has_unsynced_names = True
        return list(names)

    def _keep(self, base_offset: int) -> list[str]:
        """Cancels the removal of files that have this base offset; their names.

        Called before files get these names, which are then removed with the new ones.
        """
        names = [segment_file_name(base_offset, suffix) + DELETED_SUFFIX for suffix in _SUFFIXES]
        with self._lock:
            return [name for name in names if self._removals.pop(name, None) is not None]

    def settle(self, segments: Iterable[LogSegment], directory: Path) -> None:
        """Moves files that wait under the names of these segments to the trash, if there is one.

        To be called before anything of the segments changes.

        Raises:
            TrashError, OSError: one cannot be moved or removed, and waits still.
        """
        if self._context.trash is None:
            return
        self._settle(
            [
                segment_file_name(segment.base_offset, suffix) + DELETED_SUFFIX
                for segment in segments
                for suffix in _SUFFIXES
            ],
            directory,
        )

    def settle_all(self, directory: Path) -> None:
        """Moves every file that waits to the trash, if there is one."""
        if self._context.trash is None:
            return
        with self._lock:
            names = list(self._removals)
        self._settle(names, directory)

    def _settle(self, names: Iterable[str], directory: Path) -> None:
        for name in names:
            with self._lock:
                if name in self._removals:
                    self._context.dispose(directory / name)
                    del self._removals[name]

    def remove_later(
        self, log: LocatedLog, segments: Sequence[LogSegment], names: Sequence[str]
    ) -> None:
        """Has marked files removed, or moved to the trash, after file.delete.delay.ms.

        The delay lets readers of other processes finish; readers of this one hold the files open
        anyway. With a delay of 0 another thread removes them at once, so the segments must have
        left the log's list: a reader that misses a file of a segment in the list takes the disk
        for failed.

        Args:
            log: whose directory may be renamed meanwhile, as a deleted topic's is.
            segments: whose files they are; their indexes are released.
            names: of the files; nothing happens without one.
        """
        if not names:
            return
        delay_ms = log.config.file_delete_delay_ms
        removal = object()
        with self._lock:
            self._removals.update(dict.fromkeys(names, removal))

        def schedule(after_ms: int) -> None:
            self._context.scheduler.schedule_once("delete-file", run, delay_ms=after_ms)

        def run() -> None:
            doing = f"deleting segments for {log}"
            try:
                with self._context.failures.guard(log.directory.parent, doing):
                    self._remove(log, segments, names, removal)
            except TrashError as error:
                _log.warning("%s; it is tried again", error)
                schedule(_TRASH_RETRY_MS)

        schedule(delay_ms)

    def _remove(
        self,
        log: LocatedLog,
        segments: Sequence[LogSegment],
        names: Sequence[str],
        removal: object,
    ) -> None:
        for segment in segments:
            _log.info("Deleting segment files %s", segment)
            segment.close_handlers()
        for name in names:
            path = log.directory / name
            with self._lock:  # held for one file: a name is not given meanwhile
                if self._removals.get(name) is not removal:
                    continue
                self._context.dispose(path)
                del self._removals[name]
            _log.info("Deleted %s.", path)

    def remove_all(self, directory: Path, fs: FileSystem) -> list[str]:
        """Removes at once every file that waits; their names.

        Raises:
            OSError: a file could not be removed; it waits no more, and goes when the log is opened.
        """
        removed: list[str] = []
        while True:
            with self._lock:
                if not self._removals:
                    break
                name, _ = self._removals.popitem()
                fs.remove(directory / name)
            removed.append(name)
        if removed:
            fs.sync_directory(directory)
        return removed
