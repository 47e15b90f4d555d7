"""A directory that a running process holds, looked at by another one that changes nothing."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import segment_file_name
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.log_manager import LogManager
from cordwood.storage.overlay_filesystem import OverlayFileSystem
from cordwood.storage.segment.resources import ResourceCache
from support.stored_log import (
    StoredLog,
    StoredLogs,
    Transactions,
    batch_of,
    keys_in,
    put,
    records_in,
)

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100)


class Found:
    """Everything there is to see of a directory: names, bytes, sizes, times, modes, inodes."""

    def __init__(self, root: Path) -> None:
        self.facts = {}
        for path in [root, *root.rglob("*")]:
            status = path.stat()
            data = path.read_bytes() if path.is_file() else b""
            self.facts[str(path)] = (
                data,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_mode,
                status.st_ino,
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Found) and self.facts == other.facts

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def logs(tmp_path: Path) -> StoredLogs:
    """A running process with two partitions of forty records."""
    stored = StoredLogs(tmp_path / "logs", defaults=CONFIG)
    stored.start()
    for name in ("a-0", "b-0"):
        fill(stored.log(name), 40)
    return stored


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        put(log, b"v%d" % log.log_end_offset, key=b"k")
    log.update_high_watermark(log.log_end_offset)


def look(logs: StoredLogs, *, files_max: int = 512) -> LogManager:
    """Opens the directories of a running process from outside."""
    resources = ResourceCache(OverlayFileSystem(), files_max=files_max)
    manager = LogManager(
        logs.directories,
        defaults=logs.defaults,
        broker=BrokerConfig({"num.recovery.threads.per.data.dir": 1}),
        context=LogContext(clock=logs.clock, resources=resources),
    )
    manager.load()
    return manager


def offsets_in(log: PartitionLog) -> list[int]:
    return [offset for offset, *_ in records_in(log)]


def by_name(manager: LogManager) -> dict[str, PartitionLog]:
    return {str(log.topic_partition): log for log in manager.logs()}


def test_logs_in_use_are_readable_and_nothing_on_disk_changes(logs: StoredLogs) -> None:
    root = logs.directories[0]
    before = Found(root)
    manager = look(logs)
    found = by_name(manager)
    assert sorted(found) == ["a-0", "b-0"]
    for name, log in found.items():
        assert records_in(log) == records_in(logs.log(name))
        assert log.log_end_offset == 40
        for offset in range(40):
            data = log.reader.read(offset, 1, isolation=Isolation.LOG_END, min_one=True).read()
            assert int.from_bytes(data[:8], "big") == offset
        assert log.reader.list_offset(logs.clock.now_ms(), isolation=Isolation.LOG_END) is not None
    assert Found(root) == before
    for log in found.values():
        log.flush()
        log.close()
    manager.checkpoint_recovery_points()
    manager.shutdown()
    assert Found(root) == before
    fill(logs.log("a-0"), 5)
    logs.manager.shutdown()
    logs.start()
    assert offsets_in(logs.log("a-0")) == list(range(45))


def test_the_lock_is_neither_taken_nor_removed(logs: StoredLogs) -> None:
    lock = logs.directories[0] / ".lock"
    inode = lock.stat().st_ino
    first, second = look(logs), look(logs)
    assert sorted(by_name(first)) == sorted(by_name(second)) == ["a-0", "b-0"]
    first.shutdown()
    assert lock.stat().st_ino == inode
    logs.manager.shutdown()
    assert not lock.exists()


def test_a_directory_that_nobody_uses_gets_no_lock_and_keeps_the_mark_of_its_clean_stop(
    logs: StoredLogs,
) -> None:
    logs.manager.shutdown()
    root = logs.directories[0]
    before = Found(root)
    manager = look(logs)
    assert manager.directories[0].had_clean_shutdown
    assert offsets_in(by_name(manager)["a-0"]) == list(range(40))
    manager.shutdown()
    assert Found(root) == before
    assert (root / ".kafka_cleanshutdown").exists()


def append_half_a_batch(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[-1]
    with path.open("ab") as file:
        file.write(batch_of(b"torn", base_offset=40)[:-3])


def append_garbage(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[-1]
    with path.open("ab") as file:
        file.write(bytes(range(256)) * 4)


def append_zeros(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[-1]
    with path.open("ab") as file:
        file.write(bytes(5000))


def tear_the_indexes(directory: Path) -> None:
    for path in directory.glob("*.*index"):
        path.write_bytes(path.read_bytes()[:-1] + b"\xff\xff")


def remove_the_indexes(directory: Path) -> None:
    for path in directory.glob("*.*index"):
        path.unlink()


def leave_deleted_files(directory: Path) -> None:
    for suffix in (".log.deleted", ".index.deleted", ".snapshot.deleted"):
        (directory / segment_file_name(0, suffix)).write_bytes(b"gone")


def leave_a_cleaned_file(directory: Path) -> None:
    (directory / segment_file_name(0, ".log.cleaned")).write_bytes(b"not finished")


def leave_temporary_checkpoints(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    (directory.parent / "recovery-point-offset-checkpoint.tmp").write_bytes(b"0\n")


@pytest.mark.parametrize(
    "damage",
    [
        append_half_a_batch,
        append_garbage,
        append_zeros,
        tear_the_indexes,
        remove_the_indexes,
        leave_deleted_files,
        leave_a_cleaned_file,
        leave_temporary_checkpoints,
    ],
)
def test_what_is_half_written_is_passed_over_and_left_as_it_is(
    logs: StoredLogs, damage: Callable[[Path], None]
) -> None:
    root = logs.directories[0]
    damage(root / "a-0")
    before = Found(root)
    log = by_name(look(logs))["a-0"]
    assert offsets_in(log) == list(range(40))
    assert log.log_end_offset == 40
    data = log.reader.read(39, 1 << 20, isolation=Isolation.LOG_END).read()
    assert int.from_bytes(data[:8], "big") == 39
    assert Found(root) == before


def test_a_preallocated_segment_in_use_is_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path, defaults=LogConfig(segment_bytes=10_000, preallocate=True))
    logs.start()
    fill(logs.log("a-0"), 10)
    assert logs.log("a-0").active.path.stat().st_size == 10_000
    before = Found(tmp_path)
    assert offsets_in(by_name(look(logs))["a-0"]) == list(range(10))
    assert Found(tmp_path) == before


def test_a_swap_in_the_middle_is_seen_finished_and_stays_in_the_middle(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(index_interval_bytes=1))
    log = stored.open(clean=True)
    for n in range(4):
        put(log, b"v", key=b"%d" % n)
    log.roll()
    put(log, b"v", key=b"active")
    log.close()
    data = b"".join(batch_of(b"v", key=b"%d" % n, base_offset=n, leader_epoch=0) for n in (0, 2))
    (stored.directory / segment_file_name(0, ".log.swap")).write_bytes(data)
    before = Found(tmp_path)
    outside = StoredLog(tmp_path, LogConfig(index_interval_bytes=1), fs=OverlayFileSystem())
    seen = outside.open()
    assert keys_in(seen) == [b"0", b"2", b"active"]
    assert Found(tmp_path) == before


def test_transactions_are_seen_as_committed_readers_see_them(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path, defaults=CONFIG)
    logs.start()
    log = logs.log("t-0")
    work = Transactions(log)
    work.write(1, 3)
    work.end(1, commit=False)
    work.plain(2)
    work.write(2, 2)
    before = Found(tmp_path)
    seen = by_name(look(logs))["t-0"]
    seen.update_high_watermark(seen.log_end_offset)
    assert seen.last_stable_offset == 6
    fetched = seen.reader.read(0, 1 << 20, isolation=Isolation.TXN_COMMITTED)
    assert [(a.first_offset, a.last_offset) for a in fetched.aborted or ()] == [(0, 3)]
    assert Found(tmp_path) == before


def test_appends_truncations_and_deletions_stay_in_memory(logs: StoredLogs) -> None:
    root = logs.directories[0]
    before = Found(root)
    manager = look(logs)
    log = by_name(manager)["a-0"]
    fill(log, 60)
    assert offsets_in(log) == list(range(100))
    truncate_to(log, 50)
    log.roll()
    fill(log, 3)
    delete_segments(log, 2, reason="a test")
    log.flush()
    logs.clock.advance(100_000)
    manager.context.scheduler.run_due()
    assert offsets_in(log)[-4:] == [49, 50, 51, 52]
    other = manager.get_or_create(by_name(manager)["b-0"].topic_partition)
    new = manager.get_or_create(type(other.topic_partition)("new", 0))
    fill(new, 3)
    assert offsets_in(new) == [0, 1, 2]
    assert Found(root) == before


def test_a_log_cannot_be_deleted_or_moved_from_outside(logs: StoredLogs) -> None:
    root = logs.directories[0]
    before = Found(root)
    manager = look(logs)
    with pytest.raises(StorageError, match="keeps its name"):
        manager.delete(by_name(manager)["a-0"].topic_partition)
    assert Found(root) == before


def descriptors() -> int:
    """The number of open descriptors, without those that nobody can reach any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_of_files_looked_at_are_bounded(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path, defaults=CONFIG)
    logs.start()
    for n in range(60):
        fill(logs.log(f"t-{n}"), 40)
    logs.manager.context.resources.close()
    open_before = descriptors()
    manager = look(logs, files_max=20)
    assert descriptors() <= open_before + 20
    for log in manager.logs():
        assert offsets_in(log) == list(range(40))
        log.reader.read(3, 100, isolation=Isolation.LOG_END).read()
    assert descriptors() <= open_before + 20


def test_a_log_that_is_appended_to_and_cut_meanwhile_is_seen_up_to_some_moment(
    logs: StoredLogs,
) -> None:
    log = logs.log("a-0")
    fill(log, 25)

    def change(times: int) -> None:
        for _ in range(times):
            fill(log, 25)
            delete_segments(log, 1, reason="a test")
            logs.clock.advance(100_000)
            logs.manager.context.scheduler.run_due()

    def seen() -> list[int] | None:
        try:
            found = by_name(look(logs)).get("a-0")
            # None if a segment went between the listing and the opening
            return None if found is None else offsets_in(found)
        except (CordwoodError, FileNotFoundError):  # segments went faster than they were opened
            return None

    views = []
    with ThreadPoolExecutor(1) as pool:
        for number in range(24):
            times = number % 4
            changing = pool.submit(change, times)
            offsets = seen()
            changing.result(60)
            assert offsets is not None or times
            if offsets is not None:
                views.append(offsets)
    for offsets in views:
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
