"""The producers of a log that no broker has open: read as a loader reads them, nothing written.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.rebuildProducerState,
LogLoader.load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from cordwood.format.control_record import EndTxnMarker
from cordwood.format.file_names import (
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    segment_file_name,
)
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.format.record_batch import BatchHeader, RecordBatch, parse_batch
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.producers.producer_snapshots import (
    ProducerSnapshots,
    snapshot_offsets,
    stray_snapshots,
)
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.batch_walk import marker_of
from cordwood.storage.segment_facts import SegmentFacts, headers_from


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


def load_producer_state(
    topic_partition: TopicPartition,
    directory: Path,
    segments: Sequence[SegmentFacts],
    *,
    log_start_offset: int,
    log_end_offset: int,
    end_position: int,
    producer_expiration_ms: int,
    now_ms: int,
    fs: FileSystem = OS,
) -> tuple[ProducerStateManager, list[str]]:
    """The producers at the log's end: the newest good snapshot, and the batches behind it.

    Returns them with warnings of snapshots that are damaged; no file is touched.

    Args:
        topic_partition: of the log.
        directory: the partition's.
        segments: all of them, by base offset.
        log_start_offset: batches wholly below it do not count where there is no snapshot.
        log_end_offset: exclusive.
        end_position: bytes of the last segment that count.
        producer_expiration_ms: producer.id.expiration.ms.
        now_ms: producers that have expired by then are left out.
        fs: where the directory lies.

    Raises:
        CorruptError: a marker cannot be read.
        KafkaError: a batch contradicts the transaction that its producer has open.
    """
    warnings: list[str] = []
    state = ProducerStateManager(
        topic_partition,
        directory,
        producer_id_expiration_ms=producer_expiration_ms,
        snapshots=ProducerSnapshots(directory, fs=fs, read_only=True),
        on_warning=warnings.append,
    )
    state.truncate_and_reload(log_start_offset, log_end_offset, now_ms)
    start = state.map_end_offset
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if is_last or segments[number + 1].base_offset > start:
            end = end_position if is_last else segment.size_bytes
            state.replay_all(_producer_batches(segment, start, end, fs))
    state.update_map_end_offset(log_end_offset)
    state.remove_expired(now_ms)
    return state, warnings


def _producer_batches(
    segment: SegmentFacts, start_offset: int, end_position: int, fs: FileSystem
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """The batches with a producer id that end at `start_offset` or behind it."""
    for position, header in headers_from(segment.path(), 0, end_position, fs=fs):
        if header.has_producer_id and header.last_offset >= start_offset:
            marker = None
            if header.is_control:
                marker = _marker_at(segment.path(), position, header.size_bytes, fs)
            yield header, marker


def _marker_at(path: Path, position: int, size_bytes: int, fs: FileSystem) -> EndTxnMarker | None:
    with closing(fs.open(path)) as file:
        data = file.read_at(size_bytes, position)
    try:
        batch = parse_batch(data)
        if not isinstance(batch, RecordBatch):
            raise CorruptError("a control batch that has changed since its header was read")
        return marker_of(batch)
    except CorruptError as error:
        raise error.located(path=str(path), base_position=position) from error
