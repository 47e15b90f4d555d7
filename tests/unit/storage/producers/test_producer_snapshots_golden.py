"""Snapshots that a real Kafka wrote, rebuilt from its logs: every byte, and the entries' order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import Checkpoints, OfflineLogDirectory
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import BatchHeader
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_snapshots import snapshot_offsets
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.reading.batch_heads import marker_of
from support.golden import Golden

DAY_MS = 86_400_000


def batches_of(
    directory: Path, start_offset: int
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """Every batch that ends at `start_offset` or behind it."""
    for log in sorted(directory.glob("*.log")):
        for _, batch in iter_batches(log.read_bytes()):
            assert isinstance(batch, RecordBatch)
            header = batch.header
            if header.last_offset < start_offset:
                continue
            is_marker = header.is_control and header.has_producer_id
            yield header, marker_of(batch) if is_marker else None


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


def loaded(directory: Path, checkpoints: Checkpoints, now_ms: int) -> ProducerStateManager:
    """The state that Kafka had after it had opened a cleanly stopped log."""
    offline = load_offline_log(
        directory,
        TopicPartition.parse(directory.name),
        config=LogConfig(),
        checkpoints=checkpoints,
        clean_shutdown=True,
        producer_expiration_ms=DAY_MS,
        now_ms=now_ms,
    )
    assert not offline.warnings
    return offline.log.producer_state


def test_every_snapshot_is_rebuilt_from_the_logs_start(golden_a: Golden) -> None:
    equal = with_producers = 0
    for partition in OfflineLogDirectory(golden_a.root / "before").partitions():
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
    checkpoints, _ = OfflineLogDirectory(before).checkpoints()
    for partition in OfflineLogDirectory(golden_a.root / "before-2").partitions():
        name = partition.topic_partition
        state = loaded(before / str(name), checkpoints, golden_a.made_at_2_ms)
        found = Comparison(partition.path, state)
        equal += found.equal
        with_producers += found.with_producers
    assert (equal, with_producers) == (174, 35)
