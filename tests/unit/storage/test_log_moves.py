"""A partition moved to another directory under appends and reads, through restarts and crashes.

Source: kafka.server.ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import iter_batches
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid
from cordwood.storage.log.leader_epochs import EpochEntry
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_moves import LogMove
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.stored_log import (
    StoredLogs,
    batch_of,
    batches_in,
    end_transaction,
    put,
    records_in,
)

A, B = Path("/logs/a"), Path("/logs/b")
PARTITION = TopicPartition("kafka", 0)
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=1000)
BROKER = BrokerConfig({"log.initial.task.delay.ms": 10, "num.recovery.threads.per.data.dir": 1})
TOPIC_ID = parse_uuid("69O438ZkTSeqqclTtZO2KA")


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def logs(fs: SimulatedFileSystem) -> StoredLogs:
    """Two directories; kafka-0 lies in the first, and has forty records."""
    stored = StoredLogs(A, B, defaults=CONFIG, broker=BROKER, fs=fs)
    stored.start().start_tasks()
    fill(stored.manager.get_or_create(PARTITION, log_dir=A, topic_id=TOPIC_ID), 40)
    return stored


def fill(log: PartitionLog, count: int, *, leader_epoch: int = 0) -> None:
    for _ in range(count):
        value = b"v%d" % log.log_end_offset
        put(log, value, key=b"k", leader_epoch=leader_epoch)
    log.update_high_watermark(log.log_end_offset)


def current(logs: StoredLogs) -> PartitionLog:
    return logs.manager.require(PARTITION)


def future(logs: StoredLogs) -> PartitionLog:
    return logs.manager.require(PARTITION, future=True)


def raw(log: PartitionLog) -> list[bytes]:
    return [bytes(batch.raw) for batch in batches_in(log)]


def names_in(logs: StoredLogs, directory: Path) -> list[str]:
    return [entry.name for entry in logs.fs.entries_in(directory) if entry.is_directory]


def catch_up(move: LogMove, max_bytes: int = 1 << 20) -> int:
    """Advances until the future log has caught up; how many steps it took."""
    steps = 1
    while not move.advance(max_bytes=max_bytes):
        steps += 1
        assert steps < 1000, "it never catches up"
    return steps


def check_moved(logs: StoredLogs, expected: list[bytes]) -> None:
    """The partition lies in the second directory, and has these batches."""
    log = current(logs)
    assert log.directory == B / "kafka-0"
    assert raw(log) == expected
    assert logs.manager.get(PARTITION, future=True) is None
    assert [n for n in names_in(logs, B) if not n.endswith("-delete")] == ["kafka-0"]
    assert all(name.endswith("-delete") for name in names_in(logs, A))
    assert "cordwood.moved" not in logs.fs.names_in(B / "kafka-0")


# ---- while it runs


def test_a_log_is_moved_as_it_is(logs: StoredLogs) -> None:
    expected = raw(current(logs))
    old = current(logs)
    move = LogMove(logs.manager, PARTITION, B)
    (name,) = names_in(logs, B)
    assert name.startswith("kafka-0.")
    assert name.endswith("-future")
    catch_up(move)
    assert current(logs) is old
    new = move.finish()
    assert new is current(logs)
    assert old.directory.parent == A
    assert old.directory.name.endswith("-delete")
    check_moved(logs, expected)
    assert new.topic_id == TOPIC_ID
    assert new.leader_epochs.epoch_entries == (EpochEntry(0, 0),)
    assert (new.high_watermark, new.log_start_offset) == (40, 0)
    logs.pass_time(3000)
    assert names_in(logs, A) == []


def test_records_appended_between_the_steps_are_moved_too(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    for n in range(20):
        move.advance(max_bytes=150)
        fill(current(logs), 1 + n % 3)
    catch_up(move, max_bytes=150)
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)
    fill(current(logs), 5)
    assert len(records_in(current(logs))) == 40 + 39 + 5


def test_a_log_that_has_not_caught_up_does_not_take_the_others_place(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    fill(current(logs), 1)
    with pytest.raises(StorageError, match="the future log of kafka-0 has not caught up"):
        move.finish()
    assert current(logs).log_dir == A
    catch_up(move)
    move.finish()
    assert len(records_in(current(logs))) == 41


class Consumer:
    """Reads a partition from its start in a thread, up to an offset."""

    def __init__(self, logs: StoredLogs, end: int) -> None:
        self.offsets: list[int] = []
        self._logs = logs
        self._end = end

    def run(self) -> None:
        offset = 0
        while offset < self._end:
            fetched = current(self._logs).reader.read(
                offset, 4000, isolation=Isolation.HIGH_WATERMARK
            )
            for _, batch in iter_batches(fetched.read()):
                self.offsets += [record.offset for record in batch.records()]
                offset = batch.next_offset


class Appender:
    """Appends to a partition in a thread, wherever it lies."""

    def __init__(self, logs: StoredLogs, end: int) -> None:
        self.begun = threading.Event()
        self.refused = 0
        self._logs = logs
        self._end = end

    def run(self) -> None:
        while current(self._logs).log_end_offset < self._end:
            try:
                fill(current(self._logs), 1)
            except StorageError:  # it was moved between the two words
                self.refused += 1
            self.begun.set()


def test_appends_and_reads_go_on_in_other_threads_while_it_is_moved(tmp_path: Path) -> None:
    logs = StoredLogs(tmp_path / "a", tmp_path / "b", defaults=CONFIG, broker=BROKER)
    logs.start()
    fill(logs.manager.get_or_create(PARTITION, log_dir=tmp_path / "a"), 40)
    appender, consumer = Appender(logs, 400), Consumer(logs, 400)
    with ThreadPoolExecutor(2) as pool:
        works = [pool.submit(appender.run), pool.submit(consumer.run)]
        appender.begun.wait(120)
        for directory in ("b", "a", "b"):
            move = LogMove(logs.manager, PARTITION, tmp_path / directory)
            while True:
                catch_up(move)
                with suppress(StorageError):  # another record has come
                    move.finish()
                    break
        for work in works:
            work.result(120)
    log = current(logs)
    assert log.log_dir == tmp_path / "b"
    values = [(offset, value) for offset, _, _, value in records_in(log)]
    assert values == [(n, b"v%d" % n) for n in range(400)]
    assert consumer.offsets == list(range(400))
    assert appender.refused <= 3
    logs.manager.shutdown()


def test_ranges_that_readers_hold_outlive_the_old_directory(logs: StoredLogs) -> None:
    fetched = current(logs).reader.read(0, 1 << 20, isolation=Isolation.LOG_END)
    expected = fetched.read()
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    move.finish()
    logs.pass_time(3000)
    assert names_in(logs, A) == []
    assert fetched.read() == expected


def test_who_still_has_the_old_log_is_refused(logs: StoredLogs) -> None:
    old = current(logs)
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    move.finish()
    with pytest.raises(StorageError, match="already closed"):
        put(old, b"lost")
    with pytest.raises(StorageError):
        move.advance()
    assert len(records_in(current(logs))) == 40


def test_what_moves_between_the_last_step_and_the_end_is_taken_over(logs: StoredLogs) -> None:
    log = current(logs)
    for _ in range(5):
        put(log, b"v")
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    assert future(logs).high_watermark == 40
    log.update_high_watermark(43)
    log.delete_records(17)
    log.assign_epoch(6)
    new = move.finish()
    assert new.high_watermark == 43
    assert new.log_start_offset == 17
    assert new.leader_epochs.latest_entry == EpochEntry(6, 45)
    logs.manager.shutdown()
    logs.start()
    assert current(logs).log_start_offset == 17
    assert current(logs).high_watermark == 43


def test_a_log_whose_start_lies_inside_a_batch_is_moved(logs: StoredLogs) -> None:
    log = logs.log("deep-0", A)
    for _ in range(6):
        put(log, *[b"v"] * 5)
    log.update_high_watermark(30)
    log.delete_records(13)
    partition = log.topic_partition
    move = LogMove(logs.manager, partition, B)
    catch_up(move)
    new = move.finish()
    assert new.log_start_offset == 13
    assert new.log_end_offset == 30
    data = new.reader.read(13, 1 << 20, isolation=Isolation.LOG_END).read()
    assert [batch.base_offset for _, batch in iter_batches(data)] == [10, 15, 20, 25]
    logs.manager.shutdown()
    logs.start()
    assert logs.manager.require(partition).log_start_offset == 13


def test_records_deleted_beyond_what_is_copied_are_not_copied(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    move.advance(max_bytes=100)
    assert future(logs).log_end_offset < 30
    current(logs).delete_records(30)
    catch_up(move)
    new = move.finish()
    assert new.log_start_offset == 30
    assert [offset for offset, *_ in records_in(new)] == list(range(30, 40))


def test_a_log_with_gaps_and_a_transaction_is_moved(logs: StoredLogs) -> None:
    log = logs.log("gaps-0", A)
    for offset in (0, 5, 9):
        log.append_as_follower(batch_of(b"v", base_offset=offset))
    put(log, b"v", producer=(7, 0, 0), transactional=True)
    put(log, b"v", producer=(8, 0, 0), transactional=True)
    end_transaction(log, 7, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 11
    expected = raw(log)
    move = LogMove(logs.manager, log.topic_partition, B)
    catch_up(move)
    new = move.finish()
    assert raw(new) == expected
    assert new.last_stable_offset == 11
    aborted = [e for s in new.segments for e in s.indexes.transactions.all_aborted()]
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in aborted] == [(7, 10, 12)]
    assert new.producer_state.entries() == log.producer_state.entries()


def test_a_truncation_while_it_is_moved_reaches_the_future_log(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    logs.manager.truncate_to({PARTITION: 25})
    for n in range(30):
        put(current(logs), b"new%d" % n)
    catch_up(move)
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)


def test_a_full_truncation_while_it_is_moved_reaches_the_future_log(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    logs.manager.truncate_fully_and_start_at(PARTITION, 10)
    for n in range(40):
        put(current(logs), b"new%d" % n)
    catch_up(move)
    expected = raw(current(logs))
    new = move.finish()
    check_moved(logs, expected)
    assert new.log_start_offset == 10


def test_a_truncation_while_records_are_being_copied_leaves_no_gap(
    fs: SimulatedFileSystem, logs: StoredLogs
) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    while future(logs).log_end_offset <= 25:
        move.advance(max_bytes=500)
    assert future(logs).log_end_offset < 40
    has_cut = False

    def cut(operation: FileOperation) -> None:
        nonlocal has_cut
        if (
            operation.kind is FileOperationKind.READ
            and operation.path.parent == A / "kafka-0"
            and not has_cut
        ):
            has_cut = True
            logs.manager.truncate_to({PARTITION: 25})
            for n in range(30):
                put(current(logs), b"new%d" % n)

    fs.fail = cut
    move.advance()
    fs.fail = None
    assert has_cut
    catch_up(move)
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)


def test_a_move_to_where_it_lies_or_of_what_is_not_there_is_refused(logs: StoredLogs) -> None:
    with pytest.raises(StorageError, match="kafka-0 lies in /logs/a already"):
        LogMove(logs.manager, PARTITION, A)
    with pytest.raises(StorageError, match="there is no log of other-0 here"):
        LogMove(logs.manager, TopicPartition("other", 0), B)
    with pytest.raises(StorageError, match="No log directories available"):
        LogMove(logs.manager, PARTITION, Path("/logs/c"))
    assert names_in(logs, B) == []


def test_a_move_that_is_given_up_leaves_nothing(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    move.advance(max_bytes=200)
    logs.manager.delete(PARTITION, future=True)
    assert len(records_in(current(logs))) == 40
    with pytest.raises(StorageError):
        move.advance()
    logs.pass_time(3000)
    assert names_in(logs, B) == []
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    move.finish()


def test_a_topic_that_is_deleted_while_it_is_moved_goes_from_both(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    move.advance(max_bytes=200)
    logs.manager.delete(PARTITION)
    logs.manager.delete(PARTITION, future=True)
    logs.pass_time(3000)
    assert names_in(logs, A) == names_in(logs, B) == []


def test_other_settings_are_in_force_for_the_future_log_too(logs: StoredLogs) -> None:
    LogMove(logs.manager, PARTITION, B)
    config = LogConfig(segment_bytes=500)
    logs.configs["kafka"] = config
    logs.manager.update_topic_config("kafka", config)
    assert current(logs).config == future(logs).config == config


# ---- through restarts


@pytest.mark.parametrize("end", ["a clean stop", "a kill"])
def test_a_move_that_a_restart_interrupts_goes_on_where_it_was(logs: StoredLogs, end: str) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    move.advance(max_bytes=1000)
    copied = future(logs).log_end_offset
    assert 0 < copied < 40
    if end == "a kill":
        logs.kill()
    else:
        logs.manager.shutdown()
    logs.start()
    assert current(logs).log_dir == A
    assert future(logs).log_end_offset == copied
    fill(current(logs), 3)
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)
    logs.manager.shutdown()
    logs.start()
    check_moved(logs, expected)


def test_a_future_log_that_was_killed_before_its_first_record_has_the_topic_id(
    logs: StoredLogs,
) -> None:
    LogMove(logs.manager, PARTITION, B)
    logs.kill()
    logs.start()
    move = LogMove(logs.manager, PARTITION, B)
    assert future(logs).topic_id == TOPIC_ID
    catch_up(move)
    move.finish()
    assert current(logs).topic_id == TOPIC_ID


def test_what_the_future_log_has_and_the_current_one_lost_in_a_crash_is_cut_off(
    logs: StoredLogs,
) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    path = current(logs).active.path
    logs.kill()
    # A power loss took the end of the one and not of the other, and a new leader goes on.
    data = logs.fs.read_bytes(path)
    logs.fs.write_durably(path, data[: len(data) // 2])
    logs.start()
    end = current(logs).log_end_offset
    assert end < future(logs).log_end_offset == 40
    current(logs).assign_epoch(1)
    fill(current(logs), 30, leader_epoch=1)
    assert current(logs).log_end_offset > 40
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)
    assert current(logs).leader_epochs.epoch_entries == (EpochEntry(0, 0), EpochEntry(1, end))


def test_a_future_log_ahead_of_the_current_one_is_cut_off(logs: StoredLogs) -> None:
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move)
    path = current(logs).active.path
    logs.kill()
    data = logs.fs.read_bytes(path)
    logs.fs.write_durably(path, data[: len(data) // 2])
    logs.start()
    end = current(logs).log_end_offset
    move = LogMove(logs.manager, PARTITION, B)
    assert move.advance()
    assert future(logs).log_end_offset == end
    expected = raw(current(logs))
    move.finish()
    check_moved(logs, expected)


def test_checkpoints_of_a_log_that_lay_there_before_do_not_bind_the_future_log(
    logs: StoredLogs,
) -> None:
    # Lines of kafka-0 that nobody has taken out of the second directory's checkpoints.
    for name, offset in (("log-start", 30), ("recovery-point", 40), ("replication", 40)):
        data = b"0\n1\nkafka 0 %d\n" % offset
        logs.fs.write_durably(B / f"{name}-offset-checkpoint", data)
    move = LogMove(logs.manager, PARTITION, B)
    move.advance(max_bytes=600)
    copied = future(logs).log_end_offset
    assert 0 < copied < 30
    logs.kill()
    logs.start()
    assert future(logs).log_start_offset == 0
    assert future(logs).log_end_offset == copied


# ---- crashes and failures


def moved_with_crashes(
    fs: SimulatedFileSystem, logs: StoredLogs, snap: Callable[[FileOperation], None]
) -> None:
    """A whole move, with a hook called before each operation of it."""
    fs.on_operation = snap
    move = LogMove(logs.manager, PARTITION, B)
    catch_up(move, max_bytes=1500)
    move.finish()
    logs.pass_time(3000)
    fs.on_operation = None


@pytest.mark.parametrize("power", ["lost", "kept"])
def test_a_crash_at_any_moment_of_a_move_loses_no_record_and_lets_it_go_on(
    fs: SimulatedFileSystem, logs: StoredLogs, power: str
) -> None:
    rng = random.Random(13)
    current(logs).flush()
    logs.manager.checkpoint_recovery_points()
    expected = raw(current(logs))
    images: list[SimulatedFileSystem] = []

    def snap(operation: FileOperation) -> None:
        if power == "lost":
            images.extend(fs.crash_images(3, rng))
        else:
            images.append(fs.process_crash())

    moved_with_crashes(fs, logs, snap)
    check_moved(logs, expected)
    assert len(images) > 60
    seen = set()
    for image in images[:: max(1, len(images) // 120)]:
        logs.fs = image
        logs.start().start_tasks()
        log = current(logs)
        assert raw(log) == expected
        assert log.topic_id == TOPIC_ID
        seen.add(log.log_dir)
        if log.log_dir == A:
            fill(log, 1)
            whole = raw(log)
            move = LogMove(logs.manager, PARTITION, B)
            catch_up(move)
            move.finish()
        else:
            whole = expected
        logs.pass_time(3000)
        check_moved(logs, whole)
        assert names_in(logs, A) == []
        logs.manager.shutdown()
        logs.start()
        check_moved(logs, whole)
        logs.manager.shutdown()
    assert seen == {A, B}


@pytest.mark.parametrize("failing", [A, B])
def test_a_directory_that_fails_at_any_moment_of_a_move_leaves_one_whole_log(
    fs: SimulatedFileSystem, logs: StoredLogs, failing: Path
) -> None:
    current(logs).flush()
    logs.manager.shutdown()
    whole = fs.clone()
    moment = 0
    outcomes = set()
    while True:
        logs.fs = broken = whole.clone()
        logs.start().start_tasks()
        expected = raw(current(logs))
        count = 0

        def fail(operation: FileOperation, moment: int = moment) -> OSError | None:
            nonlocal count
            if (
                operation.path.is_relative_to(failing)
                and operation.kind is not FileOperationKind.LOOK
            ):
                count += 1
                if count > moment:
                    return OSError(errno.EIO, os.strerror(errno.EIO), str(operation.path))
            return None

        broken.fail = fail
        with suppress(StorageError):
            move = LogMove(logs.manager, PARTITION, B)
            catch_up(move)
            move.finish()
        is_over = count <= moment
        broken.fail = None
        # What lives on serves the partition, if it has all of it.
        served = logs.manager.get(PARTITION)
        if served is not None and not logs.manager.context.failures.offline:
            assert raw(served) == expected
        logs.fs = broken.process_crash()
        logs.start()
        log = current(logs)
        assert raw(log) == expected
        outcomes.add(log.log_dir)
        logs.manager.shutdown()
        if is_over:
            break
        moment += 1
    assert moment > 5
    assert outcomes == {A, B}
