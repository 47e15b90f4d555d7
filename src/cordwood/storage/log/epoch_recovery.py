"""Leader epochs that a log's checkpoint has lost, read from its batches.

Source: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT, is_log_file
from cordwood.format.leader_epoch_checkpoint import build_leader_epoch_checkpoint
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.reading.batch_heads import BatchHead, iter_heads
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

_OFFSETS_END = 1 << 63


def open_epochs(
    directory: Path,
    names: list[str],
    *,
    fs: FileSystem,
    is_repaired: bool,
    on_warning: Callable[[str], None],
) -> LeaderEpochCache:
    """The leader epochs of a log; if their file cannot be read, those that its batches have.

    Args:
        directory: the log's.
        names: of the files in it.
        fs: the file system.
        is_repaired: whether a file that cannot be read is written again.
        on_warning: called for entries that contradict each other.

    Raises:
        CorruptError: the file cannot be read, and is not repaired.

    Differs: Kafka takes the whole log directory offline.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        return LeaderEpochCache(path, fs=fs, on_warning=on_warning)
    except CorruptError as error:
        if not is_repaired:
            raise
        _log.warning("%s; the leader epochs are read from the log", error)
    epochs: dict[int, int] = {}
    for name in filter(is_log_file, names):
        log_path = directory / name
        with closing(fs.open(log_path)) as file:
            for head in iter_heads(file, 0, file.size(), path=log_path, is_strict=False):
                if head.leader_epoch > max(epochs, default=-1):
                    epochs[head.leader_epoch] = head.base_offset
    fs.replace_durably(path, build_leader_epoch_checkpoint(epochs.items()))
    return LeaderEpochCache(path, fs=fs)


def with_first_epochs(
    epochs: LeaderEpochCache, segments: SegmentList, start: int, *, resources: ResourceCache
) -> LeaderEpochCache:
    """The leader epochs with those of the first records, if the file has lost these.

    Records that were deleted may come back, as a log start offset lasts less than the epochs that
    were cut off with them.

    Args:
        epochs: as the file has them.
        segments: of the log.
        start: the log start offset.
        resources: the files of the segments.
    """
    entries = epochs.epoch_entries
    end = entries[0].start_offset if entries else _OFFSETS_END
    if end <= start:
        return epochs
    found: dict[int, int] = {}
    for segment in segments.values(start, end):
        for head in _heads_from(segment, start, resources):
            offset = max(start, head.base_offset)
            if offset >= end or head.leader_epoch < 0:
                break
            if head.leader_epoch > max(found, default=-1):
                found[head.leader_epoch] = offset
    if not found:
        return epochs
    kept = [entry for entry in entries if entry.epoch > max(found)]
    lines = build_leader_epoch_checkpoint([*found.items(), *kept])
    resources.fs.replace_durably(epochs.path, lines)
    return LeaderEpochCache(epochs.path, fs=resources.fs)


def _heads_from(segment: LogSegment, start: int, resources: ResourceCache) -> Iterator[BatchHead]:
    batch = segment.translate_offset(start)
    if batch is not None:
        file, end = resources.file(segment), segment.size_bytes
        yield from iter_heads(file, batch.position, end, path=segment.path, is_strict=False)
