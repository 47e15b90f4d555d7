"""Disks that fail: the directory goes offline and is not tried again; others live on."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.log_under_test import catch_up, fetch, new_log, offsets_read, state_of
from support.stored_log import put, records_in

GOOD, BAD = Path("/good"), Path("/bad")


class FailingFileSystem(SimulatedFileSystem):
    """Fails at work of one kind on files of some name, as often as `failures` says.

    `done` counts such work, whether it failed or not.
    """

    def __init__(self, kind: FileOperationKind, name: str = "", *, number: int = errno.EIO) -> None:
        super().__init__()
        self.failures = 0
        self.done = 0

        def fail(operation: FileOperation) -> OSError | None:
            if operation.kind is not kind or not operation.path.is_relative_to(BAD):
                return None
            if name not in operation.path.name:
                return None
            self.done += 1
            if self.failures:
                self.failures -= 1
                return OSError(number, "the disk refuses", str(operation.path))
            return None

        self.fail = fail


def two_logs(
    fs: SimulatedFileSystem, *, flush_messages: int = 1 << 62
) -> tuple[PartitionLog, PartitionLog]:
    """Logs of one process in the good directory and in the bad one; a record in each."""
    context = LogContext(clock=ManualClock(), resources=ResourceCache(fs))
    for root in (GOOD, BAD):
        fs.make_directory(root)
    fs.sync_directory(Path("/"))
    good, bad = (
        new_log(root, fs=fs, context=context, flush_messages=flush_messages) for root in (GOOD, BAD)
    )
    for log in (good, bad):
        put(log, b"first")
        catch_up(log)
    return good, bad


def require_offline(bad: PartitionLog, good: PartitionLog) -> None:
    """Checks that one log refuses all work and the other none."""
    failures = bad.context.failures
    assert set(failures.offline) == {BAD}
    for work in (lambda: put(bad, b"v"), lambda: fetch(bad, 0), bad.flush, bad.roll, bad.close):
        with pytest.raises(StorageError, match="already offline"):
            work()
    assert put(good, b"second").last_offset == 1
    catch_up(good)
    good.flush()
    assert good.offsets.recovery_point == 2
    assert offsets_read(fetch(good, 0)) == [0, 1]


# ---- a failed sync


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_fsync_takes_the_directory_offline_and_is_not_tried_again(number: int) -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC, ".log", number=number)
    good, bad = two_logs(fs)
    fs.failures, tried = 1, fs.done
    with pytest.raises(StorageError):
        bad.flush()
    assert fs.done == tried + 1
    assert bad.offsets.recovery_point == 0
    require_offline(bad, good)
    bad.context.scheduler.run_due()
    assert fs.done == tried + 1, "a second fsync would succeed, and say nothing"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_within_an_append_is_the_appends_error(number: int) -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC, ".log", number=number)
    good, bad = two_logs(fs, flush_messages=1)
    assert bad.offsets.recovery_point == 1
    fs.failures = 1
    with pytest.raises(StorageError):
        put(bad, b"second")
    assert bad.offsets.recovery_point == 1
    require_offline(bad, good)


def test_a_failed_fsync_of_a_directory_takes_it_offline() -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC_DIRECTORY, "t-0")
    good, bad = two_logs(fs)
    fs.failures = 1
    with pytest.raises(StorageError):
        bad.flush()
    assert bad.offsets.recovery_point == 0
    require_offline(bad, good)


def test_a_failed_flush_behind_a_roll_takes_the_directory_offline() -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC, ".snapshot")
    good, bad = two_logs(fs)
    bad.roll()
    fs.failures = 1
    bad.context.scheduler.run_due()
    assert bad.offsets.recovery_point == 0, "not raised: the snapshot is not on disk"
    require_offline(bad, good)


def test_what_a_failed_fsync_has_lost_is_not_below_the_recovery_point() -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC, ".log")
    _, bad = two_logs(fs)
    bad.flush()
    put(bad, b"second")
    fs.failures = 1
    with pytest.raises(StorageError):
        bad.flush()
    assert bad.offsets.recovery_point == 1
    # The kernel has dropped the pages: whatever is synced later, they are gone.
    (image, *_) = fs.crash_images(1, random.Random(0))
    found = new_log(BAD, fs=image, clean=False, recovery_point=bad.offsets.recovery_point)
    assert [value for _, _, _, value in records_in(found)] == [b"first"]


def test_when_bytes_of_a_refused_append_cannot_be_cut_off_the_directory_goes_offline() -> None:
    fs = FailingFileSystem(FileOperationKind.SYNC, ".log")
    good, bad = two_logs(fs)
    fs.capacity_bytes = (1 << 50) - fs.free_bytes(BAD) + 10
    fs.failures = 1
    with pytest.raises(StorageError):
        put(bad, bytes(100))
    fs.capacity_bytes = None
    require_offline(bad, good)


# ---- other failures


@pytest.mark.parametrize(
    ("kind", "name", "work"),
    [
        (FileOperationKind.WRITE, ".log", lambda log: put(log, b"v")),
        (FileOperationKind.CREATE, ".log", lambda log: log.roll()),
        (FileOperationKind.CREATE, ".snapshot", lambda log: log.roll()),
        (FileOperationKind.WRITE, ".timeindex", lambda log: log.roll()),
        (FileOperationKind.READ, ".log", lambda log: fetch(log, 0)),
        (FileOperationKind.TRUNCATE, ".log", lambda log: truncate_to(log, 0)),
        (FileOperationKind.RENAME, ".log", lambda log: truncate_fully_and_start_at(log, 0)),
        (
            FileOperationKind.WRITE,
            "leader-epoch-checkpoint",
            lambda log: put(log, b"v", leader_epoch=5),
        ),
        (
            FileOperationKind.WRITE,
            "leader-epoch-checkpoint",
            lambda log: (log.assign_epoch(5), put(log, b"v", leader_epoch=5)),
        ),
        (FileOperationKind.RENAME, "t-0", lambda log: log.rename_directory(BAD / "u-0")),
    ],
)
def test_an_error_of_the_disk_takes_the_directory_offline_and_no_other(
    kind: FileOperationKind, name: str, work: Callable[[PartitionLog], object]
) -> None:
    fs = FailingFileSystem(kind, name)
    good, bad = two_logs(fs)
    put(bad, b"w", timestamp=1)
    heard: list[Path] = []
    bad.context.failures.subscribe(lambda directory, _: heard.append(directory))
    fs.failures = 1
    with pytest.raises(StorageError) as failed:
        work(bad)
    assert failed.value.code == 56
    assert heard == [BAD]
    require_offline(bad, good)
    assert heard == [BAD], "said once"


def test_a_failed_write_leaves_the_log_as_it_was_in_memory_and_on_disk() -> None:
    fs = FailingFileSystem(FileOperationKind.WRITE, ".log")
    _, bad = two_logs(fs)
    before = state_of(bad)
    fs.failures = 1
    with pytest.raises(StorageError):
        put(bad, b"second", producer=(1, 0, 0))
    assert state_of(bad) == before
    found = new_log(BAD, fs=fs.process_crash(), clean=False)
    assert [value for _, _, _, value in records_in(found)] == [b"first"]


def test_files_that_cannot_be_removed_take_the_directory_offline() -> None:
    fs = FailingFileSystem(FileOperationKind.REMOVE, ".deleted")
    good, bad = two_logs(fs)
    delete_segments(bad, 1, reason="test")
    clock = bad.context.clock
    assert isinstance(clock, ManualClock)
    clock.advance(bad.config.file_delete_delay_ms)
    fs.failures = 1
    bad.context.scheduler.run_due()
    require_offline(bad, good)


def test_what_a_killed_process_had_not_synced_is_when_the_log_is_loaded() -> None:
    """As flush.messages says: it is served from then on."""
    fs = SimulatedFileSystem()
    fs.make_directory(GOOD)
    fs.sync_directory(Path("/"))
    put(new_log(GOOD, fs=fs), b"first")
    killed = fs.process_crash()
    found = new_log(GOOD, fs=killed, clean=False, flush_messages=1)
    assert found.offsets.recovery_point == found.log_end_offset == 1
    for image in killed.crash_images(5, random.Random(1)):
        after = new_log(GOOD, fs=image, clean=False)
        assert [value for _, _, _, value in records_in(after)] == [b"first"]


# ---- flushes beside each other


def test_a_flush_does_not_count_on_the_sync_of_another_that_is_under_way() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(GOOD)
    fs.sync_directory(Path("/"))
    log = new_log(GOOD, fs=fs)
    put(log, b"first")
    seen: list[int] = []

    def meanwhile(operation: FileOperation) -> None:
        """Another flush comes while the first one's sync has only begun."""
        if (
            operation.kind is FileOperationKind.SYNC
            and operation.path.name.endswith(".log")
            and not seen
        ):
            seen.append(log.offsets.recovery_point)
            log.flusher.flush_up_to(1)
            (image, *_) = fs.crash_images(1, random.Random(0))
            found = new_log(GOOD, fs=image, clean=False, recovery_point=log.offsets.recovery_point)
            seen.append(found.log_end_offset)

    fs.on_operation = meanwhile
    log.flusher.flush_up_to(1)
    assert seen == [0, 1], "what is below the recovery point is on disk"
