"""Lines of checkpoints name a partition, not its topic: they end with the log that they are of."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.format.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_moves import LogMove
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.faulty_filesystem import ERRORS, Faults, FaultyFileSystem, Site
from support.stored_log import StoredLogs, put, records_in

OLD, NEW, OTHER = (UUID(int=number) for number in (1, 2, 3))
X = TopicPartition("x", 0)
KEPT = TopicPartition("kept", 0)
CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


def lines(directory: Path, name: str, fs: FileSystem = OS) -> dict[TopicPartition, int]:
    path = directory / name
    return dict(parse_offset_checkpoint(fs.read_bytes(path))) if fs.exists(path) else {}


def write_lines(directory: Path, name: str, offset: int, fs: FileSystem = OS) -> None:
    """Adds lines of both partitions at an offset."""
    found = {**lines(directory, name, fs), X: offset, KEPT: offset}
    fs.write_durably(directory / name, build_offset_checkpoint(found))


def fill(stored: StoredLogs, partition: TopicPartition, topic_id: UUID, count: int) -> PartitionLog:
    log = stored.manager.get_or_create(partition, topic_id=topic_id)
    for number in range(count):
        put(log, b"%d" % number)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return log


def stopped_with_lines(stored: StoredLogs) -> None:
    """A broker that has stopped in good order; two topics begin at 90, and are clean to there."""
    stored.start()
    for partition, topic_id in ((X, OLD), (KEPT, OTHER)):
        fill(stored, partition, topic_id, 100).delete_records(90)
    stored.manager.context.scheduler.run_due()
    stored.manager.shutdown()
    write_lines(stored.directories[0], CLEANER_OFFSET_CHECKPOINT, 90, stored.fs)


def is_old(log: PartitionLog) -> bool:
    return log.topic_id == OLD


def test_a_topic_made_again_while_its_broker_was_down_keeps_its_records_after_a_kill(
    tmp_path: Path,
) -> None:
    stored = StoredLogs(tmp_path / "logs")
    stopped_with_lines(stored)
    stored.start(is_stray=is_old)
    fill(stored, X, NEW, 10)
    stored.kill()
    stored.start(is_stray=is_old)
    log = stored.manager.require(X)
    assert (log.log_start_offset, log.log_end_offset, len(records_in(log))) == (0, 10, 10)
    kept = stored.manager.require(KEPT)
    assert (kept.log_start_offset, kept.high_watermark) == (90, 100)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_start_drops_the_lines_of_logs_that_are_not_there(tmp_path: Path, name: str) -> None:
    stored = StoredLogs(tmp_path / "logs")
    stopped_with_lines(stored)
    before = lines(stored.directories[0], name)
    assert set(before) == {X, KEPT}
    stored.start(is_stray=is_old)
    assert lines(stored.directories[0], name) == {KEPT: before[KEPT]}


def test_a_start_without_superfluous_lines_writes_no_checkpoint(tmp_path: Path) -> None:
    stored = StoredLogs(tmp_path / "logs")
    stopped_with_lines(stored)
    paths = [stored.directories[0] / name for name in CHECKPOINTS]
    before = [OS.identity_of(path) for path in paths]
    stored.start()
    assert [OS.identity_of(path) for path in paths] == before


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_log_is_not_made_while_a_line_of_its_name_cannot_be_removed(
    tmp_path: Path, name: str
) -> None:
    faults = Faults(tmp_path / "control", tmp_path / "logs")
    stored = StoredLogs(tmp_path / "logs", fs=FaultyFileSystem(faults))
    stored.start()
    write_lines(stored.directories[0], name, 90)
    faults.begin(Site("write", f"logs/{name}.tmp"), ERRORS["ENOSPC"])
    with pytest.raises(StorageError):
        stored.manager.get_or_create(X)
    assert faults.failures()
    assert stored.manager.get(X) is None
    assert not (stored.directories[0] / "x-0").exists()
    faults.end()
    fill(stored, X, NEW, 10)
    stored.kill()
    stored.start()
    log = stored.manager.require(X)
    assert (log.log_start_offset, log.log_end_offset, len(records_in(log))) == (0, 10, 10)


def test_a_deletion_whose_checkpoints_found_the_disk_full_leaves_nothing_for_the_next_log(
    tmp_path: Path,
) -> None:
    faults = Faults(tmp_path / "control", tmp_path / "logs")
    stored = StoredLogs(tmp_path / "logs", fs=FaultyFileSystem(faults))
    stopped_with_lines(stored)
    stored.start()
    faults.begin(Site("write", f"logs/{LOG_START_OFFSET_CHECKPOINT}.tmp"), ERRORS["ENOSPC"])
    stored.manager.delete_all([X])
    assert faults.failures()
    assert lines(stored.directories[0], LOG_START_OFFSET_CHECKPOINT)[X] == 90
    faults.end()
    fill(stored, X, NEW, 10)
    stored.kill()
    stored.start()
    assert len(records_in(stored.manager.require(X))) == 10


def test_a_log_that_moves_back_takes_no_line_of_its_former_place(tmp_path: Path) -> None:
    stored = StoredLogs(tmp_path / "a", tmp_path / "b")
    stored.start()
    log = stored.manager.get_or_create(X, topic_id=OLD, log_dir=stored.directories[0])
    for number in range(10):
        put(log, b"%d" % number)
    log.update_high_watermark(10)
    write_lines(stored.directories[1], LOG_START_OFFSET_CHECKPOINT, 90)
    move = LogMove(stored.manager, X, stored.directories[1])
    assert move.advance()
    assert lines(stored.directories[1], LOG_START_OFFSET_CHECKPOINT) == {KEPT: 90}
    move.finish()
    stored.kill()
    stored.start()
    assert stored.manager.require(X).log_dir == stored.directories[1]
    assert len(records_in(stored.manager.require(X))) == 10


def test_lines_of_a_directory_that_fails_at_the_start_stay(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "control", tmp_path / "a")
    directories = (tmp_path / "a", tmp_path / "b")
    stored = StoredLogs(*directories, fs=FaultyFileSystem(faults))
    stored.start()
    stored.manager.get_or_create(X, topic_id=OLD, log_dir=directories[0])
    stored.manager.shutdown()
    write_lines(directories[0], CLEANER_OFFSET_CHECKPOINT, 90)
    faults.begin(Site("remove", "a/.kafka_cleanshutdown"), ERRORS["EIO"])
    stored.start()
    assert stored.manager.get(X) is None
    assert set(lines(directories[0], CLEANER_OFFSET_CHECKPOINT)) == {X, KEPT}


def test_no_crash_between_a_deletion_and_the_next_log_of_the_name_loses_its_records() -> None:
    fs, rng = SimulatedFileSystem(), random.Random(11)
    directory = Path("/logs")
    stored = StoredLogs(directory, fs=fs)
    stopped_with_lines(stored)
    written, checked = 0, 0

    def check(_: FileOperation | None = None) -> None:
        nonlocal checked
        for image in fs.crash_images(4, rng):
            found = StoredLogs(directory, fs=image)
            found.start(is_stray=is_old)
            log = found.manager.get(X)
            assert written == 0 or log is not None
            if log is not None:
                assert log.log_start_offset == 0
                assert len(records_in(log)) >= written
            assert found.manager.require(KEPT).log_start_offset == 90
            checked += 1

    fs.on_operation = check
    stored.start(is_stray=is_old)
    fill(stored, X, NEW, 10)
    written = 10
    check()
    fs.on_operation = None
    assert checked > 50
