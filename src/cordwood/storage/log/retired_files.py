"""Files of a log that are no longer part of it: renamed to `.deleted`, removed after a delay.

The delay lets readers of other processes finish; readers of this one hold the files open anyway. A
file that a crash leaves `.deleted` is removed when the log is next opened.

Source: org.apache.kafka.storage.internals.log.LocalLog.deleteSegmentFiles,
UnifiedLog.deleteProducerSnapshotAsync.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.storage.segment.log_segment import LogSegment

if TYPE_CHECKING:
    from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def retire(
    log: PartitionLog,
    segments: Sequence[LogSegment],
    *,
    snapshots: Sequence[int] = (),
    at_once: bool = False,
) -> None:
    """Renames the files of segments, and has them removed after file.delete.delay.ms.

    Args:
        log: whose they were; they are in its list no more, or will leave it in this very step.
        segments: already retired ones are passed over.
        snapshots: offsets of producer snapshots that go with them.
        at_once: remove the files now.

    Raises:
        OSError: a file could not be renamed.
    """
    paths: list[Path] = []
    for segment in segments:
        paths += segment.change_suffix("", DELETED_SUFFIX)
        log.context.resources.forget(segment)  # who still reads it holds its file
    for offset in snapshots:
        path = log.producer_state.remove_and_mark_for_deletion(offset)
        if path is not None:
            paths.append(path)
    if not paths:
        return
    log.has_unsynced_names = True

    def remove() -> None:
        with log.context.failures.guard(log.log_dir, f"deleting segments for {log}"):
            for segment in segments:
                if segment.suffix == DELETED_SUFFIX:  # not taken back since
                    _log.info("Deleting segment files %s", segment)
                    segment.close_handlers()
            for path in paths:
                # The directory may have been renamed meanwhile, as a deleted topic's is.
                log.context.fs.remove(log.directory / path.name)
                _log.info("Deleted %s.", log.directory / path.name)

    if at_once:
        remove()
    else:
        log.context.scheduler.schedule_once(
            "delete-file", remove, delay_ms=log.config.file_delete_delay_ms
        )


def take_back(segments: Sequence[LogSegment]) -> None:
    """Gives retired segments their names again: what was to take their place could not be made.

    Raises:
        OSError: a file could not be renamed.
    """
    for segment in segments:
        segment.change_suffix(DELETED_SUFFIX, "")
