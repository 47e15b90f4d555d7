"""The state of producers, rebuilt from a log's segments where no snapshot has it.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import logging

from cordwood.model.errors import NoSpaceError
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: SegmentList,
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    reload_from_clean_shutdown: bool,
    is_strict: bool = True,
) -> None:
    """Brings the state of producers to `log_end_offset`, exclusive, and leaves snapshots.

    If not `is_strict`, a segment counts up to its first damaged batch.

    Raises:
        CorruptError: a batch is damaged.
    """
    bases = [segment.base_offset for segment in segments]
    wanted = [*bases[-2:], log_end_offset]
    if producers.snapshots.latest is None and reload_from_clean_shutdown:
        for offset in wanted:
            producers.update_map_end_offset(offset)
            take_snapshot_if_space(producers)
        return
    was_empty = producers.is_empty and producers.map_end_offset >= log_end_offset
    producers.truncate_and_reload(log_start_offset, log_end_offset, now_ms)
    if log_end_offset > producers.map_end_offset and not was_empty:
        for segment in segments.values(producers.map_end_offset, log_end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.update_map_end_offset(start)
            if segment.base_offset in wanted:
                take_snapshot_if_space(producers)
            batches = segment.producer_batches(start, log_end_offset, is_strict=is_strict)
            producers.replay_all(batches)
    producers.update_map_end_offset(log_end_offset)
    take_snapshot_if_space(producers)


def take_snapshot_if_space(producers: ProducerStateManager) -> None:
    """Leaves a snapshot if the disk has space: without one, the next load reads more of the log."""
    try:
        producers.take_snapshot()
    except NoSpaceError as error:
        _log.warning("No producer snapshot at %s: %s", producers.map_end_offset, error)
