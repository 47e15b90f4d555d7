"""All steps of a compaction in one task, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.cleanup.log_compaction import LogCompaction
from cordwood.cleanup.whole import Indexed, Lane, WholeCompaction
from cordwood.storage.filesystem import OS, FileSystem


def clean_whole(
    compaction: LogCompaction, lanes: Sequence[Lane] = (Lane(),), *, fs: FileSystem = OS
) -> Indexed:
    """Indexes, rewrites and finishes; raises as `WholeCompaction` does."""
    work = WholeCompaction(compaction, lanes, fs=fs)
    try:
        indexed = work.index()
        work.rewrite()
        work.finish()
    finally:
        work.end()
    return indexed
