"""Power lost at any moment while a running log's segments go to the trash: no record is lost."""

from __future__ import annotations

import random
from pathlib import Path

from cordwood.format.file_names import TRASH_NOTES
from cordwood.format.record_batch import iter_batches
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.trash import trashed_partitions
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.log_under_test import catch_up, new_log
from support.stored_log import batch_of

LOGS, TRASH = Path("/logs"), Path("/trash")
SEGMENTS, IMAGES = 5, 6
DELAY_MS = 60_000


def opened(fs: SimulatedFileSystem, clock: ManualClock, *, clean: bool) -> PartitionLog:
    context = LogContext(clock=clock, resources=ResourceCache(fs))
    context.trash = BrokerTrash(TRASH, [LOGS], fs=fs)
    return new_log(
        LOGS,
        context=context,
        clean=clean,
        recovery_point=0,
        cordwood_trash_ms=3_600_000,
        file_delete_delay_ms=DELAY_MS,
    )


def offsets_in(data: bytes) -> set[int]:
    return {batch.base_offset for _, batch in iter_batches(data)}


def offsets_of(log: PartitionLog) -> tuple[set[int], set[int]]:
    """The offsets that a log has, and those of files in the trash that a note describes."""
    fs = log.context.fs
    served = {o for segment in log.segments for o in offsets_in(fs.read_bytes(segment.path))}
    trashed = set()
    for each in trashed_partitions(TRASH, fs=fs):
        assert set(each.unknown()) <= {f"{TRASH_NOTES}.tmp"}, "only of a note that was cut off"
        for removal in each.removals():
            for file in removal.files:
                path = each.directory / file.stored
                if file.name.endswith(".log") and fs.exists(path):
                    assert fs.facts_of(path).size_bytes == file.size_bytes
                    trashed |= offsets_in(fs.read_bytes(path))
    return served, trashed


def test_a_removed_record_is_in_the_log_or_in_the_trash_after_a_power_loss() -> None:
    fs, clock, rng = SimulatedFileSystem(), ManualClock(), random.Random(5)
    fs.make_directory_durably(LOGS)
    log = opened(fs, clock, clean=True)
    for number in range(SEGMENTS):
        log.append_as_leader(batch_of(b"k%d" % number))
        log.roll()
    catch_up(log)
    log.context.scheduler.run_due()
    log.flush()
    everything = set(range(SEGMENTS))
    checked = 0

    def check(_: FileOperation | None = None) -> None:
        nonlocal checked
        for image in fs.crash_images(IMAGES, rng):
            found = opened(image, ManualClock(), clean=False)
            served, trashed = offsets_of(found)
            assert served | trashed == everything
            checked += 1

    fs.on_operation = check
    delete_segments(log, 2, reason="a test")
    clock.advance(DELAY_MS // 2)
    delete_segments(log, 1, reason="a test")
    clock.advance(DELAY_MS)
    log.context.scheduler.run_due()
    check()
    fs.on_operation = None
    assert offsets_of(log) == (everything - {0, 1, 2}, {0, 1, 2})
    assert checked > 100
    trash = log.context.trash
    assert trash is not None
    assert trash.remove_expired(clock.now_ms()) == 0
    clock.advance(3_600_000)
    assert trash.remove_expired(clock.now_ms()) == 2
    assert offsets_of(log) == (everything - {0, 1, 2}, set())
