"""From a partition's directory to a frozen view of it: the one way in.

Source: org.apache.kafka.storage.internals.log.LogLoader.load, UnifiedLog.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.log_view import LogView, SegmentView
from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.config import LogConfig
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileFacts
from cordwood.storage.log_dir import Checkpoints
from cordwood.storage.producers.producer_snapshots import snapshot_offsets
from cordwood.storage.producers.stopped_producers import load_producer_state, tidy_snapshots
from cordwood.storage.segment_facts import SegmentFacts, end_of, load_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A view, and what the stages behind the planners need beside it.

    `active_bytes` is how much of the active segment is whole batches. `model` is the file whose
    owner and mode new files take. `beyond_end` is the log start offset where that lies beyond the
    log's end, which Kafka answers by restarting the log there.
    """

    view: LogView
    segments: tuple[SegmentFacts, ...]
    active_bytes: int
    producers: tuple[ProducerEntry, ...]
    aborted: tuple[AbortedTransaction, ...]
    model: FileFacts
    warnings: tuple[str, ...]
    beyond_end: int | None = None


def capture(
    directory: Path,
    topic_partition: TopicPartition,
    *,
    config: LogConfig,
    checkpoints: Checkpoints,
    clean_shutdown: bool,
    producer_expiration_ms: int,
    now_ms: int,
    read_only: bool = False,
) -> Captured:
    """What there is in `directory` at this moment.

    Args:
        directory: the partition's; half-done replacements have been finished or undone.
        topic_partition: whose.
        config: the topic's settings in force.
        checkpoints: those of the log directory.
        clean_shutdown: the broker stopped in good order, so that every byte counts.
        producer_expiration_ms: producer.id.expiration.ms.
        now_ms: for the expiry of producers.
        read_only: repair nothing.

    Raises:
        CorruptError: an index, a checkpoint or a segment's name cannot be read, or the active
            segment has an impossible offset. Nothing has been repaired then.
        OSError: a file cannot be reached, or is no regular file.
    """
    loaded = load_segments(directory, index_interval_bytes=config.index_interval_bytes)
    segments = loaded.segments
    if not segments:
        raise FileNotFoundError(errno.ENOENT, "no segment is left", str(directory))
    warnings = list(loaded.warnings)
    _require_readable_epochs(directory)
    active = segments[-1]
    end, active_bytes = _end_of(active)
    if active_bytes < active.size_bytes:
        warnings.append(
            f"Found invalid messages in log segment {active.path()} at byte offset {active_bytes}: "
            f"{active.size_bytes - active_bytes} bytes behind the last whole batch. Kafka cuts "
            "them off when it recovers the log; they are left as they are."
        )
    log_start = max(checkpoints.log_start.get(topic_partition, 0), segments[0].base_offset)
    beyond_end = None
    if log_start > end:
        beyond_end = log_start
        warnings.append(
            f"Deleting all segments because logEndOffset ({end}) is smaller than logStartOffset "
            f"{log_start}. This could happen if segment files were deleted from the file system."
        )
        log_start = end
    high_watermark = checkpoints.high_watermark.get(topic_partition)
    if high_watermark is None:
        high_watermark = end if clean_shutdown else log_start
    if not clean_shutdown:
        high_watermark = min(high_watermark, checkpoints.recovery_point.get(topic_partition, 0))
    high_watermark = min(max(high_watermark, log_start), end)
    unstable = None
    producers: tuple[ProducerEntry, ...] = ()
    if snapshot_offsets(directory) or not clean_shutdown:
        # Without any after a clean stop, a loader takes the log to have no producers.
        state, more = load_producer_state(
            topic_partition,
            directory,
            segments,
            log_start_offset=log_start,
            log_end_offset=end,
            end_position=active_bytes,
            producer_expiration_ms=producer_expiration_ms,
            now_ms=now_ms,
        )
        warnings += more
        state.on_high_watermark_updated(high_watermark)
        unstable = state.first_unstable_offset
        producers = tuple(state.entries())
    aborted = {entry for segment in segments for entry in segment.aborted_transactions()}
    if not read_only:  # after all that could be refused
        loaded.repair()
        tidy_snapshots(
            directory,
            [segment.base_offset for segment in segments],
            log_start_offset=log_start,
            log_end_offset=end,
            clean_shutdown=clean_shutdown,
        )
    return Captured(
        view=LogView(
            topic_partition=topic_partition,
            segments=tuple(_view_of(s, compact=config.compact) for s in segments),
            log_start_offset=log_start,
            log_end_offset=end,
            high_watermark=high_watermark,
            last_stable_offset=min(high_watermark, end if unstable is None else unstable),
            cleaner_checkpoint=checkpoints.cleaner.get(topic_partition),
            config=config,
        ),
        segments=segments,
        active_bytes=active_bytes,
        producers=producers,
        aborted=tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
        model=OS.facts_of(active.path()),
        warnings=tuple(warnings),
        beyond_end=beyond_end,
    )


def _end_of(active: SegmentFacts) -> tuple[int, int]:
    """(log end offset, position after the last whole batch) of the active segment.

    It is read from its last index entry on, or from its start if the entry points at no batch.
    """
    position = min(active.last_indexed_position, active.size_bytes)
    if position:
        end, after = _read_end(active, position)
        if after > position:
            return end, after
    return _read_end(active, 0)


def _read_end(active: SegmentFacts, position: int) -> tuple[int, int]:
    return end_of(active.path(), active.base_offset, position=position, end=active.size_bytes)


def _require_readable_epochs(directory: Path) -> None:
    """Checks the leader epochs, which are needed once segments have been removed."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        parse_leader_epoch_checkpoint(OS.read_bytes(path))
    except FileNotFoundError:
        return
    except CorruptError as error:
        raise error.located(path=str(path)) from error


def _view_of(segment: SegmentFacts, *, compact: bool) -> SegmentView:
    return SegmentView(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        index_bytes=segment.index_entries * 8,
        time_index_bytes=segment.time_index_entries * 12,
        largest_record_timestamp=segment.largest_timestamp,
        first_batch_timestamp=segment.first_batch_timestamp() if compact else -1,
        modified_ms=segment.modified_ns // 1_000_000,
    )
