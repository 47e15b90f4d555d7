"""What a log knows of its producers: their last batch, and the transactions still open.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager,
UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.format.control_record import parse_end_txn_marker
from cordwood.format.file_names import PRODUCER_SNAPSHOT_SUFFIX, base_offset_of
from cordwood.format.producer_snapshot import (
    ProducerEntry,
    build_producer_snapshot,
    parse_producer_snapshot,
)
from cordwood.format.record_batch import BatchHeader, RecordBatch, parse_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS
from cordwood.storage.segment_facts import SegmentFacts, headers_from

_NONE = -1


class ProducerState:
    """The producers of a log at some offset."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}

    def data_batch(self, header: BatchHeader) -> None:
        """Takes note of a data batch that has a producer id."""
        known = self._entries.get(header.producer_id)
        open_since = known.current_txn_first_offset if known else _NONE
        if header.is_transactional and open_since == _NONE:
            open_since = header.base_offset
        self._entries[header.producer_id] = ProducerEntry(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            last_sequence=header.last_sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp=header.max_timestamp,
            coordinator_epoch=known.coordinator_epoch if known else _NONE,
            current_txn_first_offset=open_since,
        )

    def end_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Takes note of a COMMIT or ABORT marker."""
        known = self._entries.get(
            header.producer_id,
            ProducerEntry(producer_id=header.producer_id, producer_epoch=header.producer_epoch),
        )
        if known.producer_epoch != header.producer_epoch:
            known = ProducerEntry(
                producer_id=header.producer_id, producer_epoch=header.producer_epoch
            )
        self._entries[header.producer_id] = replace(
            known,
            timestamp=header.max_timestamp,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=_NONE,
        )

    def active(self, *, now_ms: int, expiration_ms: int) -> list[ProducerEntry]:
        """The producers that have not expired at `now_ms`, by id."""
        return sorted(
            (
                entry
                for entry in self._entries.values()
                if entry.current_txn_first_offset != _NONE
                or now_ms - entry.timestamp < expiration_ms
            ),
            key=lambda entry: entry.producer_id,
        )

    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction."""
        starts = [
            entry.current_txn_first_offset
            for entry in self._entries.values()
            if entry.current_txn_first_offset != _NONE
        ]
        return min(starts, default=None)


def snapshot_offsets(directory: Path) -> list[int]:
    """The offsets of a directory's producer snapshots, ascending."""
    return sorted(
        base_offset_of(path.name) for path in directory.glob(f"*{PRODUCER_SNAPSHOT_SUFFIX}")
    )


def tidy_snapshots(
    directory: Path,
    bases: Sequence[int],
    *,
    log_start_offset: int,
    log_end_offset: int,
    clean_shutdown: bool,
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
    offsets = snapshot_offsets(directory)
    strays = [offset for offset in offsets if offset not in set(bases)]
    if strays and strays[-1] > bases[-1]:
        strays.pop()
    left = [offset for offset in offsets if offset not in set(strays)]
    if log_start_offset > bases[0]:
        strays += [offset for offset in left if offset <= log_start_offset]
    elif not left and clean_shutdown:
        _write_empty_snapshots(directory, [*bases[-2:], log_end_offset])
    for offset in strays:
        OS.remove(directory / f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}")


def _write_empty_snapshots(directory: Path, offsets: Sequence[int]) -> None:
    last = 0
    for offset in offsets:
        if offset > last:
            path = directory / f"{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}"
            model = OS.facts_of(next(directory.glob("*.log")))
            OS.replace_durably(path, build_producer_snapshot([]), model=model)
            last = offset


def load_producer_state(
    directory: Path,
    segments: list[SegmentFacts],
    *,
    log_start_offset: int,
    log_end_offset: int,
    end_position: int,
) -> tuple[ProducerState, list[str]]:
    """The state at the log's end: the newest good snapshot, and the batches behind it.

    Args:
        directory: the partition's.
        segments: all of them, by base offset.
        log_start_offset: batches wholly below it do not count where there is no snapshot.
        log_end_offset: exclusive.
        end_position: bytes of the last segment that count.
    """
    warnings: list[str] = []
    state, offset = ProducerState(), max(segments[0].base_offset, log_start_offset)
    for at in reversed(snapshot_offsets(directory)):
        if at > log_end_offset:
            continue
        path = directory / f"{at:020d}{PRODUCER_SNAPSHOT_SUFFIX}"
        try:
            state, offset = ProducerState(parse_producer_snapshot(path.read_bytes())), at
        except CorruptError as error:
            warnings.append(f"Failed to load producer snapshot from {path}: {error.reason}")
            continue
        break
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if not last and segments[number + 1].base_offset <= offset:
            continue
        end = end_position if last else segment.size_bytes
        for position, header in headers_from(segment.path(), 0, end):
            if header.last_offset >= offset and header.has_producer_id:
                _replay(state, segment, position, header)
    return state, warnings


def _replay(
    state: ProducerState, segment: SegmentFacts, position: int, header: BatchHeader
) -> None:
    if not header.is_control:
        state.data_batch(header)
        return
    with segment.path().open("rb") as file:
        file.seek(position)
        whole = parse_batch(file.read(header.size_bytes))
    assert isinstance(whole, RecordBatch), "its header was read just now"
    try:
        records = whole.records()
        if records:
            marker = parse_end_txn_marker(records[0].key, records[0].value)
            state.end_marker(header, marker.coordinator_epoch)
    except CorruptError as error:
        raise error.located(path=str(segment.path()), base_position=position) from error
