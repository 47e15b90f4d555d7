"""Examples that explain Kafka's logs by numbers, worked on a log; and reads by sendfile."""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path

import pytest

from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.reading.batch_heads import FileRange
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.log_under_test import (
    bases,
    batches_read,
    catch_up,
    fetch,
    follow,
    new_log,
    offsets_read,
    records_read,
    sized_batch,
)
from support.running_logs import RunningLogs
from support.stored_log import batch_of, put, records_in

LOGS = Path("/logs")
KB = 1000


# ---- what DeleteRecords and retention take


def test_with_the_log_start_at_25_segments_0_and_11_go_and_23_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in range(30):
        if offset in {11, 23}:
            log.roll()
        put(log, b"%d" % offset)
    assert bases(log) == (0, 11, 23)
    catch_up(log)
    assert log.delete_records(25) == 25
    assert bases(log) == (0, 11, 23), "nothing goes before the next pass"
    # 0 ends at 11 <= 25 and 11 at 23 <= 25; 23 has no segment behind it.
    assert retain(log, log.context.clock.now_ms()) == 2
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ((23,), 25, 30)
    assert offsets_read(fetch(log, 25)) == [25, 26, 27, 28, 29]
    assert [offset for offset, *_ in records_in(log)] == list(range(23, 30))


def test_with_the_log_start_at_25_a_segment_23_that_ends_there_goes_too(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in range(30):
        if offset in {11, 23, 25}:
            log.roll()
        put(log, b"%d" % offset)
    catch_up(log)
    log.delete_records(25)
    assert retain(log, log.context.clock.now_ms()) == 3
    assert bases(log) == (25,)


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (1500, (0, 1, 2, 3)),  # 1510 - 1500 = 10, less than a segment of 500
        (1010, (1, 2, 3)),  # 1510 - 1010 = 500, a whole segment
        (1000, (1, 2, 3)),  # 10 more than a segment are 510, not two
        (10, (3,)),  # the three of 500
        (1510, (0, 1, 2, 3)),
        (9, (3,)),  # a byte above 0 does not take the last 10
        (0, (4,)),  # everything: an empty segment is left
    ],
)
def test_three_segments_of_500_mb_and_10_active_mb_by_retention_bytes_a_thousandth_the_size(
    tmp_path: Path, retention: int, left: tuple[int, ...]
) -> None:
    log = new_log(tmp_path, segment_bytes=500 * KB, retention_bytes=retention * KB)
    for size in (500, 500, 500, 10):
        log.append_as_leader(sized_batch(size * KB))
    assert [segment.size_bytes // KB for segment in log.segments] == [500, 500, 500, 10]
    catch_up(log)
    retain(log, log.context.clock.now_ms())
    assert bases(log) == left
    assert log.log_start_offset == left[0]


# ---- how an offset is found


def log_with_entry_6_at_9807(root: Path, fs: FileSystem = OS) -> PartitionLog:
    """Batches of a record at 0 to 7, of which the one at 6 begins at byte 9807.

    The index has an entry for it alone: by then 9807 bytes have come since the beginning, more than
    the interval, and before it 8170, less than that.
    """
    log = new_log(root, index_interval_bytes=9000, fs=fs)
    for size in (1634, 1634, 1634, 1634, 1634, 1637, 500, 300):
        log.append_as_leader(sized_batch(size))
    return log


def test_offset_7_is_found_through_the_index_entry_6_at_9807(tmp_path: Path) -> None:
    log = log_with_entry_6_at_9807(tmp_path)
    segment = log.active
    index = segment.offset_index
    assert [tuple(index.entry(n)) for n in range(index.entries)] == [(6, 9807)]
    assert tuple(index.lookup(7)) == (6, 9807)
    assert tuple(index.lookup(6)) == (6, 9807)
    assert tuple(index.lookup(5)) == (0, 0)
    log.flush()
    assert index.path.read_bytes().hex() == "00000006" + "0000264f"

    found = segment.translate_offset(7)
    assert found is not None
    assert (found.base_offset, found.position, found.size_bytes) == (7, 10_307, 300)
    fetched = fetch(log, 7)
    assert fetched.position == LogPosition(7, 0, 9807 + 500)
    assert offsets_read(fetched) == [7]
    assert fetched.read() == segment.path.read_bytes()[10_307:10_607]


def test_the_log_below_the_entry_6_at_9807_is_not_read_to_find_offset_7() -> None:
    fs = SimulatedFileSystem()
    log = log_with_entry_6_at_9807(LOGS, fs=fs)
    log.close()
    log = new_log(LOGS, fs=fs, index_interval_bytes=9000)
    # Whoever scanned from the start would meet a length that cannot be.
    file = fs.open(log.active.path, write=True)
    file.write_at([b"\xff" * 9807], 0)
    assert offsets_read(fetch(log, 7)) == [7]
    assert offsets_read(fetch(log, 6)) == [6, 7]


# ---- what a compaction leaves


def test_where_36_and_37_were_compacted_away_reading_them_gives_38(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    keys = [b"k%d" % number for number in range(36)] + [b"x", b"y", b"z", b"x", b"y"]
    for number, key in enumerate(keys):
        logs.put(log, (key, b"%d" % number))
    log.roll()
    logs.put(log, (b"active", b""))
    assert logs.cleaner.clean_once()
    assert [offset for offset, *_ in records_in(log)] == [*range(36), 38, 39, 40, 41]
    for offset in (36, 37, 38):
        fetched = fetch(log, offset, 1, isolation=Isolation.HIGH_WATERMARK)
        (batch,) = batches_read(fetched)
        assert (batch.base_offset, batch.last_offset) == (38, 38)
        assert fetched.position.offset == offset
        (record,) = records_read(fetched)
        assert (record.key, record.value) == (b"z", b"38")


def test_a_follower_that_gets_a_gap_at_36_and_37_reads_38_there(tmp_path: Path) -> None:
    log = new_log(tmp_path, index_interval_bytes=0)
    for offset in [*range(36), 38, 39]:
        follow(log, batch_of(b"%d" % offset, base_offset=offset, leader_epoch=0))
    for offset in (36, 37, 38):
        assert offsets_read(fetch(log, offset)) == [38, 39]


# ---- flush.messages


class PowerLoss:
    """Watches a log at every change of its files, and looks what a power loss would leave of it."""

    def __init__(self, fs: SimulatedFileSystem, flush_messages: int) -> None:
        self.acknowledged = 0
        self.recovery_point = 0
        self.worst = 0
        self.looks = 0
        self.written: list[bytes] = []
        self._rng = random.Random(flush_messages)
        self._fs = fs

    def look(self, _: FileOperation | None = None) -> None:
        self.looks += 1
        for image in self._fs.crash_images(4, self._rng):
            found = new_log(LOGS, fs=image, clean=False, recovery_point=self.recovery_point)
            there = [(offset, value) for offset, _, _, value in records_in(found)]
            assert there == [(n, self.written[n]) for n, _ in there], "none invented or moved"
            kept = sum(1 for offset, _ in there if offset < self.acknowledged)
            assert {offset for offset, _ in there} >= set(range(self.recovery_point))
            self.worst = max(self.worst, self.acknowledged - kept)


@pytest.mark.parametrize("flush_messages", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 2])
def test_with_flush_messages_of_m_a_power_loss_takes_fewer_than_m_acknowledged_records(
    flush_messages: int, batch: int
) -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(LOGS)
    fs.sync_directory(LOGS.parent)
    log = new_log(LOGS, fs=fs, flush_messages=flush_messages, segment_bytes=400)
    power = PowerLoss(fs, flush_messages)
    fs.on_operation = power.look
    for number in range(12):
        values = [b"%d-%d" % (number, n) for n in range(batch)]
        power.written += values
        put(log, *values)
        power.acknowledged = log.log_end_offset
        power.recovery_point = log.offsets.recovery_point  # checkpointed just now
        assert log.log_end_offset - log.offsets.recovery_point < flush_messages
        power.look()
        if number % 5 == 4:
            log.context.scheduler.run_due()
    assert len(log.segments) > 1
    assert power.looks > 40
    # M records at most, as is said; with batches as large as these, one fewer at most.
    assert power.worst <= flush_messages - 1
    if flush_messages > batch:
        assert power.worst > 0, "something is lost where something may be"


def test_a_power_loss_before_the_flush_behind_a_roll_may_leave_a_hole_as_in_kafka() -> None:
    """A segment may be on disk before the end of the one below it; nothing flushed is missing."""
    fs = SimulatedFileSystem()
    fs.make_directory(LOGS)
    fs.sync_directory(LOGS.parent)
    log = new_log(LOGS, fs=fs)
    put(log, b"0")
    log.roll()
    put(log, b"1")
    found = set()
    for image in fs.crash_images(200, random.Random(1)):
        left = records_in(new_log(LOGS, fs=image, clean=False))
        found.add(tuple(offset for offset, *_ in left))
    assert found == {(), (0,), (1,), (0, 1)}
    log.context.scheduler.run_due()
    for image in fs.crash_images(200, random.Random(1)):
        left = records_in(new_log(LOGS, fs=image, clean=False))
        assert [offset for offset, *_ in left] in ([0], [0, 1])


# ---- sendfile


def sent(span: FileRange) -> bytes:
    """The bytes that arrive at the other end of a socket."""
    here, there = socket.socketpair()
    with here, there:
        received = bytearray()

        def receive() -> None:
            while len(received) < span.size_bytes:
                received.extend(there.recv(1 << 16))

        receiver = threading.Thread(target=receive)
        receiver.start()
        position, left = span.position, span.size_bytes
        while left:
            count = os.sendfile(here.fileno(), span.file.fileno(), position, left)
            position, left = position + count, left - count
        receiver.join()
    return bytes(received)


def range_of(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> FileRange:
    span = fetch(log, offset, max_bytes, min_one=False).range
    assert span is not None
    return span


def test_a_range_sent_by_sendfile_is_what_a_read_gives(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(50):
        put(log, b"%d" % number * 500)
    for offset, max_bytes in ((0, 1 << 20), (7, 1 << 20), (7, 1234), (49, 1), (0, 17)):
        span = range_of(log, offset, max_bytes)
        data = span.read()
        assert sent(span) == data
        assert 0 < len(data) <= max_bytes
        whole = log.active.path.read_bytes()
        assert data == whole[span.position : span.position + span.size_bytes]


def test_a_range_is_sent_though_more_is_appended_and_rolled(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(5):
        put(log, b"%d" % number)
    span = range_of(log, 0)
    expected = span.read()
    put(log, b"more")
    log.roll()
    put(log, b"still more")
    assert span.read() == sent(span) == expected
    assert [b.last_offset for b in batches_read(fetch(log, 0))] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("files_max", [1, 512])
def test_a_range_is_sent_though_its_segment_is_deleted_and_its_file_removed(
    tmp_path: Path, files_max: int
) -> None:
    log = new_log(tmp_path, retention_bytes=0, file_delete_delay_ms=0)
    for number in range(6):
        put(log, b"%d" % number)
        if number % 2:
            log.roll()
    spans = [range_of(log, offset) for offset in (0, 2, 4)]
    expected = [span.read() for span in spans]
    paths = [segment.path for segment in log.segments][:3]
    catch_up(log)
    assert retain(log, log.context.clock.now_ms()) == 3
    log.context.scheduler.run_due()
    assert not any(path.exists() for path in paths)
    assert not list(log.directory.glob("*.deleted"))
    assert [span.read() for span in spans] == expected
    assert [sent(span) for span in spans] == expected


def test_a_range_is_sent_though_its_segment_is_replaced_by_a_cleaned_one(tmp_path: Path) -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=0,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    for number in range(10):
        logs.put(log, (b"k%d" % (number % 2), b"%d" % number))
    log.roll()
    logs.put(log, (b"active", b""))
    span = range_of(log, 0)
    expected = span.read()
    old = log.segments.first
    assert logs.cleaner.clean_once()
    logs.manager.context.scheduler.run_due()
    assert log.segments.first is not old
    assert not old.path.exists()
    assert span.read() == sent(span) == expected
    assert offsets_read(fetch(log, 0)) == [8, 9]
    assert sent(range_of(log, 0)) == fetch(log, 0).read()


def test_a_range_is_sent_though_the_log_is_deleted(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v" * 10_000)
    span = range_of(log, 0)
    expected = span.read()
    log.delete()
    assert not log.directory.exists()
    assert sent(span) == expected
