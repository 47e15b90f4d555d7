"""The logs of a broker's directories: made, placed, checkpointed, deleted, stopped, started.

Scenarios and numbers of LogManagerTest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.retention_pass import start_retention
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.clean_shutdown import parse_clean_shutdown
from cordwood.format.file_names import LOG_SUFFIX
from cordwood.format.meta_properties import MetaProperties, build_meta_properties
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.errors import CordwoodError, DirectoryInUseError
from cordwood.model.kafka_errors import (
    InconsistentTopicIdError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    StorageError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.log_set import NewLog
from cordwood.testing.manual_clock import ManualClock
from support.segments import set_last_modified
from support.stored_log import StoredLogs, batch_of, keys_in, put, records_in

TEN_MINUTES_MS = 600_000
INITIAL_DELAY_MS = 10_000
CONFIG = LogConfig(segment_bytes=1024, segment_index_bytes=4096, retention_ms=TEN_MINUTES_MS)
BROKER = BrokerConfig(
    {"log.initial.task.delay.ms": INITIAL_DELAY_MS, "log.retention.check.interval.ms": 1000}
)
DELAY_MS = CONFIG.file_delete_delay_ms


@pytest.fixture
def logs(tmp_path: Path) -> StoredLogs:
    """One directory, in use."""
    stored = StoredLogs(tmp_path / "logs", defaults=CONFIG, broker=BROKER)
    manager = stored.start()
    manager.start_tasks()
    start_retention(CleanerManager(manager))
    return stored


def offsets(directory: Path, name: str) -> dict[str, int]:
    """The lines of a checkpoint."""
    data = (directory / f"{name}-offset-checkpoint").read_bytes()
    return {str(partition): offset for partition, offset in parse_offset_checkpoint(data).items()}


def append_many(log: PartitionLog, count: int, *, key: bytes | None = None) -> None:
    """Appends records without a timestamp, a batch each, that are at once on all replicas."""
    for _ in range(count):
        put(log, b"test", key=key, timestamp=-1)
    log.update_high_watermark(log.log_end_offset)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def directories_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


# ---- logs are made


def test_a_log_is_made_and_appended_to(logs: StoredLogs) -> None:
    log = logs.log("kafka-0")
    assert (logs.directories[0] / "kafka-0").is_dir()
    put(log, b"test")
    assert log.log_end_offset == 1
    assert logs.log("kafka-0") is log


def test_a_log_that_is_not_there_is_not_made_by_asking(logs: StoredLogs) -> None:
    partition = TopicPartition("kafka", 0)
    assert logs.manager.get(partition) is None
    with pytest.raises(StorageError, match="there is no log of kafka-0 here"):
        logs.manager.require(partition)
    assert directories_in(logs.directories[0]) == []


def write_meta(directory: Path, directory_id: UUID | None) -> None:
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_bytes(
        build_meta_properties(
            MetaProperties(
                version=1, cluster_id="IVT1Seu3QjacxS7oBTKhDQ", node_id=1, directory_id=directory_id
            )
        )
    )


WANTED_ID = parse_uuid("ZwkGXjB0TvSF6mjVh6gO7Q")
OTHER_ID = parse_uuid("kQfNPJ2FTHq_6Qlyyv6Jqg")
UNASSIGNED = parse_uuid("AAAAAAAAAAAAAAAAAAAAAA")
LOST = parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ")


def five_directories(tmp_path: Path) -> StoredLogs:
    stored = StoredLogs(*(tmp_path / str(n) for n in range(5)), defaults=CONFIG)
    for n, directory_id in ((0, None), (1, WANTED_ID), (3, OTHER_ID), (4, None)):
        write_meta(stored.directories[n], directory_id)
    return stored


def test_a_log_is_made_in_the_directory_of_the_given_id(tmp_path: Path) -> None:
    stored = five_directories(tmp_path)
    manager = stored.start()
    log = manager.get_or_create(TopicPartition("kafka", 0), directory_id=WANTED_ID)
    assert log.log_dir == stored.directories[1]
    put(log, b"test")
    assert [d for d in stored.directories if directories_in(d)] == [stored.directories[1]]


@pytest.mark.parametrize("directory_id", [UNASSIGNED, LOST, parse_uuid("c2Vjb25kLWNsdXN0ZXItMQ")])
def test_an_unassigned_lost_or_unknown_directory_id_lets_any_be_taken(
    tmp_path: Path, directory_id: UUID
) -> None:
    manager = five_directories(tmp_path).start()
    log = manager.get_or_create(TopicPartition("kafka", 0), directory_id=directory_id)
    put(log, b"test")
    assert log.log_end_offset == 1


def test_directory_ids_are_read_from_meta_properties(tmp_path: Path) -> None:
    stored = five_directories(tmp_path)
    found = [directory.directory_id for directory in stored.start().directories]
    assert found == [None, WANTED_ID, None, OTHER_ID, None]


def test_twenty_logs_are_spread_evenly_over_three_directories(tmp_path: Path) -> None:
    stored = StoredLogs(*(tmp_path / str(n) for n in range(3)), defaults=CONFIG)
    stored.start()
    for partition in range(20):
        stored.log(f"test-{partition}")
        assert len(stored.manager.logs()) == partition + 1
        counts = [len(directories_in(directory)) for directory in stored.directories]
        assert max(counts) <= min(counts) + 1


def test_a_log_is_made_in_the_first_directory_if_all_are_cordoned(tmp_path: Path) -> None:
    directories = [tmp_path / str(n) for n in range(3)]
    broker = BrokerConfig({"cordoned.log.dirs": tuple(map(str, directories[:2]))})
    stored = StoredLogs(*directories, defaults=CONFIG, broker=broker)
    stored.start()
    for partition in range(2):
        assert stored.log(f"test-{partition}").log_dir == directories[2]
    stored.manager.broker = BrokerConfig({"cordoned.log.dirs": tuple(map(str, directories))})
    assert stored.log("test-2").log_dir == directories[0]


def test_a_log_of_another_topic_id_is_refused(logs: StoredLogs) -> None:
    partition = TopicPartition("kafka", 0)
    logs.manager.get_or_create(partition, topic_id=WANTED_ID)
    with pytest.raises(InconsistentTopicIdError):
        logs.manager.get_or_create(partition, topic_id=OTHER_ID)
    logs.kill()
    logs.start()
    log = logs.manager.get_or_create(partition, topic_id=OTHER_ID)
    # Nothing had been written of the first id: the process was killed before its tasks ran.
    assert log.topic_id == OTHER_ID


# ---- retention


def test_expired_segments_go_and_with_them_their_files(logs: StoredLogs) -> None:
    log = logs.log("kafka-0")
    append_many(log, 200)
    assert len(log.segments) > 1
    for segment in log.segments:
        set_last_modified(segment, logs.clock.now_ms())
    logs.pass_time(TEN_MINUTES_MS + INITIAL_DELAY_MS + 1_000)
    assert len(log.segments) == 1
    logs.pass_time(DELAY_MS + 1_000)
    log.flush()
    # A log, two indexes and a snapshot of producers for each segment, and the leader epochs.
    assert len(names(log.directory)) == len(log.segments) * 4 + 1
    assert log.reader.read(200, 1024, isolation=Isolation.LOG_END).read() == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.read(0, 1024, isolation=Isolation.LOG_END)
    assert put(log, b"test").first_offset == 200


def test_segments_go_until_six_are_left_by_size(logs: StoredLogs) -> None:
    size = len(batch_of(b"test"))
    logs.configs["kafka"] = LogConfig(
        segment_bytes=10 * size, retention_bytes=5 * 10 * size + 10, segment_index_bytes=4096
    )
    log = logs.log("kafka-0")
    append_many(log, 200)
    assert len(log.segments) == 20
    logs.pass_time(INITIAL_DELAY_MS)
    assert len(log.segments) == 6
    logs.pass_time(DELAY_MS + 1_000)
    log.flush()
    assert len(names(log.directory)) == 6 * 4 + 1
    assert log.reader.read(200, 1024, isolation=Isolation.LOG_END).read() == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.read(0, 1024, isolation=Isolation.LOG_END)
    assert put(log, b"test").first_offset == 200


@pytest.mark.parametrize("policy", [{"compact"}, {"compact", "delete"}])
def test_retention_leaves_compacted_logs_to_the_cleaner(logs: StoredLogs, policy: set[str]) -> None:
    logs.configs["kafka"] = LogConfig(
        segment_bytes=1024, retention_ms=TEN_MINUTES_MS, cleanup_policy=frozenset(policy)
    )
    log = logs.log("kafka-0")
    append_many(log, 200, key=b"test")
    count = len(log.segments)
    assert count > 1
    for segment in log.segments:
        set_last_modified(segment, logs.clock.now_ms())
    logs.pass_time(TEN_MINUTES_MS + INITIAL_DELAY_MS + 1_000)
    assert len(log.segments) == count


# ---- flush and checkpoints


def test_a_log_is_flushed_when_flush_ms_is_over(tmp_path: Path) -> None:
    broker = BrokerConfig(
        {"log.initial.task.delay.ms": INITIAL_DELAY_MS, "log.flush.scheduler.interval.ms": 1000}
    )
    logs = StoredLogs(tmp_path, defaults=LogConfig(flush_ms=1000), broker=broker)
    logs.start().start_tasks()
    log = logs.log("kafka-0")
    flushed = log.flusher.last_flush_ms
    for _ in range(200):
        put(log, b"test")
    assert log.offsets.recovery_point == 0
    logs.pass_time(INITIAL_DELAY_MS)
    assert log.flusher.last_flush_ms != flushed
    assert log.offsets.recovery_point == 200


def check_recovery_points(logs: StoredLogs, directory: Path, *partitions: str) -> None:
    opened = [logs.log(name) for name in partitions]
    for log in opened:
        for _ in range(50):
            put(log, b"test")
        log.flush(force_active=False)
    logs.manager.checkpoint_recovery_points()
    found = offsets(directory, "recovery-point")
    assert found == {str(log.topic_partition): log.offsets.recovery_point for log in opened}
    assert set(found.values()) == {50}


def test_recovery_points_are_checkpointed(logs: StoredLogs) -> None:
    check_recovery_points(
        logs, logs.directories[0], "test-a-0", "test-a-1", "test-a-2", "test-b-0", "test-b-1"
    )


def test_recovery_points_of_a_directory_named_with_a_slash_or_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for named in (f"{tmp_path}/a/", "data/logs"):
        logs = StoredLogs(Path(named), defaults=CONFIG)
        logs.start()
        check_recovery_points(logs, Path(named), "test-a-1")
        assert logs.manager.get(TopicPartition("test-a", 1)) is logs.log("test-a-1")
        logs.manager.shutdown()
        assert logs.start().directories[0].path == Path(named).absolute()
        assert len(logs.manager.logs()) == 1


def test_a_directory_given_twice_is_refused(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    with pytest.raises(CordwoodError, match="Duplicate log directory found"):
        logs.take()
    logs.directories = [tmp_path / "a", tmp_path / "b"]
    logs.start()


def test_checkpoints_are_written_by_their_tasks(logs: StoredLogs) -> None:
    directory = logs.directories[0]
    log = logs.log("kafka-0")
    append_many(log, 50)
    log.delete_records(31)
    log.flush()
    logs.pass_time(INITIAL_DELAY_MS + 1_000)
    assert offsets(directory, "recovery-point") == {"kafka-0": 50}
    assert offsets(directory, "replication") == {"kafka-0": 50}
    assert set(offsets(directory, "log-start")) <= {"kafka-0"}


def test_the_log_start_is_checkpointed_only_while_no_segment_begins_there(
    logs: StoredLogs,
) -> None:
    directory = logs.directories[0]
    logs.configs["test"] = LogConfig(retention_ms=-1)
    log = logs.log("test-0")
    for offset in range(50):
        put(log, b"test")
        if offset and offset % 10 == 0:
            log.roll()
    assert len(log.segments) == 5
    log.update_high_watermark(49)
    log.delete_records(31)
    logs.manager.checkpoint_log_start_offsets()
    assert len(log.segments) == 5
    assert offsets(directory, "log-start") == {"test-0": 31}
    logs.pass_time(INITIAL_DELAY_MS)
    assert list(log.segments.base_offsets) == [31, 41]
    assert log.log_start_offset == 31
    logs.manager.checkpoint_log_start_offsets()
    assert offsets(directory, "log-start") == {}


def test_high_watermarks_are_taken_up_again(logs: StoredLogs) -> None:
    log = logs.log("kafka-0")
    for _ in range(10):
        put(log, b"test")
    log.update_high_watermark(7)
    logs.manager.checkpoint_high_watermarks()
    logs.kill()
    logs.start()
    assert logs.log("kafka-0").high_watermark == 7


def test_a_high_watermark_beyond_what_recovery_left_is_the_log_end(logs: StoredLogs) -> None:
    log = logs.log("kafka-0")
    append_many(log, 10)
    logs.manager.checkpoint_high_watermarks()
    path = log.active.path
    logs.kill()
    path.write_bytes(path.read_bytes()[:-1])
    logs.start()
    assert logs.log("kafka-0").log_end_offset == 9
    assert logs.log("kafka-0").high_watermark == 9


# ---- locks, and stops


def test_a_second_process_does_not_get_the_directory(logs: StoredLogs) -> None:
    second = StoredLogs(logs.directories[0])
    with pytest.raises(DirectoryInUseError, match=r"Failed to acquire lock on file \.lock in"):
        second.take()
    logs.manager.shutdown()
    assert not (logs.directories[0] / ".lock").exists()
    second.start()


def test_a_directory_in_use_leaves_the_others_free(logs: StoredLogs, tmp_path: Path) -> None:
    second = StoredLogs(tmp_path / "free", logs.directories[0])
    with pytest.raises(DirectoryInUseError):
        second.take()
    StoredLogs(tmp_path / "free").start()


def test_a_clean_stop_is_marked_in_every_directory_with_the_broker_epoch(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path / "1", tmp_path / "2", defaults=CONFIG)
    logs.start()
    logs.log("kafka-0")
    logs.log("kafka-1")
    assert [directories_in(d) for d in logs.directories] == [["kafka-0"], ["kafka-1"]]
    logs.manager.broker_epoch = 3
    logs.manager.shutdown()
    for directory in logs.directories:
        assert parse_clean_shutdown((directory / ".kafka_cleanshutdown").read_bytes()) == 3


def test_a_log_that_cannot_be_closed_keeps_its_directory_from_being_marked(
    tmp_path: Path,
) -> None:
    logs = StoredLogs(tmp_path / "1", tmp_path / "2", defaults=CONFIG)
    logs.start()
    first, second = logs.log("kafka-0"), logs.log("kafka-1")
    for log in (first, second):
        put(log, b"test")
        log.producer_state.take_snapshot()
        put(log, b"test")
    for path in first.directory.iterdir():
        path.unlink()
    first.directory.rmdir()
    logs.manager.shutdown()
    assert not (logs.directories[0] / ".kafka_cleanshutdown").exists()
    assert (logs.directories[1] / ".kafka_cleanshutdown").exists()


def test_a_stop_before_all_is_loaded_is_not_marked_as_clean(logs: StoredLogs) -> None:
    for name in ("kafka-0", "kafka-1"):
        put(logs.log(name), b"test1")
    logs.manager.shutdown()
    mark = logs.directories[0] / ".kafka_cleanshutdown"
    mark.unlink()
    logs.take().shutdown()
    assert not mark.exists()


class Stopped(Exception):
    """Ends a load."""


class StopAt:
    """Ends the load once so many logs are loaded."""

    def __init__(self, count: int) -> None:
        self._left = count

    def begin(self, log_dir: Path, total: int) -> None:
        """Hears nothing."""

    def advance(self, log_dir: Path, name: str) -> None:
        self._left -= 1
        if not self._left:
            raise Stopped

    def segment(self, name: str, number: int, total: int) -> None:
        """Hears nothing."""


def test_a_stop_in_the_middle_of_the_loading_is_not_marked_as_clean(logs: StoredLogs) -> None:
    for name in ("kafka-0", "kafka-1", "kafka-2"):
        put(logs.log(name), b"test1")
    logs.manager.shutdown()
    mark = logs.directories[0] / ".kafka_cleanshutdown"
    mark.unlink()
    logs.broker = BrokerConfig({"num.recovery.threads.per.data.dir": 1})
    with pytest.raises(Stopped):
        logs.start(progress=StopAt(2))
    logs.manager.shutdown()
    assert not mark.exists()


def test_a_loading_broken_off_after_a_clean_stop_loses_no_checkpointed_offset(
    logs: StoredLogs,
) -> None:
    partitions = ["kafka-0", "kafka-1", "kafka-2"]
    for name in partitions:
        log = logs.log(name)
        for _ in range(10):
            put(log, b"test")
        log.update_high_watermark(8)
        log.delete_records(5)
    logs.manager.shutdown()
    with pytest.raises(Stopped):
        logs.start(progress=StopAt(2))
    logs.manager.shutdown()
    assert (logs.directories[0] / ".kafka_cleanshutdown").exists()
    logs.start()
    found = [logs.log(name) for name in partitions]
    assert [(log.log_start_offset, log.high_watermark) for log in found] == [(5, 8)] * 3


def test_a_clean_stop_is_believed_and_its_mark_is_gone_before_a_log_is_opened(
    logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    append_many(logs.log("kafka-0"), 20)
    logs.manager.shutdown()
    mark = logs.directories[0] / ".kafka_cleanshutdown"
    assert mark.exists()
    seen = []

    class Look(StopAt):
        def begin(self, log_dir: Path, total: int) -> None:
            seen.append((log_dir, total, mark.exists()))

    caplog.set_level(logging.INFO)
    logs.start(progress=Look(99))
    assert seen == [(logs.directories[0], 1, False)]
    assert "Skipping recovery of 1 logs" in caplog.text
    assert "Recovering unflushed segment" not in caplog.text
    assert logs.log("kafka-0").offsets.recovery_point == 20
    logs.kill()
    caplog.clear()
    logs.start()
    assert "Recovering 1 logs" in caplog.text
    assert "Recovering unflushed segment" in caplog.text
    assert logs.log("kafka-0").log_end_offset == 20


def test_a_stop_with_nothing_to_wait_for_between_deletions(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path, defaults=LogConfig(file_delete_delay_ms=0), broker=BROKER)
    logs.start().start_tasks()
    logs.log("kafka-0")
    logs.manager.delete(TopicPartition("kafka", 0))
    logs.pass_time(INITIAL_DELAY_MS + 1_000)
    assert directories_in(tmp_path) == []
    logs.manager.shutdown()


def test_a_clean_stop_and_start_change_nothing(logs: StoredLogs) -> None:
    for name in ("a-0", "a-1", "b-0"):
        append_many(logs.log(name), 40, key=b"k")
    logs.log("a-1").delete_records(11)
    logs.manager.shutdown()
    before = logs.files()
    for _ in range(2):
        logs.start()
        logs.manager.shutdown()
        assert logs.files() == before


def test_starts_after_kills_settle(logs: StoredLogs) -> None:
    for name in ("a-0", "a-1", "b-0"):
        append_many(logs.log(name), 40, key=b"k")
    logs.manager.checkpoint_recovery_points()
    logs.kill()
    logs.start()
    logs.kill()
    before = logs.files()
    for _ in range(2):
        logs.start()
        assert [len(records_in(log)) for log in logs.manager.logs()] == [40] * 3
        logs.kill()
        assert logs.files() == before


# ---- deletion


def test_a_deleted_log_is_renamed_at_once_and_its_files_go_after_the_delay(
    logs: StoredLogs,
) -> None:
    directory = logs.directories[0]
    partition = TopicPartition("kafka", 0)
    log = logs.log("kafka-0")
    append_many(log, 40)
    data = log.reader.read(0, 1 << 20, isolation=Isolation.LOG_END)
    expected = data.read()
    assert logs.manager.delete(partition) is log
    assert logs.manager.get(partition) is None
    (renamed,) = directories_in(directory)
    assert renamed.startswith("kafka-0.")
    assert renamed.endswith("-delete")
    assert log.directory == directory / renamed
    for segment in log.segments:
        assert segment.path.parent == log.directory
        assert segment.offset_index.path.parent == log.directory
        assert segment.time_index.path.parent == log.directory
        assert segment.indexes.transactions.path.parent == log.directory
    assert offsets(directory, "recovery-point") == {}
    assert data.read() == expected

    logs.pass_time(INITIAL_DELAY_MS)
    assert directories_in(directory) == [renamed]
    logs.pass_time(DELAY_MS - INITIAL_DELAY_MS)
    assert directories_in(directory) == []
    assert data.read() == expected
    assert logs.manager.delete(partition) is None


def test_a_reader_that_still_has_a_deleted_log_is_refused_and_nothing_goes_offline(
    logs: StoredLogs,
) -> None:
    log, other = logs.log("kafka-0"), logs.log("other-0")
    append_many(log, 40)
    append_many(other, 1)
    logs.manager.delete(log.topic_partition)
    assert log.reader.read(30, 100, isolation=Isolation.LOG_END).read() != b""
    logs.pass_time(DELAY_MS + 1_000)
    attempts: list[Callable[[], object]] = [
        lambda: log.reader.read(0, 100, isolation=Isolation.LOG_END),
        lambda: log.reader.list_offset(logs.clock.now_ms(), isolation=Isolation.LOG_END),
        lambda: put(log, b"v"),
        log.flush,
        log.roll,
        lambda: truncate_to(log, 3),
        log.close,
        log.delete,
    ]
    for attempt in attempts:
        with suppress(StorageError):
            attempt()
        assert not logs.manager.context.failures.offline
    assert directories_in(logs.directories[0]) == ["other-0"]
    assert put(other, b"v").first_offset == 1


def test_a_log_made_again_under_the_name_of_a_deleted_one_outlives_it(logs: StoredLogs) -> None:
    directory = logs.directories[0]
    old = logs.log("kafka-0")
    append_many(old, 5)
    logs.manager.delete(old.topic_partition)
    new = logs.log("kafka-0")
    assert new is not old
    assert new.log_end_offset == 0
    append_many(new, 3)
    logs.pass_time(DELAY_MS + 1_000)
    assert directories_in(directory) == ["kafka-0"]
    assert len(records_in(new)) == 3


def test_a_topic_of_253_characters_is_made_and_deleted(logs: StoredLogs) -> None:
    partition = TopicPartition("x" * 253, 0)
    log = logs.manager.get_or_create(partition)
    put(log, b"v")
    logs.manager.delete(partition)
    (renamed,) = directories_in(logs.directories[0])
    assert len(renamed) == 255
    logs.kill()
    logs.start().start_tasks()
    logs.pass_time(DELAY_MS + INITIAL_DELAY_MS + 1_000)
    assert directories_in(logs.directories[0]) == []


def test_segments_waiting_for_removal_when_their_log_is_deleted_go_with_it(
    logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    log = logs.log("kafka-0")
    append_many(log, 100)
    delete_segments(log, 2, reason="a test")
    logs.pass_time(DELAY_MS // 2)
    logs.manager.delete(log.topic_partition)
    logs.pass_time(2 * DELAY_MS)
    assert directories_in(logs.directories[0]) == []
    assert "Uncaught exception" not in caplog.text
    assert not logs.manager.context.failures.offline


def test_a_directory_found_marked_for_deletion_is_not_served_and_goes(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path, defaults=CONFIG, broker=BROKER)
    logs.start()
    log = logs.log("kafka-0")
    append_many(log, 30)
    logs.manager.delete(log.topic_partition)
    (renamed,) = directories_in(tmp_path)
    logs.kill()
    before = logs.files()
    logs.start()
    assert logs.manager.logs() == []
    assert directories_in(tmp_path) == [renamed]
    assert logs.files() == before
    logs.manager.start_tasks()
    logs.pass_time(INITIAL_DELAY_MS)
    assert directories_in(tmp_path) == [renamed]
    logs.pass_time(DELAY_MS)
    assert directories_in(tmp_path) == []
    logs.manager.shutdown()
    logs.start()


@pytest.mark.parametrize("topic", ["../evil", "/proc/evil", "a\0b", "x" * 10_000])
def test_a_log_whose_name_leads_elsewhere_is_not_made_and_the_others_are(
    tmp_path: Path, logs: StoredLogs, topic: str
) -> None:
    wanted = [NewLog(TopicPartition(name, 0)) for name in ("a", topic, "b")]
    first, refused, last = logs.manager.get_or_create_all(wanted)
    assert isinstance(first, PartitionLog)
    assert isinstance(last, PartitionLog)
    assert isinstance(refused, InvalidTopicError)
    assert logs.manager.context.failures.offline == {}
    assert names(tmp_path) == ["logs"]
    assert directories_in(logs.directories[0]) == ["a-0", "b-0"]


# ---- damaged checkpoints


def test_a_log_start_above_the_high_watermark_of_a_clean_stop_takes_no_record(
    logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    append_many(logs.log("kafka-0"), 10)
    logs.manager.shutdown()
    damaged = build_offset_checkpoint({TopicPartition("kafka", 0): 5_000})
    path = logs.directories[0] / "log-start-offset-checkpoint"
    path.write_bytes(damaged)
    logs.start()
    log = logs.log("kafka-0")
    assert (log.log_start_offset, log.log_end_offset, len(records_in(log))) == (0, 10, 10)
    assert f"The line of kafka-0 in {path} is not taken: log start offset 5000" in caplog.text


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 2**31])
def test_a_log_start_that_no_log_can_have_takes_no_record_after_a_kill(
    logs: StoredLogs, offset: int
) -> None:
    append_many(logs.log("kafka-0"), 10)
    logs.kill()
    damaged = build_offset_checkpoint({TopicPartition("kafka", 0): offset})
    (logs.directories[0] / "log-start-offset-checkpoint").write_bytes(damaged)
    logs.start()
    log = logs.log("kafka-0")
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    assert put(log, b"v").first_offset == 10


def test_a_damaged_recovery_point_or_high_watermark_is_bounded_by_the_log(logs: StoredLogs) -> None:
    append_many(logs.log("kafka-0"), 10)
    logs.kill()
    damaged = build_offset_checkpoint({TopicPartition("kafka", 0): 2**63 - 1})
    for name in ("recovery-point", "replication"):
        (logs.directories[0] / f"{name}-offset-checkpoint").write_bytes(damaged)
    logs.start()
    log = logs.log("kafka-0")
    assert (log.offsets.recovery_point, log.high_watermark, log.log_end_offset) == (10, 10, 10)


# ---- stray directories


def test_a_log_that_belongs_to_nobody_is_renamed_and_kept(
    logs: StoredLogs, caplog: pytest.LogCaptureFixture
) -> None:
    directory = logs.directories[0]
    stray, own = logs.log("stray-0"), logs.log("own-0")
    append_many(stray, 3)
    append_many(own, 3)
    logs.manager.shutdown()
    caplog.set_level(logging.INFO)
    asked: list[str] = []

    def is_stray(log: PartitionLog) -> bool:
        asked.append(str(log.topic_partition))
        return log.topic_partition.topic == "stray"

    logs.start(is_stray=is_stray)
    assert sorted(asked) == ["own-0", "stray-0"]
    assert [str(log.topic_partition) for log in logs.manager.logs()] == ["own-0"]
    assert "Found stray log dir" in caplog.text
    kept, renamed = directories_in(directory)
    assert kept == "own-0"
    assert renamed.startswith("stray-0.")
    assert renamed.endswith("-stray")
    logs.manager.shutdown()
    before = logs.files()

    asked.clear()
    logs.start(is_stray=is_stray)
    assert asked == ["own-0"]
    assert directories_in(directory) == [kept, renamed]
    logs.manager.start_tasks()
    logs.pass_time(10 * DELAY_MS)
    assert directories_in(directory) == [kept, renamed]
    fresh = logs.log("stray-0")
    assert fresh.log_end_offset == 0
    assert {p: d for p, d in before.items() if "-stray" in p}.items() <= logs.files().items()


def test_logs_without_a_topic_id_or_with_another_one_can_be_told_to_be_stray(
    logs: StoredLogs,
) -> None:
    logs.manager.get_or_create(TopicPartition("right", 0), topic_id=WANTED_ID)
    logs.manager.get_or_create(TopicPartition("wrong", 0), topic_id=OTHER_ID)
    logs.manager.get_or_create(TopicPartition("none", 0))
    logs.manager.context.scheduler.run_due()
    logs.kill()
    logs.start(is_stray=lambda log: log.topic_id != WANTED_ID)
    assert [str(log.topic_partition) for log in logs.manager.logs()] == ["right-0"]
    found = directories_in(logs.directories[0])
    assert [name.rpartition("-")[2] for name in found] == ["stray", "0", "stray"]


# ---- what is found at the start


def test_the_cache_of_remote_indexes_and_the_metadata_log_are_passed_over(tmp_path: Path) -> None:
    for name in ("remote-log-index-cache", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"x")
    logs = StoredLogs(tmp_path)
    logs.start()
    assert logs.manager.logs() == []
    assert (tmp_path / "remote-log-index-cache" / "x").exists()
    assert names(tmp_path / "__cluster_metadata-0") == ["x"]


def test_plain_files_beside_the_partitions_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "README").write_bytes(b"x")
    logs = StoredLogs(tmp_path)
    logs.start()
    assert logs.manager.logs() == []


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.begun: list[tuple[Path, int]] = []
        self.loaded: list[tuple[Path, str]] = []
        self.segments: list[tuple[str, int, int]] = []

    def begin(self, log_dir: Path, total: int) -> None:
        self.begun.append((log_dir, total))

    def advance(self, log_dir: Path, name: str) -> None:
        self.loaded.append((log_dir, name))

    def segment(self, name: str, number: int, total: int) -> None:
        self.segments.append((name, number, total))


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_is_told_of_every_log_and_recovered_segment(tmp_path: Path, threads: int) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    logs = StoredLogs(
        first,
        second,
        defaults=CONFIG,
        broker=BrokerConfig({"num.recovery.threads.per.data.dir": threads}),
    )
    logs.start()
    size = len(batch_of(b"test"))
    per_segment = 1024 // size
    for name, directory, segments in (("a-0", first, 2), ("b-0", second, 3), ("c-0", first, 1)):
        log = logs.log(name, directory)
        append_many(log, per_segment * segments)
        assert len(log.segments) == segments
    logs.kill()
    heard = Heard()
    logs.start(progress=heard)
    assert heard.begun == [(first, 2), (second, 1)]
    assert sorted(heard.loaded) == [(first, "a-0"), (first, "c-0"), (second, "b-0")]
    assert sorted(heard.segments) == [
        ("a-0", 0, 2),
        ("a-0", 1, 2),
        ("b-0", 0, 3),
        ("b-0", 1, 3),
        ("b-0", 2, 3),
        ("c-0", 0, 1),
    ]
    logs.manager.shutdown()
    heard = Heard()
    logs.start(progress=heard)
    assert sorted(heard.loaded) == [(first, "a-0"), (first, "c-0"), (second, "b-0")]
    assert heard.segments == []


# ---- settings change


def test_settings_of_a_running_topic_are_in_force_for_all_its_logs(logs: StoredLogs) -> None:
    changed, other = logs.log("kafka-0"), logs.log("other-0")
    second = logs.log("kafka-1")
    size = len(batch_of(b"test"))
    for log in (changed, second, other):
        append_many(log, 2)
    config = LogConfig(
        segment_bytes=2 * size,
        retention_bytes=2 * size,
        compression_type="gzip",
        segment_index_bytes=4096,
    )
    logs.configs["kafka"] = config
    assert logs.manager.update_topic_config("kafka", config) == []
    assert (changed.config, second.config, other.config) == (config, config, CONFIG)
    for log in (changed, other):
        for _ in range(4):
            put(log, b"v" * 30)
        log.update_high_watermark(log.log_end_offset)
    assert len(other.segments) == 1
    assert len(changed.segments) > 1
    header = changed.active.path.read_bytes()[:61]
    assert int.from_bytes(header[21:23], "big") & 7 == 1
    assert not (other.active.path.read_bytes()[21 + 1] & 7)
    before = len(changed.segments)
    logs.pass_time(INITIAL_DELAY_MS)
    assert len(changed.segments) < before
    assert len(other.segments) == 1
    assert records_in(changed)[-1][3] == b"v" * 30
    logs.manager.shutdown()
    logs.start()
    assert logs.log("kafka-0").config == config


def test_logs_whose_compaction_ends_are_listed(logs: StoredLogs) -> None:
    compact = LogConfig(cleanup_policy=frozenset({"compact"}))
    logs.configs["topic"] = compact
    both = [logs.log("topic-0"), logs.log("topic-1")]
    logs.log("other-0")
    delete = LogConfig(cleanup_policy=frozenset({"delete"}))
    assert logs.manager.update_topic_config("topic", delete) == both
    for log in both:
        assert log.config.delete
        assert not log.config.compact
    assert logs.manager.update_topic_config("topic", delete) == []
    assert logs.manager.update_topic_config("topic", compact) == []
    assert logs.manager.update_topic_config("nobody", delete) == []


def test_settings_that_change_while_a_log_is_loaded_are_in_force_afterwards(
    logs: StoredLogs,
) -> None:
    logs.log("one-0")
    logs.log("two-0")
    logs.manager.shutdown()
    config = LogConfig(retention_ms=5)

    class Change(StopAt):
        def advance(self, log_dir: Path, name: str) -> None:
            if name == "one-0":
                logs.configs["one"] = config
                logs.manager.update_topic_config("one", config)

    logs.start(progress=Change(1))
    assert logs.log("one-0").config == config
    assert logs.log("two-0").config == CONFIG


# ---- producers


def test_producers_are_forgotten_by_the_task_for_it(tmp_path: Path) -> None:
    clock = ManualClock()
    logs = StoredLogs(tmp_path, defaults=LogConfig(retention_ms=-1), broker=BROKER, clock=clock)
    logs.start().start_tasks()
    log = logs.log("kafka-0")
    put(log, b"v", producer=(1, 0, 0))
    logs.pass_time(86_400_000 - 600_000, step_ms=600_000)
    assert log.producer_state.last_entry(1) is not None
    logs.pass_time(2 * 600_000, step_ms=600_000)
    assert log.producer_state.last_entry(1) is None


def test_truncation_makes_the_lower_recovery_point_last_first(logs: StoredLogs) -> None:
    log = logs.log("kafka-0")
    append_many(log, 100)
    log.flush()
    logs.manager.checkpoint_recovery_points()
    assert offsets(logs.directories[0], "recovery-point") == {"kafka-0": 100}
    logs.manager.truncate_to({log.topic_partition: 33})
    assert offsets(logs.directories[0], "recovery-point") == {"kafka-0": 33}
    assert log.log_end_offset == 33
    logs.manager.truncate_fully_and_start_at(log.topic_partition, 7)
    assert offsets(logs.directories[0], "recovery-point") == {"kafka-0": 7}
    logs.kill()
    logs.start()
    assert logs.log("kafka-0").log_end_offset == 7
    assert keys_in(logs.log("kafka-0")) == []
    assert [path.name for path in (logs.directories[0] / "kafka-0").glob(f"*{LOG_SUFFIX}")] == [
        f"{7:020d}.log"
    ]


@pytest.mark.parametrize("fully", [False, True])
def test_records_behind_a_truncation_below_the_log_start_survive_a_kill(
    logs: StoredLogs, *, fully: bool
) -> None:
    log = logs.log("kafka-0")
    append_many(log, 100)
    log.delete_records(50)
    logs.manager.checkpoint_log_start_offsets()
    if fully:
        logs.manager.truncate_fully_and_start_at(log.topic_partition, 33)
    else:
        logs.manager.truncate_to({log.topic_partition: 33})
    put(log, b"v", key=b"behind")
    log.flush()
    logs.kill()
    logs.start()
    log = logs.log("kafka-0")
    assert (log.log_start_offset, log.log_end_offset) == (33, 34)
    assert keys_in(log)[-1] == b"behind"
