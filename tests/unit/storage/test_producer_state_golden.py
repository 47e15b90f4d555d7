"""Snapshots that a real Kafka wrote, rebuilt from its logs: every byte, and the entries' order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cordwood.format.control_record import EndTxnMarker
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.format.record_batch import BatchHeader, RecordBatch, parse_batch
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_dir import LogDir
from cordwood.storage.producers.producer_snapshots import snapshot_offsets
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.producers.stopped_producers import load_producer_state
from cordwood.storage.segment.batch_walk import marker_of
from cordwood.storage.segment_facts import end_of, headers_from, load_segments
from support.golden import Golden

DAY_MS = 86_400_000


def batches_of(
    directory: Path, start_offset: int
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """Every batch that ends at `start_offset` or behind it."""
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        for position, header in headers_from(log, 0, len(data)):
            if header.last_offset < start_offset:
                continue
            marker = None
            if header.is_control and header.has_producer_id:
                batch = parse_batch(data, position)
                assert isinstance(batch, RecordBatch)
                marker = marker_of(batch)
            yield header, marker


class Comparison:
    """Snapshots of one partition, compared as the log gets to them."""

    def __init__(self, directory: Path, state: ProducerStateManager) -> None:
        self.directory = directory
        self.state = state
        self.equal = 0
        self.with_producers = 0
        start = state.map_end_offset
        self._left = [offset for offset in snapshot_offsets(directory) if offset > start]
        for header, marker in batches_of(directory, start):
            self._compare_up_to(header.base_offset)
            completed = state.replay(header, marker)
            if completed is not None:
                state.complete_transaction(completed)
        self._compare_up_to(1 << 62)

    def _compare_up_to(self, offset: int) -> None:
        while self._left and self._left[0] <= offset:
            path = self.directory / f"{self._left.pop(0):020d}.snapshot"
            assert build_producer_snapshot(self.state.entries()) == path.read_bytes(), path
            self.equal += 1
            self.with_producers += self.state.producer_count > 0


def loaded(directory: Path, log_start: int, now_ms: int) -> ProducerStateManager:
    """The state that Kafka had after it had opened a cleanly stopped log."""
    segments = load_segments(directory, index_interval_bytes=4096).segments
    active = segments[-1]
    end, position = end_of(active.path(), active.base_offset, position=0, end=active.size_bytes)
    state, warnings = load_producer_state(
        TopicPartition.parse(directory.name),
        directory,
        segments,
        log_start_offset=max(log_start, segments[0].base_offset),
        log_end_offset=end,
        end_position=position,
        producer_expiration_ms=DAY_MS,
        now_ms=now_ms,
    )
    assert not warnings
    return state


def test_every_snapshot_is_rebuilt_from_the_logs_start(golden_a: Golden) -> None:
    equal = with_producers = 0
    for partition in LogDir(golden_a.root / "before").partitions():
        state = ProducerStateManager(partition.topic_partition, partition.path / "none")
        found = Comparison(partition.path, state)
        equal += found.equal
        with_producers += found.with_producers
    assert (equal, with_producers) == (161, 25)


def test_every_snapshot_after_a_cleaning_and_a_restart_is_rebuilt_from_the_one_loaded(
    golden_a: Golden,
) -> None:
    equal = with_producers = 0
    before = golden_a.root / "after"
    starts = LogDir(before).checkpoints()[0].log_start
    for partition in LogDir(golden_a.root / "before-2").partitions():
        name = partition.topic_partition
        state = loaded(before / str(name), starts.get(name, 0), golden_a.made_at_2_ms)
        found = Comparison(partition.path, state)
        equal += found.equal
        with_producers += found.with_producers
    assert (equal, with_producers) == (174, 35)
