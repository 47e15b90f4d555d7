"""Crashes that once lost something, one by one: what was flushed, cut off or deleted stays so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.file_names import LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log_moves import LogMove
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.log_crash_check import read_committed
from support.stored_log import StoredLogs, batch_of, end_transaction, put, records_in

LOGS, OTHER_LOGS = Path("/data/logs"), Path("/data/other")
PARTITION = TopicPartition("t", 0)
IMAGES = 12

Changes = Callable[[StoredLogs], object]


def started(fs: SimulatedFileSystem, *directories: Path, **settings: object) -> StoredLogs:
    """A broker that has just started on a file system."""
    stored = StoredLogs(
        *(directories or (LOGS,)),
        defaults=LogConfig(**settings),  # type: ignore[arg-type]
        broker=BrokerConfig({"num.recovery.threads.per.data.dir": 1}),
        fs=fs,
        clock=ManualClock(),
    )
    stored.start()
    return stored


def crashed(stored: StoredLogs) -> Iterator[StoredLogs]:
    """The broker started again, on each file system that a power loss now may leave."""
    fs = stored.fs
    assert isinstance(fs, SimulatedFileSystem), "it loses power"
    for image in fs.crash_images(IMAGES, random.Random(1)):
        again = StoredLogs(
            *stored.directories,
            defaults=stored.defaults,
            broker=stored.broker,
            fs=image,
            clock=stored.clock,
        )
        again.start()
        yield again


def crashed_during(stored: StoredLogs, change: Changes) -> list[StoredLogs]:
    """The same for a power loss before each operation of a change, and behind it."""
    fs = stored.fs
    assert isinstance(fs, SimulatedFileSystem), "it loses power"
    found: list[StoredLogs] = []

    def crash(_: FileOperation) -> None:
        found.extend(crashed(stored))

    fs.on_operation = crash
    change(stored)
    fs.on_operation = None
    found.extend(crashed(stored))
    assert len(found) > IMAGES, "the change changes something"
    return found


def values_in(log: PartitionLog) -> list[bytes | None]:
    return [value for _, _, _, value in records_in(log)]


def caught_up(log: PartitionLog) -> PartitionLog:
    log.update_high_watermark(log.log_end_offset)
    return log


# ---- names and lengths


def test_a_log_directory_that_was_made_lasts_with_what_was_flushed() -> None:
    stored = started(SimulatedFileSystem())
    put(stored.log(), b"v")
    stored.log().flush()
    for again in crashed(stored):
        assert values_in(again.log()) == [b"v"]


def test_what_was_flushed_lasts_though_its_preallocated_segment_was_rolled() -> None:
    stored = started(SimulatedFileSystem(), preallocate=True, segment_bytes=500)
    log = stored.log()
    put(log, b"a")
    log.flush()
    stored.manager.checkpoint_recovery_points()

    def roll_and_flush(_: StoredLogs) -> None:
        log.roll()
        put(log, b"b")
        log.flush()

    for again in crashed_during(stored, roll_and_flush):
        assert values_in(again.log())[:1] == [b"a"]
    for again in crashed(stored):
        assert values_in(again.log()) == [b"a", b"b"]


def test_a_new_segments_name_lasts_with_its_flush_also_where_records_were_deleted() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    put(log, b"a")
    log.roll()
    for value in (b"b", b"c"):
        put(log, value)
    caught_up(log).delete_records(2)
    log.flush()
    for again in crashed(stored):
        assert values_in(again.log())[-2:] == [b"b", b"c"]


def test_a_roll_of_an_empty_segment_never_takes_the_log_back_to_its_beginning() -> None:
    stored = started(SimulatedFileSystem(), file_delete_delay_ms=0)
    log = stored.log()
    put(log, b"a", b"b")
    caught_up(log)
    delete_segments(log, 1, reason="test")
    log.flush()
    stored.manager.checkpoint_log_start_offsets()
    for again in crashed_during(stored, lambda _: log.roll()):
        assert again.log().log_end_offset == 2


# ---- what is cut off


def test_segments_that_were_cut_off_do_not_come_back_behind_a_gap() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    put(log, b"a")
    put(log, b"b")
    log.roll()
    put(log, b"c")
    log.flush()
    stored.manager.checkpoint_recovery_points()
    for again in crashed_during(stored, lambda _: stored.manager.truncate_to({PARTITION: 1})):
        assert values_in(again.log()) in ([b"a"], [b"a", b"b"], [b"a", b"b", b"c"])
    for again in crashed(stored):
        assert values_in(again.log()) == [b"a"]


def test_an_aborted_transaction_that_was_cut_off_hides_no_committed_record() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    put(log, b"txn", producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, commit=False)
    log.flush()
    stored.manager.checkpoint_recovery_points()
    stored.manager.truncate_to({PARTITION: 1})

    def commit(_: StoredLogs) -> None:
        log.roll()
        end_transaction(log, 1, commit=True)
        log.flush()
        stored.manager.checkpoint_recovery_points()

    for again in crashed_during(stored, commit):
        seen = read_committed(caught_up(again.log()), 0, 1 << 20)
        assert [record.value for record in seen] == [b"txn"] * (again.log().log_end_offset - 1)


def test_a_batch_whose_offset_alone_was_lost_takes_no_flushed_record_with_it() -> None:
    """Its first eight bytes end a sector: no CRC covers them."""
    stored = started(SimulatedFileSystem(), index_interval_bytes=0)
    log = stored.log()
    for _ in range(3):
        put(log, b"flushed")
    room = 1024 - 8 - log.size_bytes - len(batch_of(b""))
    put(log, b"x" * (room - 2))
    assert 1024 - log.size_bytes in range(1, 9), log.size_bytes
    log.flush()
    stored.manager.checkpoint_recovery_points()
    flushed = values_in(log)
    put(log, b"torn" * 20)
    path = log.active.path
    data = log.context.fs.read_bytes(path)
    torn = bytearray(data)
    torn[log.active.size_bytes - len(batch_of(b"torn" * 20)) : 1024] = bytes(
        1024 - (log.active.size_bytes - len(batch_of(b"torn" * 20)))
    )
    image = stored.fs
    assert isinstance(image, SimulatedFileSystem), "it loses power"
    image = image.process_crash()
    image.open(path, write=True).write_at([bytes(torn)], 0)
    again = started(image, index_interval_bytes=0)
    assert values_in(again.log()) == flushed


# ---- what is deleted


def test_deleted_segments_stay_deleted_behind_the_next_checkpoint() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    for value in (b"a", b"b"):
        put(log, value)
        log.roll()
    delete_segments(caught_up(log), 2, reason="test")
    stored.manager.checkpoint_log_start_offsets()
    for again in crashed(stored):
        assert (values_in(again.log()), again.log().log_start_offset) == ([], 2)


def test_a_kill_after_a_power_loss_has_nothing_taken_for_flushed_that_was_not() -> None:
    stored = started(SimulatedFileSystem())
    put(stored.log(), b"a", b"b", b"c")
    stored.log().flush()
    stored.manager.truncate_to({PARTITION: 1})  # takes the batch as a whole
    lost = next(crashed(stored))
    assert (lost.log().log_end_offset, lost.log().offsets.recovery_point) == (0, 0)
    put(lost.log(), b"d")
    fs = lost.fs
    assert isinstance(fs, SimulatedFileSystem), "it loses power"
    killed = started(fs.process_crash())
    killed.log().flush(force_active=False)
    for again in crashed(killed):
        assert values_in(again.log()) == [b"d"]


def test_leader_epochs_of_records_that_come_back_are_those_of_the_records() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    for epoch in (1, 2):
        put(log, b"v", leader_epoch=epoch)
    log.flush()
    caught_up(log).delete_records(2)
    for again in crashed(stored):
        assert again.log().log_start_offset == 0
        assert again.log().leader_epochs.epoch_entries == ((1, 0), (2, 1))


# ---- indexes and producers


def test_a_time_index_lasts_where_its_segment_was_flushed_before_the_roll() -> None:
    stored = started(SimulatedFileSystem(), flush_messages=1, index_interval_bytes=100)
    log = stored.log()
    at = 1_600_000_000_000
    for number in range(4):
        put(log, b"v", timestamp=at + 10 * number)
    assert log.active.time_index.last_entry.timestamp == at + 20, "the last is not in it yet"
    stored.manager.checkpoint_recovery_points()
    for again in crashed_during(stored, lambda _: log.roll()):
        found = again.log().reader.list_offset(at + 25, isolation=Isolation.LOG_END)
        assert found is not None
        assert found.offset == 3


def test_a_second_recovery_knows_the_same_producers_when_the_first_segment_is_gone() -> None:
    stored = started(SimulatedFileSystem())
    log = stored.log()
    put(log, b"a", producer=(1, 0, 0))
    log.roll()
    stored.manager.context.scheduler.run_due()
    put(log, b"b", producer=(2, 0, 0))
    delete_segments(caught_up(log), 1, reason="test")
    log.flush()
    log.flusher.sync_names()
    stored.kill()
    snapshots = []
    for _ in range(3):
        stored.start()
        name = segment_file_name(2, PRODUCER_SNAPSHOT_SUFFIX)
        snapshots.append(stored.fs.read_bytes(stored.log().directory / name))
        stored.kill()
    assert snapshots[0] == snapshots[1] == snapshots[2]


def test_a_transaction_index_that_was_not_flushed_does_not_keep_a_torn_log_from_opening() -> None:
    fs = SimulatedFileSystem()
    stored = started(fs)
    log = stored.log()
    put(log, b"a")
    log.roll()
    put(log, b"txn", producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, commit=False)
    fs.create(log.active.offset_index.path).close()
    index = log.active.indexes.transactions.path
    for path, size in ((log.segments.first.path, 80), (index, 34)):
        file = fs.open(path, write=True)
        file.write_at([bytes(size)], 0)
    fs.remove(log.directory / segment_file_name(1, PRODUCER_SNAPSHOT_SUFFIX))
    stored.fs = fs.process_crash()
    stored.start()
    assert values_in(stored.log()) == []


# ---- directories


@pytest.mark.parametrize("survivor", [LOGS, OTHER_LOGS])
def test_a_move_that_a_crash_cuts_in_two_leaves_one_log_with_everything(survivor: Path) -> None:
    target = OTHER_LOGS if survivor == LOGS else LOGS
    stored = started(SimulatedFileSystem(), LOGS, OTHER_LOGS)
    log = stored.log(directory=survivor)
    put(log, b"a", b"b")
    log.flush()
    move = LogMove(stored.manager, PARTITION, target)
    while not move.advance():
        pass
    directories = set()
    for again in crashed_during(stored, lambda _: move.finish()):
        assert values_in(again.log()) == [b"a", b"b"]
        directories.add(again.log().log_dir)
    assert directories == {survivor, target}


def test_a_damaged_directory_that_is_to_be_deleted_does_not_keep_the_others_from_loading() -> None:
    fs = SimulatedFileSystem()
    stored = started(fs)
    for name in ("t-0", "other-0"):
        put(stored.log(name), b"v")
        stored.log(name).roll()
        put(stored.log(name), b"w", producer=(1, 0, 0))
    log = stored.log()
    stored.manager.delete(PARTITION)
    stored.manager.shutdown()
    fs.open(log.directory / segment_file_name(0, LOG_SUFFIX), write=True).write_at(
        [bytes(HEADER_BYTES)], 0
    )
    for suffix in (".index", PRODUCER_SNAPSHOT_SUFFIX):
        fs.remove(log.directory / segment_file_name(1, suffix))
    stored.fs = fs.process_crash()
    stored.start()
    assert values_in(stored.log("other-0")) == [b"v", b"w"]
    assert [str(log.topic_partition) for log in islice(stored.manager.logs(), 9)] == ["other-0"]
