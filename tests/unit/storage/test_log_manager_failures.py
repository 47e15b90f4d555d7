"""Directories that fail, fill up or hold what cannot be understood, at the start and later on."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import segment_file_name
from cordwood.format.meta_properties import MetaProperties, build_meta_properties
from cordwood.model.errors import CordwoodError, CorruptError, NotALogDirError
from cordwood.model.kafka_errors import InconsistentTopicIdError, StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.log.leader_epochs import EpochEntry
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_to
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.stored_log import StoredLogs, batch_of, files_of, put, records_in

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100)
A, B = Path("/logs/a"), Path("/logs/b")
TOPIC_ID = parse_uuid("69O438ZkTSeqqclTtZO2KA")
OTHER_ID = parse_uuid("2Ik9_5-oRDOKpSXd2SuG5w")


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def logs(fs: SimulatedFileSystem) -> StoredLogs:
    """Two directories with a partition in each, twenty records in either."""
    stored = StoredLogs(
        A, B, defaults=CONFIG, fs=fs, broker=BrokerConfig({"num.recovery.threads.per.data.dir": 1})
    )
    stored.start()
    for name, directory in (("a-0", A), ("b-0", B)):
        fill(stored.log(name, directory), 20)
    return stored


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        put(log, b"test")
    log.update_high_watermark(log.log_end_offset)


def break_down(
    fs: SimulatedFileSystem,
    directory: Path,
    *,
    kinds: Collection[FileOperationKind] = tuple(FileOperationKind),
    code: int = errno.EIO,
    after: int = 0,
) -> Callable[[], int]:
    """Has every operation below a directory fail from now on, but the first few.

    Returns a function that tells how many were asked for.
    """
    count = 0

    def fail(operation: FileOperation) -> OSError | None:
        nonlocal count
        if operation.kind in kinds and operation.path.is_relative_to(directory):
            count += 1
            if count > after:
                return OSError(code, os.strerror(code), str(operation.path))
        return None

    fs.fail = fail
    return lambda: count


def partitions_of(logs: StoredLogs) -> list[str]:
    return sorted(str(log.topic_partition) for log in logs.manager.logs())


def offsets_in(log: PartitionLog) -> list[int]:
    return [offset for offset, *_ in records_in(log)]


# ---- directories that cannot be used at the start


def test_a_directory_of_an_impossible_name_is_offline_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    logs = StoredLogs(tmp_path / "a", Path("/\0"), tmp_path / "file" / "below", defaults=CONFIG)
    manager = logs.start()
    assert [directory.path for directory in manager.directories] == [tmp_path / "a"]
    assert set(manager.context.failures.offline) == {Path("/\0"), tmp_path / "file" / "below"}
    assert caplog.text.count("Stopping serving logs in dir") == 2
    log = logs.log("kafka-0")
    put(log, b"test")
    assert log.log_dir == tmp_path / "a"
    manager.shutdown()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_read_only_directory_is_offline_and_not_locked(
    fs: SimulatedFileSystem, logs: StoredLogs, code: int
) -> None:
    logs.manager.shutdown()
    looking = {
        FileOperationKind.READ,
        FileOperationKind.OPEN,
        FileOperationKind.LIST,
        FileOperationKind.LOOK,
    }
    break_down(fs, A, kinds=set(FileOperationKind) - looking, code=code)
    manager = logs.start()
    assert list(manager.context.failures.offline) == [A]
    assert partitions_of(logs) == ["b-0"]
    assert not fs.exists(A / ".lock")
    manager.shutdown()
    fs.fail = None
    assert fs.exists(A / ".kafka_cleanshutdown")
    logs.start()
    assert partitions_of(logs) == ["a-0", "b-0"]
    assert len(offsets_in(logs.log("a-0"))) == 20


def test_a_start_with_no_usable_directory_is_refused(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.manager.shutdown()
    break_down(fs, Path("/logs"))
    with pytest.raises(
        CordwoodError,
        match="none of the specified log dirs from /logs/a, /logs/b can be created or validated",
    ):
        logs.start()
    fs.fail = None
    logs.start()
    assert partitions_of(logs) == ["a-0", "b-0"]


def test_a_start_on_which_every_directory_fails_is_refused(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.manager.shutdown()
    logs.take()
    break_down(fs, Path("/logs"), kinds={FileOperationKind.READ})
    with pytest.raises(
        CordwoodError, match="Shutdown broker because all log dirs in /logs/a, /logs/b have failed"
    ):
        logs.manager.load()


# ---- errors while logs are loaded


def test_a_file_that_cannot_be_read_takes_its_directory_offline_and_no_other(
    fs: SimulatedFileSystem, logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    put(logs.log("a-1", A), b"test")
    logs.kill()
    break_down(fs, A / "a-0", kinds={FileOperationKind.READ, FileOperationKind.OPEN})
    manager = logs.start()
    assert list(manager.context.failures.offline) == [A]
    assert "Input/output error" in manager.context.failures.offline[A]
    assert partitions_of(logs) == ["b-0"]
    assert "Stopping serving logs in dir /logs/a" in caplog.text
    manager.shutdown()
    assert not fs.exists(A / ".kafka_cleanshutdown")
    assert fs.exists(B / ".kafka_cleanshutdown")
    fs.fail = None
    logs.start()
    assert partitions_of(logs) == ["a-0", "a-1", "b-0"]
    assert len(offsets_in(logs.log("a-0"))) == 20


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_directory_that_fails_at_any_moment_of_the_start_loses_nothing(
    fs: SimulatedFileSystem, logs: StoredLogs, threads: int, *, clean: bool
) -> None:
    fill(logs.log("a-1", A), 30)
    logs.log("a-0").delete_records(7)
    logs.manager.checkpoint_log_start_offsets()
    if clean:
        logs.manager.shutdown()
    else:
        logs.kill()
    whole = fs.clone()
    logs.broker = BrokerConfig({"num.recovery.threads.per.data.dir": threads})
    moments = 0
    step = 1
    while True:
        logs.fs = broken = whole.clone()
        asked = break_down(broken, A, after=moments)
        logs.start()
        is_offline = A in logs.manager.context.failures.offline
        assert is_offline == (asked() > moments)
        assert partitions_of(logs) == (["b-0"] if is_offline else ["a-0", "a-1", "b-0"])
        assert len(offsets_in(logs.log("b-0"))) == 20
        logs.manager.shutdown()
        broken.fail = None
        if is_offline:
            logs.fs = broken.process_crash()
            logs.start()
            assert partitions_of(logs) == ["a-0", "a-1", "b-0"]
            assert offsets_in(logs.log("a-1")) == list(range(30))
            assert offsets_in(logs.log("a-0")) == list(range(20))
            assert logs.log("a-0").log_start_offset == 7
            logs.manager.shutdown()
        else:
            break
        moments += step
    assert moments > 20


def test_a_log_that_was_opened_just_before_its_directory_failed_is_not_served(
    logs: StoredLogs,
) -> None:
    logs.manager.shutdown()

    class Fail:
        def begin(self, log_dir: Path, total: int) -> None:
            """Hears nothing."""

        def advance(self, log_dir: Path, name: str) -> None:
            if log_dir == A:
                logs.manager.context.failures.fail(A, "another log's file")

        def segment(self, name: str, number: int, total: int) -> None:
            """Hears nothing."""

    logs.start(progress=Fail())
    assert partitions_of(logs) == ["b-0"]


def test_what_is_no_files_error_ends_the_start_and_takes_nothing_offline(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.manager.shutdown()

    class Bug(RuntimeError):
        """Nothing to do with files."""

    class Faulty(dict[str, LogConfig]):
        error: Exception = Bug("simulated")

        def get(self, key: str, default: object = None) -> LogConfig | None:  # type: ignore[override]
            raise self.error

    logs.configs = Faulty()
    for error in (Bug("simulated"), StorageError("simulated, with no file's error behind it")):
        Faulty.error = error
        with pytest.raises(type(error), match="simulated"):
            logs.start()
        assert not logs.manager.context.failures.offline
        logs.kill()
    # The mark of the clean stop is gone: whatever was begun has to be looked over.
    assert not fs.exists(A / ".kafka_cleanshutdown")
    logs.configs = {}
    logs.start()
    assert not logs.manager.directories[0].had_clean_shutdown
    assert partitions_of(logs) == ["a-0", "b-0"]


# ---- errors later on


def test_a_failed_append_takes_the_directory_offline_for_good(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    gone: list[tuple[str, Path]] = []
    logs.manager.on_removed.append(lambda tp, log_dir: gone.append((str(tp), log_dir)))
    log, other = logs.log("a-0"), logs.log("b-0")
    second = logs.log("a-1", A)
    break_down(fs, A, kinds={FileOperationKind.WRITE})
    with pytest.raises(StorageError, match=r"Error while appending records to a-0: .*Input/output"):
        put(log, b"test")
    fs.fail = None
    assert partitions_of(logs) == ["b-0"]
    assert sorted(gone) == [("a-0", A), ("a-1", A)]
    operations: list[Path] = []
    fs.on_operation = lambda operation: operations.append(operation.path)
    attempts: list[Callable[[], object]] = [
        lambda: put(log, b"test"),
        lambda: put(second, b"test"),
        lambda: log.reader.read(0, 100),
        lambda: log.reader.list_offset(5),
        log.roll,
        log.flush,
        lambda: truncate_to(log, 3),
        lambda: delete_segments(log, 1, reason="a test"),
        lambda: log.delete_records(3),
        log.close,
        log.delete,
        lambda: log.rename_directory(A / "z-0"),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    put(other, b"test")
    assert len(offsets_in(other)) == 21
    logs.manager.checkpoint_recovery_points()
    logs.manager.checkpoint_log_start_offsets()
    logs.manager.checkpoint_high_watermarks()
    logs.manager.shutdown()
    assert {path for path in operations if path.is_relative_to(A)} <= {A / ".lock"}
    assert not fs.exists(A / ".kafka_cleanshutdown")
    assert fs.exists(B / ".kafka_cleanshutdown")
    fs.on_operation = None
    logs.start()
    assert len(offsets_in(logs.log("a-0"))) == 20


def test_an_append_that_fails_does_not_wait_for_those_that_wait_for_its_log(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    log = logs.log("a-0")
    waiting = threading.Thread(
        target=lambda: logs.manager.get_or_create(log.topic_partition, topic_id=TOPIC_ID),
        daemon=True,
    )
    lock = logs.manager._lock

    def fail(operation: FileOperation) -> OSError | None:
        if operation.kind is not FileOperationKind.WRITE or not operation.path.is_relative_to(A):
            return None
        waiting.start()
        while lock.acquire(blocking=False):  # until the other thread has it, and wants the log's
            lock.release()
        return OSError(errno.EIO, os.strerror(errno.EIO), str(operation.path))

    fs.fail = fail
    refused: list[StorageError] = []

    def append() -> None:
        try:
            put(log, b"test")
        except StorageError as error:
            refused.append(error)

    appending = threading.Thread(target=append, daemon=True)
    appending.start()
    for thread in (appending, waiting):
        thread.join(120)
        assert not thread.is_alive(), "they wait for each other"
    assert len(refused) == 1
    assert partitions_of(logs) == ["b-0"]


def test_a_new_partition_goes_to_a_directory_that_lives_and_an_old_one_to_none(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    break_down(fs, A)
    with pytest.raises(StorageError):
        put(logs.log("a-0"), b"test")
    new = logs.manager.get_or_create(TopicPartition("new", 0), is_new=True)
    assert new.log_dir == B
    with pytest.raises(
        StorageError,
        match="Can not create log for a-0 because log directories /logs/a are offline",
    ):
        logs.manager.get_or_create(TopicPartition("a", 0), is_new=False)
    with pytest.raises(StorageError, match="No log directories available"):
        logs.manager.get_or_create(TopicPartition("c", 0), log_dir=A)


def test_a_log_is_made_in_the_first_directory_that_takes_it(fs: SimulatedFileSystem) -> None:
    directories = [Path(f"/logs/{n}") for n in range(5)]
    logs = StoredLogs(*directories, defaults=CONFIG, fs=fs)
    logs.start()
    broken = set(directories[:2])

    def fail(operation: FileOperation) -> OSError | None:
        is_broken = any(operation.path.is_relative_to(path) for path in broken)
        return OSError(errno.EIO, "broken", str(operation.path)) if is_broken else None

    fs.fail = fail
    log = logs.log("kafka-0")
    assert log.log_dir == directories[2]
    assert set(logs.manager.context.failures.offline) == broken
    fs.fail = None
    assert [fs.exists(path / "kafka-0") for path in directories] == [False, False, True] + [
        False
    ] * 2


def test_when_every_directory_has_failed_nothing_more_is_made(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    break_down(fs, Path("/logs"))
    for name in ("a-0", "b-0"):
        with pytest.raises(StorageError):
            put(logs.log(name), b"test")
    assert logs.manager.logs() == []
    with pytest.raises(StorageError, match="No log directories available"):
        logs.log("c-0")
    logs.manager.shutdown()
    fs.fail = None
    logs.fs = fs.process_crash()
    logs.start()
    assert [len(offsets_in(logs.log(name))) for name in ("a-0", "b-0")] == [20, 20]


def test_a_failed_sync_never_raises_the_recovery_point(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    log = logs.log("a-0")
    break_down(fs, A, kinds={FileOperationKind.SYNC})
    with pytest.raises(StorageError, match="Error while flushing a-0"):
        log.flush()
    assert log.offsets.recovery_point == 0
    fs.fail = None
    with pytest.raises(StorageError):
        log.flush()
    assert log.offsets.recovery_point == 0


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline_alone(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    for name in ("a-0", "b-0"):
        logs.log(name).flush()
    break_down(fs, A)
    logs.manager.checkpoint_recovery_points()
    assert list(logs.manager.context.failures.offline) == [A]
    assert partitions_of(logs) == ["b-0"]
    assert b"b 0 20" in fs.read_bytes(B / "recovery-point-offset-checkpoint")


def test_a_deletion_that_cannot_be_carried_out_takes_the_directory_offline(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    break_down(fs, A, kinds={FileOperationKind.RENAME})
    with pytest.raises(StorageError, match="Error while renaming the directory of a-0"):
        logs.manager.delete(TopicPartition("a", 0))
    assert partitions_of(logs) == ["b-0"]
    fs.fail = None
    logs.kill()
    logs.start()
    assert len(offsets_in(logs.log("a-0"))) == 20


def test_a_stop_of_a_failed_directory_lets_go_of_every_lock(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    break_down(fs, A)
    logs.manager.shutdown()
    assert not fs.exists(B / ".lock")
    assert fs.exists(B / ".kafka_cleanshutdown")
    assert not fs.exists(A / ".kafka_cleanshutdown")
    fs.fail = None
    logs.start()
    assert partitions_of(logs) == ["a-0", "b-0"]


# ---- a full disk


def test_a_full_disk_refuses_appends_and_lets_everything_be_read(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    log = logs.log("a-0")
    fs.capacity_bytes = 0
    for _ in range(2):
        with pytest.raises(StorageError, match="the file system is full"):
            put(log, b"test")
    assert not logs.manager.context.failures.offline
    assert offsets_in(log) == list(range(20))
    assert log.log_end_offset == 20
    assert len(log.reader.read(0, 1 << 20, isolation=Isolation.LOG_END).read()) > 0
    fs.capacity_bytes = None
    assert put(log, b"test").first_offset == 20
    logs.manager.shutdown()
    logs.start()
    assert offsets_in(logs.log("a-0")) == list(range(21))


def test_checkpoints_on_a_full_disk_stay_as_they_are(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.log("a-0").flush()
    logs.manager.checkpoint_recovery_points()
    path = A / "recovery-point-offset-checkpoint"
    before = fs.read_bytes(path)
    fill(logs.log("a-0"), 5)
    logs.log("a-0").flush()
    fs.capacity_bytes = 0
    logs.manager.checkpoint_recovery_points()
    assert fs.read_bytes(path) == before
    assert not logs.manager.context.failures.offline
    fs.capacity_bytes = None
    logs.manager.checkpoint_recovery_points()
    assert b"a 0 25" in fs.read_bytes(path)


def test_all_that_a_full_disk_refuses_within_a_minute_is_one_line_of_the_log(
    fs: SimulatedFileSystem, logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    fs.capacity_bytes = 0
    caplog.set_level(logging.INFO)
    caplog.clear()
    for _ in range(3):
        logs.manager.checkpoint_recovery_points()
        logs.manager.checkpoint_high_watermarks()
        with pytest.raises(StorageError):
            put(logs.log("a-0"), b"test")
    assert [each.split(" is full")[0] for each in caplog.messages] == [
        f"The disk of log directory {directory}" for directory in (A, B)
    ]


def test_a_stop_on_a_full_disk_is_a_kill_and_the_next_start_recovers(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.log("a-0").flush()
    fs.capacity_bytes = 0
    logs.manager.shutdown()
    assert not fs.exists(A / ".kafka_cleanshutdown")
    fs.capacity_bytes = None
    logs.start()
    assert [len(offsets_in(logs.log(name))) for name in ("a-0", "b-0")] == [20, 20]


def test_a_directory_of_which_a_log_did_not_close_is_recovered_at_the_next_start(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    fill(logs.log("c-0", A), 5)
    break_down(fs, A / "a-0", code=errno.ENOSPC)
    logs.manager.shutdown()
    assert not logs.manager.context.failures.offline, "a full disk takes no directory offline"
    assert [fs.exists(each / ".kafka_cleanshutdown") for each in (A, B)] == [False, True]
    fs.fail = None
    logs.start()
    assert [each.had_clean_shutdown for each in logs.manager.directories] == [False, True]
    assert [len(offsets_in(logs.log(name))) for name in ("a-0", "b-0", "c-0")] == [20, 20, 5]


# ---- checkpoints that cannot be understood

MALFORMED = {
    "no number": b"garbage\n",
    "no text": b"\xff\xfe\x00\x01",
    "another version": b"1\n1\na 0 5\n",
    "too few entries": b"0\n3\na 0 5\n",
    "a field too few": b"0\n1\na 5\n",
    "an offset that is no number": b"0\n1\na 0 five\n",
    "zeros": bytes(40),
}
malformed = pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)


def damage(fs: SimulatedFileSystem, path: Path, data: bytes) -> None:
    fs.write_durably(path, data)


@malformed
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_recovery_point_checkpoint_counts_as_empty(
    fs: SimulatedFileSystem,
    logs: StoredLogs,
    caplog: pytest.LogCaptureFixture,
    data: bytes,
    *,
    clean: bool,
) -> None:
    logs.log("a-0").flush()
    logs.manager.checkpoint_recovery_points()
    if clean:
        logs.manager.shutdown()
    else:
        logs.kill()
    damage(fs, A / "recovery-point-offset-checkpoint", data)
    caplog.set_level(logging.INFO)
    logs.start()
    assert (
        "Error occurred while reading recovery-point-offset-checkpoint file of directory /logs/a"
        in caplog.text
    )
    assert not logs.manager.context.failures.offline
    log = logs.log("a-0")
    assert offsets_in(log) == list(range(20))
    assert log.offsets.recovery_point == (20 if clean else 0)
    count = 0 if clean else len(log.segments)
    assert caplog.text.count("recovered for a-0") == count
    logs.manager.shutdown()
    before = logs.files()
    caplog.clear()
    logs.start()
    assert "Error occurred while reading" not in caplog.text
    logs.manager.shutdown()
    assert logs.files() == before


@malformed
def test_a_damaged_log_start_checkpoint_counts_as_empty(
    fs: SimulatedFileSystem, logs: StoredLogs, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    for name in ("a-0", "b-0"):
        logs.log(name).delete_records(7)
    logs.manager.shutdown()
    damage(fs, A / "log-start-offset-checkpoint", data)
    logs.start()
    assert "Error occurred while reading log-start-offset-checkpoint file" in caplog.text
    # Kafka goes back to the first segment as well: deleted records are there again.
    assert logs.log("a-0").log_start_offset == 0
    assert logs.log("b-0").log_start_offset == 7


@malformed
def test_a_damaged_high_watermark_checkpoint_counts_as_empty(
    fs: SimulatedFileSystem, logs: StoredLogs, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    logs.manager.shutdown()
    damage(fs, A / "replication-offset-checkpoint", data)
    logs.start()
    assert "Error occurred while reading replication-offset-checkpoint file" in caplog.text
    assert logs.log("a-0").high_watermark == 0
    assert logs.log("b-0").high_watermark == 20


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_an_empty_checkpoint_is_none_and_no_word_is_said(
    fs: SimulatedFileSystem, logs: StoredLogs, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    logs.manager.shutdown()
    for name in ("recovery-point", "log-start", "replication"):
        damage(fs, A / f"{name}-offset-checkpoint", data)
    caplog.clear()
    logs.start()
    assert "Error occurred" not in caplog.text
    assert logs.log("a-0").offsets.recovery_point == 20
    assert logs.log("a-0").high_watermark == 0


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_a_checkpoint_that_cannot_be_read_at_all_takes_the_directory_offline(
    fs: SimulatedFileSystem, logs: StoredLogs, name: str
) -> None:
    logs.manager.checkpoint_log_start_offsets()
    logs.manager.shutdown()
    break_down(fs, A / f"{name}-offset-checkpoint")
    logs.start()
    assert list(logs.manager.context.failures.offline) == [A]
    assert partitions_of(logs) == ["b-0"]


@malformed
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_leader_epochs_are_read_from_the_log(
    fs: SimulatedFileSystem,
    logs: StoredLogs,
    caplog: pytest.LogCaptureFixture,
    data: bytes,
    *,
    clean: bool,
) -> None:
    log = logs.log("a-0")
    for epoch in (1, 1, 4, 7):
        put(log, b"test", leader_epoch=epoch)
    log.flush()
    logs.manager.checkpoint_recovery_points()
    expected = [EpochEntry(0, 0), EpochEntry(1, 20), EpochEntry(4, 22), EpochEntry(7, 23)]
    assert list(log.leader_epochs.epoch_entries) == expected
    if clean:
        logs.manager.shutdown()
    else:
        logs.kill()
    damage(fs, A / "a-0" / "leader-epoch-checkpoint", data)
    logs.start()
    assert "the leader epochs are read from the log" in caplog.text
    assert list(logs.log("a-0").leader_epochs.epoch_entries) == expected
    assert len(offsets_in(logs.log("a-0"))) == 24
    logs.manager.shutdown()
    before = logs.files()
    caplog.clear()
    logs.start()
    logs.manager.shutdown()
    assert logs.files() == before
    assert "leader epochs are read" not in caplog.text


def test_power_lost_while_leader_epochs_are_read_from_the_log_loses_none(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    log = logs.log("a-0")
    for epoch in (1, 4):
        put(log, b"test", leader_epoch=epoch)
    expected = log.leader_epochs.epoch_entries
    logs.manager.shutdown()
    damage(fs, A / "a-0" / "leader-epoch-checkpoint", b"garbage")
    whole = fs.clone()
    moment = 0
    while True:
        logs.fs = broken = whole.clone()
        asked = break_down(
            broken,
            A / "a-0",
            kinds={
                FileOperationKind.CREATE,
                FileOperationKind.WRITE,
                FileOperationKind.SYNC,
                FileOperationKind.RENAME,
            },
            after=moment,
        )
        logs.start()
        if asked() <= moment:
            break
        logs.fs = broken.process_crash()
        logs.start()
        assert logs.log("a-0").leader_epochs.epoch_entries == expected
        moment += 1
    assert moment >= 3
    assert logs.log("a-0").leader_epochs.epoch_entries == expected


# ---- topic ids


def test_a_log_without_partition_metadata_is_given_its_topic_id(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.manager.shutdown()
    logs.start()
    assert logs.log("a-0").topic_id is None
    log = logs.manager.get_or_create(TopicPartition("a", 0), topic_id=TOPIC_ID)
    assert log.topic_id == TOPIC_ID
    logs.manager.context.scheduler.run_due()
    assert fs.read_bytes(A / "a-0" / "partition.metadata").endswith(uuid_text(TOPIC_ID).encode())
    logs.kill()
    logs.start()
    assert logs.log("a-0").topic_id == TOPIC_ID
    with pytest.raises(
        InconsistentTopicIdError, match=f"already contained topic ID {uuid_text(TOPIC_ID)}"
    ):
        logs.manager.get_or_create(TopicPartition("a", 0), topic_id=OTHER_ID)
    assert not logs.manager.context.failures.offline
    assert len(offsets_in(logs.log("a-0"))) == 20


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 0\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff\xff\n\xff"],
)
def test_partition_metadata_that_cannot_be_understood_takes_its_directory_offline(
    fs: SimulatedFileSystem, logs: StoredLogs, data: bytes
) -> None:
    logs.manager.shutdown()
    damage(fs, A / "a-0" / "partition.metadata", data)
    logs.start()
    assert list(logs.manager.context.failures.offline) == [A]
    assert "/logs/a/a-0/partition.metadata" in logs.manager.context.failures.offline[A]
    assert len(offsets_in(logs.log("b-0"))) == 20
    logs.kill()
    damage(
        fs,
        A / "a-0" / "partition.metadata",
        f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}".encode(),
    )
    logs.start()
    assert logs.log("a-0").topic_id == TOPIC_ID
    assert len(offsets_in(logs.log("a-0"))) == 20


# ---- foreign directories, and two of one name


@pytest.mark.parametrize(
    "name", ["lost+found", "non_kafka_dir", "topic-1999a", "non_kafka_dir-delete", "-3"]
)
def test_a_foreign_directory_ends_the_start_before_anything_is_touched(
    fs: SimulatedFileSystem, logs: StoredLogs, name: str
) -> None:
    logs.manager.shutdown()
    fs.make_directory(A / name)
    before = logs.files()
    with pytest.raises(NotALogDirError) as caught:
        logs.start()
    assert str(caught.value) == (
        f"Found directory /logs/a/{name}, '{name}' is not in the form of topic-partition or "
        "topic-partition.uniqueId-delete (if marked for deletion).\nKafka's log directories (and "
        "children) should only contain Kafka topic data."
    )
    logs.manager.shutdown()
    assert {path: data for path, data in logs.files().items() if path.startswith("/logs/a/")} == {
        path: data for path, data in before.items() if path.startswith("/logs/a/")
    }
    fs.remove_directory(A / name)
    logs.start()
    assert logs.manager.directories[0].had_clean_shutdown
    assert partitions_of(logs) == ["a-0", "b-0"]


def test_a_partition_in_two_directories_ends_the_start_in_kafkas_words(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    logs.manager.shutdown()
    fs.make_directory(B / "a-0")
    for name, data in files_of(A / "a-0", fs).items():
        fs.write_durably(B / "a-0" / name, data)
    with pytest.raises(
        CordwoodError,
        match="Duplicate log directories for a-0 are found in both /logs/a/a-0 and /logs/b/a-0",
    ):
        logs.start()
    logs.kill()
    fs.remove_tree(B / "a-0")
    logs.start()
    assert len(offsets_in(logs.log("a-0"))) == 20


# ---- meta.properties


GOOD_META = build_meta_properties(
    MetaProperties(version=1, cluster_id="IVT1Seu3QjacxS7oBTKhDQ", node_id=1, directory_id=OTHER_ID)
)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("an unknown version", b"version=2\ncluster.id=x\nnode.id=1\n"),
        ("no node id", b"version=1\ncluster.id=x\n"),
        ("no number", b"version=one\n"),
        ("a malformed escape", b"cluster.id=\\u12\n"),
    ],
)
def test_a_directory_whose_meta_properties_cannot_be_understood_is_offline(
    fs: SimulatedFileSystem, logs: StoredLogs, what: str, data: bytes
) -> None:
    logs.manager.shutdown()
    damage(fs, A / "meta.properties", data)
    before = logs.files()
    manager = logs.start()
    assert list(manager.context.failures.offline) == [A]
    assert "/logs/a/meta.properties" in manager.context.failures.offline[A]
    assert partitions_of(logs) == ["b-0"]
    assert not fs.exists(A / ".lock")
    manager.shutdown()
    assert logs.files() == before

    logs.directories = [A]
    with pytest.raises(CordwoodError, match="can be created or validated"):
        logs.start()
    damage(fs, A / "meta.properties", GOOD_META)
    logs.start()
    assert logs.manager.directories[0].directory_id == OTHER_ID
    assert partitions_of(logs) == ["a-0"]


def test_a_directory_whose_meta_properties_cannot_be_read_is_offline(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    damage(fs, A / "meta.properties", GOOD_META)
    logs.manager.shutdown()
    break_down(fs, A / "meta.properties")
    assert list(logs.start().context.failures.offline) == [A]
    assert not fs.exists(A / ".lock")


# ---- damage in a partition's directory


@pytest.mark.parametrize("name", ["x.log", "x.snapshot", f"{'9' * 20}.log"])
def test_a_segments_file_without_an_offset_ends_the_start_with_its_name(
    fs: SimulatedFileSystem, logs: StoredLogs, name: str
) -> None:
    logs.manager.shutdown()
    damage(fs, A / "a-0" / name, b"")
    with pytest.raises(CorruptError, match=f"'{name}' begins|'{name}' does not begin"):
        logs.start()
    assert not logs.manager.context.failures.offline


def small_damages(fs: SimulatedFileSystem, directory: Path) -> Iterator[tuple[str, bytes]]:
    for name, data in files_of(directory, fs).items():
        if name.endswith((".index", ".timeindex", ".snapshot")) and data:
            yield name, data[:-1]
            yield (
                name,
                data[: len(data) // 2]
                + bytes([data[len(data) // 2] ^ 0xFF])
                + data[len(data) // 2 + 1 :],
            )
            yield name, b""


def test_damaged_indexes_and_snapshots_never_change_what_is_read(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    log = logs.log("a-0")
    for n in range(30):
        put(log, b"v%d" % n, producer=(n % 3, 0, n // 3))
    logs.manager.shutdown()
    whole = fs.clone()
    tried = 0
    for name, data in small_damages(fs, A / "a-0"):
        for clean in (True, False):
            logs.fs = broken = whole.clone()
            broken.write_durably(A / "a-0" / name, data)
            if not clean:
                broken.remove(A / ".kafka_cleanshutdown")
            logs.start()
            log = logs.log("a-0")
            assert offsets_in(log) == list(range(50))
            for offset in range(50):
                found = log.reader.read(offset, 1, isolation=Isolation.LOG_END, min_one=True).read()
                assert int.from_bytes(found[:8], "big") == offset
            sequences = {e.producer_id: e.last_sequence for e in log.producer_state.entries()}
            assert sequences == {0: 9, 1: 9, 2: 9}, (name, clean)
            logs.manager.shutdown()
            tried += 1
    assert tried > 60


def test_a_segment_that_vanishes_while_in_use_takes_the_directory_offline(
    tmp_path: Path,
) -> None:
    logs = StoredLogs(tmp_path, defaults=CONFIG)
    logs.start()
    log = logs.log("kafka-0")
    fill(log, 40)
    first = log.segments.first
    logs.manager.context.resources.forget(first)
    first.path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        log.reader.read(0, 100, isolation=Isolation.LOG_END)
    assert list(logs.manager.context.failures.offline) == [tmp_path]


def test_batches_behind_a_lost_segment_are_still_served_after_a_start(
    tmp_path: Path,
) -> None:
    size = len(batch_of(b"test"))
    logs = StoredLogs(tmp_path, defaults=LogConfig(segment_bytes=size * 5))
    logs.start()
    fill(logs.log("kafka-0"), 20)
    logs.manager.shutdown()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        (tmp_path / "kafka-0" / segment_file_name(5, suffix)).unlink()
    logs.start()
    log = logs.log("kafka-0")
    assert offsets_in(log) == [*range(5), *range(10, 20)]
    data = log.reader.read(7, 1, isolation=Isolation.LOG_END, min_one=True).read()
    assert int.from_bytes(data[:8], "big") == 10
