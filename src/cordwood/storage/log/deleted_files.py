"""The files of a log that are marked `.deleted`, until they are removed.

A name may be marked again while its file waits for removal: a segment was compacted twice within
file.delete.delay.ms, a log was truncated, filled and truncated again. The newer file has then taken
the place of the older one. It must not be removed at the older one's time, when its segment may not
have left the log yet.

Source: org.apache.kafka.storage.internals.log.LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from cordwood.format.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.segment.log_segment import LogSegment

_log = logging.getLogger(__name__)
_SUFFIXES = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
)


class DeletedFiles:
    """Names of marked files and the removals they wait for; any thread may call it."""

    __slots__ = ("_fs", "_lock", "_removals")

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._removals: dict[str, object] = {}

    def keep(self, base_offset: int) -> list[str]:
        """Cancels the removal of files that have this base offset; their names.

        To be called before files get these names, and the names to be removed with the new ones.
        """
        names = [segment_file_name(base_offset, suffix) + DELETED_SUFFIX for suffix in _SUFFIXES]
        with self._lock:
            return [name for name in names if self._removals.pop(name, None) is not None]

    def add(
        self, segments: Sequence[LogSegment], names: Sequence[str], directory: Callable[[], Path]
    ) -> Callable[[], None]:
        """Takes note of marked files; returns the function that removes them.

        Args:
            segments: whose files they are; their indexes are released.
            names: of the files.
            directory: gives the log's directory, which may be renamed meanwhile, as a deleted
                topic's is.
        """
        removal = object()
        with self._lock:
            self._removals.update(dict.fromkeys(names, removal))

        def remove() -> None:
            for segment in segments:
                _log.info("Deleting segment files %s", segment)
                segment.close_handlers()
            for name in names:
                path = directory() / name
                with self._lock:  # held for one file: a name is not given meanwhile
                    if self._removals.get(name) is not removal:
                        continue
                    del self._removals[name]
                    self._fs.remove(path)
                _log.info("Deleted %s.", path)

        return remove
