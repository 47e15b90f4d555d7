"""All steps of a compaction in one task, one after the other, of logs whose keys fit its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cordwood.cleanup.log_compaction import LogCompaction
from cordwood.cleanup.tasks import Survivors
from cordwood.cleanup.whole import Indexed, Lane, WholeCompaction, find_survivors
from cordwood.storage.filesystem import OS, FileSystem

#: More keys than a log of a test has.
ENTRIES_MAX: Final = 1 << 22


def survivors_of(compaction: LogCompaction, lanes: Sequence[Lane] = (Lane(),)) -> Survivors:
    """What survives of the dirty and the clean section."""
    return find_survivors(compaction, lanes, entries_max=ENTRIES_MAX)


def clean_whole(
    compaction: LogCompaction, lanes: Sequence[Lane] = (Lane(),), *, fs: FileSystem = OS
) -> Indexed:
    """Indexes, rewrites and finishes; raises as `WholeCompaction` does."""
    work = WholeCompaction(compaction, lanes, fs=fs)
    try:
        indexed = work.index(ENTRIES_MAX)
        work.rewrite()
        work.finish()
    finally:
        work.end()
    return indexed
