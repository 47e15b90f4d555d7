"""Power lost at any moment while snapshots and leader epochs are written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.format.batch_header import BatchHeader
from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.leader_epochs import EpochEntry, LeaderEpochCache
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem

PARTITION = TopicPartition("test", 0)
DIRECTORY = Path("/logs/test-0")
NOW_MS = 1_700_000_000_000
IMAGES = 12


def disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory(DIRECTORY)
    for directory in (DIRECTORY, DIRECTORY.parent, DIRECTORY.parent.parent):
        fs.sync_directory(directory)
    return fs


def header(offset: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=60,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=1000 + offset % 30,
        producer_epoch=0,
        base_sequence=offset // 30,
        records_count=1,
    )


@pytest.mark.parametrize("sync", [True, False])
def test_what_is_loaded_after_a_power_loss_was_known_at_that_offset(*, sync: bool) -> None:
    fs = disk()
    rng = random.Random(7)
    known: dict[int, list[ProducerEntry]] = {0: []}
    durable = 0
    checked = 0

    def check(_: FileOperation | None = None) -> None:
        nonlocal checked
        for image in fs.crash_images(IMAGES, rng):
            state = ProducerStateManager(PARTITION, DIRECTORY, fs=image, on_warning=lambda _: None)
            state.truncate_and_reload(0, 1000, NOW_MS)
            assert state.map_end_offset >= durable
            assert state.entries() == known[state.map_end_offset]
            checked += 1

    state = ProducerStateManager(PARTITION, DIRECTORY, fs=fs)
    fs.on_operation = check
    for offset in range(60):
        state.replay(header(offset))
        if offset % 12 == 11:
            known[offset + 1] = state.entries()
            state.take_snapshot(sync=sync)
            check()
            state.snapshots.sync(offset + 1)
            durable = offset + 1
            check()
    assert checked > 50


def test_an_epoch_that_was_assigned_outlasts_any_power_loss() -> None:
    fs = disk()
    rng = random.Random(7)
    path = DIRECTORY / LEADER_EPOCH_CHECKPOINT
    before: tuple[EpochEntry, ...] = ()
    after: tuple[EpochEntry, ...] = ()
    checked = 0

    def check(_: FileOperation | None = None) -> None:
        nonlocal checked
        for image in fs.crash_images(IMAGES, rng):
            assert LeaderEpochCache(path, fs=image).epoch_entries in {before, after}
            checked += 1

    cache = LeaderEpochCache(path, fs=fs)
    fs.on_operation = check
    for epoch, start_offset in ((1, 0), (2, 10), (3, 10), (7, 90), (8, 100)):
        after = (*(entry for entry in before if entry.start_offset < start_offset),)
        after = (*after, EpochEntry(epoch, start_offset))
        cache.assign(epoch, start_offset)
        before = after
        check()
    after = ((EpochEntry(3, 20)), *before[2:])
    cache.truncate_from_start(20)
    before = after
    check()
    after = before[:2]
    cache.truncate_from_end(95)
    before = after
    check()
    assert cache.epoch_entries == (EpochEntry(3, 20), EpochEntry(7, 90))
    assert checked > 50
