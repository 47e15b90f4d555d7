"""Reads of a log, and their bounds (UnifiedLogTest, LocalLogTest)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.model.kafka_errors import OffsetOutOfRangeError
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.segment_indexes import AppendedBatch
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.log_under_test import (
    Producer,
    bases,
    catch_up,
    fetch,
    first_unstable,
    follow,
    new_log,
    offsets_read,
    records_read,
)
from support.stored_log import Transactions, batch_of, put

COMMITTED = Isolation.TXN_COMMITTED
UNCOMMITTED = Isolation.HIGH_WATERMARK

#: Offsets as a compaction leaves them: 0 to 49, then every seventh.
SPARSE = [*range(50), *range(50, 200, 7)]


def log_at_1024(tmp_path: Path) -> PartitionLog:
    """A log of one record, at 1024."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for suffix in ("log", "index"):
        (directory / f"{1024:020d}.{suffix}").touch()
    log = new_log(tmp_path, segment_bytes=1024)
    put(log, b"42")
    return log


def sparse_log(tmp_path: Path) -> PartitionLog:
    """One record for each of `SPARSE`, each in a segment of its own; its value is its offset."""
    log = new_log(tmp_path, segment_bytes=72)
    for offset in SPARSE:
        follow(log, batch_of(b"%d" % offset, base_offset=offset, leader_epoch=0))
    assert len(log.segments) == len(SPARSE)
    return log


# ---- where a read may begin


def test_an_empty_log_read_at_its_start_gives_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fetched = fetch(log, 0)
    assert (fetched.read(), fetched.size_bytes) == (b"", 0)
    assert fetched.position.offset == 0


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_log_of_1024_read_at_1025_gives_nothing_and_at_0_and_1026_is_out_of_range(
    tmp_path: Path, isolation: Isolation
) -> None:
    log = log_at_1024(tmp_path)
    catch_up(log)
    assert (log.log_start_offset, log.log_end_offset) == (1024, 1025)
    assert offsets_read(fetch(log, 1024, isolation=isolation)) == [1024]
    assert fetch(log, 1025, 1000, isolation=isolation).size_bytes == 0
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError, match=f"request for offset {offset}"):
            fetch(log, offset, 1000, isolation=isolation)
    assert OffsetOutOfRangeError.code == 1


def test_offsets_below_the_log_start_are_out_of_range_though_their_batch_is_there(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put(log, b"a", b"b", b"c", b"d")
    catch_up(log)
    log.delete_records(2)
    for offset in (0, 1):
        with pytest.raises(OffsetOutOfRangeError):
            fetch(log, offset)
    assert offsets_read(fetch(log, 2)) == [0, 1, 2, 3], "the batch is given whole"


# ---- what is given


def test_what_was_appended_is_read_back_offset_by_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=71)
    values = [b"%d" % number for number in range(0, 100, 2)]
    for value in values:
        put(log, value)
    for offset, value in enumerate(values):
        (record,) = records_read(fetch(log, offset, 1))
        assert (record.offset, record.key, record.value) == (offset, None, value)
    assert fetch(log, len(values), 100).size_bytes == 0


@pytest.mark.parametrize("max_bytes", [1, 100, 100_000])
def test_an_offset_in_a_gap_gives_the_next_record_there_is(tmp_path: Path, max_bytes: int) -> None:
    log = sparse_log(tmp_path)
    for offset in range(50, max(SPARSE)):
        expected = min(o for o in SPARSE if o >= offset)
        found = records_read(fetch(log, offset, max_bytes))[0]
        assert (found.offset, found.value) == (expected, b"%d" % expected)


def test_a_gap_at_the_end_of_a_segment_gives_what_the_next_begins_with(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=300)
    while len(log.segments) == 1:
        put(log, b"42")
    log.segments.first.truncate_to(1)
    assert offsets_read(fetch(log, 1, 200)) == [log.log_end_offset - 1]
    assert offsets_read(fetch(log, 0, 200)) == [0]


def test_a_gap_at_the_end_of_the_log_gives_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in (0, 10):
        follow(log, batch_of(b"v", base_offset=offset, leader_epoch=0))
    log.active.truncate_to(5)  # as if a compaction had left nothing behind offset 0
    for offset in (1, 5, 10):
        fetched = fetch(log, offset)
        assert fetched.read() == b""
        assert fetched.position.offset == 11


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.NONE])
def test_an_offset_inside_a_batch_gives_the_whole_batch(tmp_path: Path, codec: Codec) -> None:
    log = new_log(tmp_path, segment_bytes=110)
    for values in ((b"hello", b"there"), (b"alpha", b"beta")):
        log.append_as_leader(batch_of(*values, codec=codec))
    assert len(log.segments) == 2
    for offset, first in ((0, 0), (1, 0), (2, 2), (3, 2)):
        fetched = fetch(log, offset, 4096)
        assert offsets_read(fetched)[0] == first
        assert fetched.position.offset == offset


# ---- how much


def test_zero_bytes_give_nothing_and_one_byte_gives_one_and_says_so(tmp_path: Path) -> None:
    log = sparse_log(tmp_path)
    for offset in range(50, max(SPARSE)):
        nothing = fetch(log, offset, 0, min_one=False)
        assert (nothing.range, nothing.first_entry_incomplete) == (None, False)
        one = fetch(log, offset, 1, min_one=False)
        assert one.first_entry_incomplete
        assert one.size_bytes == len(one.read()) == 1


def test_one_batch_is_given_whole_however_little_is_asked_for(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(3):
        put(log, bytes(1000))
    for max_bytes in (0, 1, 100):
        fetched = fetch(log, 1, max_bytes)
        assert offsets_read(fetched) == [1]
        assert not fetched.first_entry_incomplete
        assert fetched.size_bytes == log.size_bytes // 3


def test_a_read_may_end_in_part_of_a_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        put(log, b"%d" % number)
    size = log.size_bytes // 4
    fetched = fetch(log, 1, 2 * size + 5, min_one=False)
    assert fetched.size_bytes == 2 * size + 5
    assert offsets_read(fetched) == [1, 2]
    assert not fetched.first_entry_incomplete
    whole = b"".join(fetch(log, n, 1).read() for n in range(1, 4))
    assert fetched.read() == whole[: 2 * size + 5]


def test_a_read_does_not_go_beyond_the_segment_it_begins_in(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(6):
        put(log, b"%d" % number)
        if number in {1, 3}:
            log.roll()
    assert bases(log) == (0, 2, 4)
    for offset, expected in ((0, [0, 1]), (1, [1]), (2, [2, 3]), (5, [5])):
        assert offsets_read(fetch(log, offset)) == expected


# ---- how far a reader sees


def check_bound(log: PartitionLog, isolation: Isolation, bound: int) -> None:
    """Reads below the bound give records below it alone; reads from it on give nothing."""
    for offset in range(log.log_start_offset, log.log_end_offset + 1):
        fetched = fetch(log, offset, isolation=isolation)
        assert fetched.position.offset == offset
        assert not fetched.first_entry_incomplete
        segment = log.segments.get(fetched.position.segment_base_offset)
        assert segment is not None
        batch = segment.translate_offset(offset)
        at = segment.size_bytes if batch is None else batch.position
        assert fetched.position.position == at
        if offset < bound:
            assert fetched.size_bytes > 0
            assert all(found < bound for found in offsets_read(fetched))
        else:
            assert fetched.size_bytes == 0


def test_a_follower_reads_up_to_the_logs_end(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"0", b"1", b"2")
    put(log, b"3", b"4")
    check_bound(log, Isolation.LOG_END, 5)


def test_what_an_append_has_written_is_not_read_before_the_logs_end_says_so(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put(log, b"0")
    catch_up(log)
    batch = batch_of(b"1", base_offset=1, leader_epoch=0)
    # A reader comes between the write and what follows it.
    log.active.append([batch], [AppendedBatch(len(batch), 1, -1)], 0)
    for isolation in Isolation:
        assert offsets_read(fetch(log, 0, isolation=isolation)) == [0]
        assert fetch(log, 1, isolation=isolation).size_bytes == 0


@pytest.mark.parametrize("roll", [False, True])
def test_a_consumer_reads_up_to_the_high_watermark(tmp_path: Path, roll: bool) -> None:
    log = new_log(tmp_path)
    put(log, b"0", b"1", b"2")
    if roll:
        log.roll()
    put(log, b"3", b"4")
    for high_watermark in (0, 3, 5):
        log.update_high_watermark(high_watermark)
        check_bound(log, UNCOMMITTED, high_watermark)


def test_the_high_watermark_at_the_base_of_a_new_segment_bounds_reads_there(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    batch = batch_of(b"value", b"value", b"value", key=b"a")

    def read(offset: int) -> tuple[int, list[int]]:
        fetched = fetch(log, offset, 2048, isolation=UNCOMMITTED, min_one=False)
        return fetched.size_bytes, offsets_read(fetched)

    log.append_as_leader(batch)
    assert read(0) == (0, [])
    catch_up(log)
    assert read(0) == (len(batch), [0, 1, 2])
    log.roll()
    assert read(0) == (len(batch), [0, 1, 2])
    log.append_as_leader(batch)
    assert read(3) == (0, [])
    at = fetch(log, 3, 2048, isolation=UNCOMMITTED).position
    assert at == LogPosition(3, 3, 0)


def test_a_committed_reader_reads_up_to_the_last_stable_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = Producer(log, 1), Producer(log, 2)
    first.append(5)
    put(log, *[b"v"] * 3)
    second.append(2)
    first.append(4)
    put(log, *[b"v"] * 2)
    first.append(10)
    check_bound(log, COMMITTED, 0)
    catch_up(log)
    check_bound(log, COMMITTED, 0)

    first.end(commit=True)
    assert log.last_stable_offset == 0, "its marker is not replicated yet"
    check_bound(log, COMMITTED, 0)
    catch_up(log)
    assert log.last_stable_offset == 8
    check_bound(log, COMMITTED, 8)

    second.end(commit=False)
    assert log.last_stable_offset == 8
    catch_up(log)
    assert log.last_stable_offset == log.log_end_offset
    check_bound(log, COMMITTED, log.log_end_offset)


def test_reads_around_the_bound_give_the_positions_of_their_offsets(tmp_path: Path) -> None:
    # Batches of 69 bytes; segments at 0, 2 and 4 (LocalLogTest).
    log = new_log(tmp_path)
    for number in range(5):
        put(log, b"a")
        if number % 2:
            log.roll()
    assert bases(log) == (0, 2, 4)
    log.update_high_watermark(4)

    below = fetch(log, 3, isolation=UNCOMMITTED)
    assert (offsets_read(below), below.position) == ([3], LogPosition(3, 2, 69))
    at = fetch(log, 4, isolation=UNCOMMITTED)
    assert (at.size_bytes, at.position) == (0, LogPosition(4, 4, 0))
    beyond = fetch(log, 5, isolation=UNCOMMITTED)
    assert (beyond.size_bytes, beyond.position) == (0, LogPosition(5, 4, 69))

    # Below the bound, but in a segment behind the bound's: not even that batch is given.
    log.offsets.set_high_watermark(LogPosition(4, 0, 40))
    before = fetch(log, 3, isolation=UNCOMMITTED)
    assert (before.size_bytes, before.position) == (0, LogPosition(3, 2, 69))


def test_a_high_watermark_known_by_its_offset_alone_is_looked_up(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(5):
        put(log, b"a")
        if number % 2:
            log.roll()
    log.offsets.set_high_watermark(LogPosition(3))
    assert offsets_read(fetch(log, 2, isolation=UNCOMMITTED)) == [2]
    assert log.reader.position_of_high_watermark() == LogPosition(3, 2, 69)


def test_an_aborted_batch_is_never_read_as_committed_while_the_high_watermark_moves() -> None:
    log = new_log(Path("/logs"), fs=SimulatedFileSystem())
    producer = Producer(log, 15)
    done = threading.Event()

    def follow_the_end() -> None:
        while not done.is_set():
            catch_up(log)

    other = threading.Thread(target=follow_the_end)
    other.start()
    try:
        while log.log_end_offset < 50:
            end = log.log_end_offset
            producer.append(1)
            assert fetch(log, end, isolation=COMMITTED, min_one=False).size_bytes == 0
            producer.end(commit=False)
    finally:
        done.set()
        other.join()


# ---- aborted transactions


def aborted(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    """(producer id, first offset) of what a committed reader is told."""
    fetched = fetch(log, offset, max_bytes, isolation=COMMITTED)
    assert fetched.aborted is not None
    return [(entry.producer_id, entry.first_offset) for entry in fetched.aborted]


def test_aborted_transactions_are_told_where_a_committed_read_overlaps_them(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, index_interval_bytes=0)
    work = Transactions(log)
    work.write(1, 3)  # 0-2
    work.end(1, commit=False)  # 3
    work.plain(3)  # 4-6
    work.write(2, 2)  # 7-8
    work.end(2, commit=True)  # 9
    work.write(3, 3)  # 10-12
    work.end(3, commit=False)  # 13
    work.plain(3)  # 14-16
    catch_up(log)
    size = len(batch_of(b"v"))
    assert aborted(log, 0) == [(1, 0), (3, 10)]
    assert aborted(log, 3) == [(1, 0), (3, 10)], "its marker is read"
    assert aborted(log, 4) == [(3, 10)]
    assert aborted(log, 13) == [(3, 10)]
    assert aborted(log, 14) == []
    assert aborted(log, 4, 2 * size) == [], "what is read ends before the next one"
    assert fetch(log, 0, isolation=UNCOMMITTED).aborted is None
    assert fetch(log, 0).aborted is None
    assert aborted(log, log.log_end_offset) == []


def test_a_transaction_aborted_in_a_later_segment_is_told(tmp_path: Path) -> None:
    producer_id = 137
    size = len(batch_of(b"0", b"1", b"2", producer=(producer_id, 5, 0)))
    log = new_log(tmp_path, segment_bytes=size)
    producer = Producer(log, producer_id, epoch=5)
    producer.append(3)
    assert first_unstable(log) == 0
    producer.append(3)
    assert first_unstable(log) == 0
    assert log.active.base_offset == 3
    marker = producer.end(commit=False)
    log.update_high_watermark(marker.last_offset + 1)
    assert first_unstable(log) is None
    assert len(log.segments) == 3
    fetched = fetch(log, 0, 2048, isolation=COMMITTED)
    assert fetched.aborted is not None
    (entry,) = fetched.aborted
    assert (entry.producer_id, entry.first_offset) == (producer_id, 0)
