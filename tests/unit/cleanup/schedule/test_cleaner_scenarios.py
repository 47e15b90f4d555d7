"""Compaction of a running log: the scenarios of LogCleanerTest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import view_of
from cordwood.cleanup.schedule.cleaner import CleanerStats
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.append_origin import AppendOrigin
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_reader import collect_aborted
from support.running_logs import RunningLogs, newest, read_records

HORIZON_MS = 86_400_000
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=HORIZON_MS,
)


class Compacted:
    """One log, appended to by producers by number, with keys that are numbers."""

    def __init__(self, tmp_path: Path, config: LogConfig = COMPACT) -> None:
        self.logs = RunningLogs(tmp_path, {"t": config})
        self.log = self.logs.log()
        self._sequences: dict[int, int] = {}

    # ---- appends

    def put(self, key: int, value: object = "v", *, timestamp: int | None = None) -> int:
        data = None if value is None else str(value).encode()
        return self.logs.put(self.log, (b"%d" % key, data), timestamp=timestamp)

    def append(
        self,
        producer: int,
        *keys: int,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = False,
    ) -> AppendResult:
        """A batch of an idempotent producer, in one of its transactions or outside."""
        first = self._sequences.get(producer, 0) if sequence is None else sequence
        self._sequences[producer] = first + len(keys)
        guard = None
        if transactional:
            guard = self.log.maybe_start_verification(producer, first, epoch)
        now = self.logs.clock.now_ms()
        result = self.log.append_as_leader(
            build_batch(
                [Record(n, now, b"%d" % key, b"v") for n, key in enumerate(keys)],
                base_offset=0,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=first,
                is_transactional=transactional,
            ),
            verification_guard=guard,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return result

    def follow(self, offset: int, key: bytes) -> None:
        """A batch of one record, as a leader sent it."""
        now = self.logs.clock.now_ms()
        self.log.append_as_follower(
            build_batch([Record(offset, now, key, b"v")], base_offset=offset)
        )
        self.log.update_high_watermark(offset + 1)

    def transact(self, producer: int, *keys: int, **options: int) -> None:
        self.append(producer, *keys, transactional=True, **options)

    def end(self, producer: int, *, commit: bool, epoch: int = 0) -> None:
        self.log.append_as_leader(
            build_end_txn_marker(
                offset=0,
                timestamp=self.logs.clock.now_ms(),
                producer_id=producer,
                producer_epoch=epoch,
                control_type=ControlType.COMMIT if commit else ControlType.ABORT,
                coordinator_epoch=0,
            ),
            origin=AppendOrigin.COORDINATOR,
        )
        self.log.update_high_watermark(self.log.log_end_offset)

    def commit(self, producer: int) -> None:
        self.end(producer, commit=True)

    def abort(self, producer: int) -> None:
        self.end(producer, commit=False)

    def roll(self) -> None:
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)

    # ---- cleaning

    def clean(self, dirty: int = 0) -> CleanerStats:
        """A compaction of all that lies before the active segment, dirty from an offset on."""
        self.logs.set_checkpoint(max(dirty, self.log.log_start_offset))
        before = self.logs.cleaner.last_stats
        assert self.logs.cleaner.clean_once()
        stats = self.logs.cleaner.last_stats
        assert stats is not None
        assert stats is not before, self.logs.cleaning.uncleanable_partitions(self.log.log_dir)
        return stats

    def clean_twice(self, dirty: int = 0) -> None:
        """A compaction that stamps delete horizons, and one behind them."""
        self.clean(dirty)
        self.pass_horizon()
        self.clean(dirty)

    def pass_horizon(self) -> None:
        self.logs.clock.advance(HORIZON_MS + 1)

    def reload(self) -> None:
        self.logs.restart()
        self.log = self.logs.log()

    # ---- what is left

    def batches(self) -> list[RecordBatch | LegacyBatch]:
        return [
            batch
            for segment in self.log.segments
            for _, batch in iter_batches(segment.path.read_bytes()[: segment.size_bytes])
        ]

    def offsets(self) -> list[int]:
        """Of records with key and value, markers included."""
        return [
            record.offset
            for batch in self.batches()
            for record in batch.records()
            if record.key is not None and record.value is not None
        ]

    def last_offsets(self) -> list[int]:
        """Of batches, emptied ones included."""
        return [batch.last_offset for batch in self.batches()]

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def keys(self) -> list[int]:
        """Of data records with a value, in order."""
        return [
            int(record.key or b"")
            for record in read_records(self.log)
            if record.key is not None and record.value is not None
        ]

    def last_sequences(self) -> dict[int, int]:
        """The last sequence that the log's batches tell of each producer."""
        found = {}
        for batch in self.batches():
            assert isinstance(batch, RecordBatch)
            header = batch.header
            if header.has_producer_id and not header.is_control:
                found[header.producer_id] = header.base_sequence + header.last_offset_delta
        return found

    def aborted(self) -> list[AbortedTransaction]:
        """Entries of the transaction indexes."""
        segments = self.log.segments
        return collect_aborted(segments, segments.first, 0, self.log.log_end_offset)


@pytest.fixture
def t(tmp_path: Path) -> Compacted:
    return Compacted(tmp_path)


def small(tmp_path: Path, segment_bytes: int = 1024, **settings: object) -> Compacted:
    """A log that rolls often."""
    return Compacted(tmp_path, replace(COMPACT, segment_bytes=segment_bytes, **settings))  # type: ignore[arg-type]


def fill_until(t: Compacted, segments: int) -> None:
    """Unique keys, as their offsets, until there are so many segments."""
    while len(t.log.segments) < segments:
        t.put(t.log.log_end_offset, t.log.log_end_offset)


# ---- keys


def test_superseded_keys_go_and_all_others_stay_in_order(tmp_path: Path) -> None:
    t = small(tmp_path)
    fill_until(t, 4)
    keys = t.keys()
    gone = [1, 3, 5, 7, 9]
    for key in gone:
        t.put(key, "new")
    t.roll()
    size = t.log.size_bytes
    stats = t.clean()
    assert t.keys() == [key for key in keys if key not in gone] + gone
    assert stats.bytes_read == size
    assert stats.messages_read - stats.messages_written == len(gone)


def test_a_group_becomes_one_segment_at_the_base_of_its_first(tmp_path: Path) -> None:
    t = small(tmp_path, 10_000)
    for _ in range(3):
        for key in range(10):
            t.put(key, "x" * 20)
        t.roll()
    assert t.bases() == [0, 10, 20, 30]
    t.clean()
    assert t.bases() == [0, 30]
    assert t.offsets() == list(range(20, 30))
    names = sorted(p.name for p in t.log.directory.glob("*.log"))
    assert names == [f"{0:020d}.log", f"{30:020d}.log"]
    left = sorted(p.name for p in t.log.directory.glob("*.log.deleted"))
    assert left == [f"{base:020d}.log.deleted" for base in (0, 10, 20)]


def test_a_cleaned_segment_of_a_preallocated_log_is_no_longer_than_its_data(
    tmp_path: Path,
) -> None:
    t = small(tmp_path, preallocate=True)
    for number in range(60):
        t.put(number % 5, number)
    assert t.log.active.path.stat().st_size == 1024
    t.clean()
    for segment in list(t.log.segments)[:-1]:
        assert segment.path.stat().st_size == segment.size_bytes < 1024


def test_keys_that_were_deleted_are_gone_behind_the_horizon(tmp_path: Path) -> None:
    t = small(tmp_path)
    fill_until(t, 2)
    end = t.log.log_end_offset
    for key in range(0, end, 2):
        t.put(key, None)
    fill_until(t, 4)
    t.clean_twice()
    left = t.keys()
    assert [key for key in left if key < end] == list(range(1, end, 2))
    assert not [r for r in read_records(t.log, 0) if r.value is None and r.offset < t.bases()[-1]]


def test_records_without_a_key_are_dropped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    t = small(tmp_path, cleanup_policy=frozenset({"delete"}))
    while len(t.log.segments) < 2:
        t.logs.put(t.log, (None, b"v"))
    unkeyed = t.log.log_end_offset
    size = t.log.size_bytes
    fill_until(t, 3)
    expected = t.log.size_bytes - size
    t.log.update_config(replace(COMPACT, segment_bytes=1024))
    stats = t.clean()
    assert stats.invalid_messages == unkeyed
    assert t.log.size_bytes == expected
    assert all(record.key is not None for record in read_records(t.log))
    assert f"Found {unkeyed} invalid messages during compaction." in caplog.text


def test_a_dirty_start_leaves_what_the_clean_section_superseded(t: Compacted) -> None:
    for offset in range(5):
        t.put(offset % 2, offset)
    t.roll()
    before = t.log.size_bytes
    stats = t.clean(dirty=2)
    assert (stats.messages_read, stats.messages_written, stats.invalid_messages) == (5, 2, 0)
    assert (stats.bytes_read, stats.bytes_written) == (before, t.log.size_bytes)
    assert t.offsets() == [3, 4]
    assert t.logs.checkpoint() == 5


def test_only_segments_below_the_first_uncleanable_offset_are_rewritten(tmp_path: Path) -> None:
    t = small(tmp_path)
    while len(t.log.segments) < 7:
        t.put(t.log.log_end_offset % 10, t.log.log_end_offset)
    untouched = {s.base_offset: s.path.read_bytes() for s in list(t.log.segments)[2:]}
    sizes = [s.size_bytes for s in list(t.log.segments)[:2]]
    t.log.update_high_watermark(t.bases()[2] + 1)
    t.clean()
    assert t.logs.checkpoint() == min(untouched)
    assert {b: s.path.read_bytes() for b in untouched if (s := t.log.segments.get(b))} == untouched
    assert sum(s.size_bytes for s in t.log.segments if s.base_offset < min(untouched)) < sum(sizes)


def test_a_group_of_superseded_records_alone_becomes_an_empty_segment(tmp_path: Path) -> None:
    t = small(tmp_path, 140)
    for _ in range(2):
        t.put(0, "x" * 50)
    assert t.bases() == [0, 1]
    t.roll()
    t.clean()
    assert t.bases() == [0, 1, 2]
    assert t.log.segments[0].size_bytes == 0 < t.log.segments[1].size_bytes
    assert t.offsets() == [1]
    t.reload()
    assert (t.bases(), t.log.log_end_offset) == ([0, 1, 2], 2)
    assert t.put(1) == 2


def test_an_emptied_last_batch_keeps_the_end_of_the_round(t: Compacted) -> None:
    # A tombstone behind its horizon goes, though its batch ends the compaction.
    t.put(0, None)
    t.roll()
    t.clean()
    t.pass_horizon()
    t.clean()
    (batch,) = t.batches()
    assert (batch.size_bytes, batch.last_offset, list(batch.records())) == (61, 0, [])
    assert t.bases() == [0, 1]
    t.reload()
    assert t.log.log_end_offset == 1


def test_a_record_larger_than_max_message_bytes_as_it_is_now_is_cleaned(tmp_path: Path) -> None:
    t = small(tmp_path, 16 << 20, max_message_bytes=2 << 20)
    for key in (0, 1, 0):
        t.logs.put(t.log, (b"%d" % key, bytes(1 << 20)))
    t.log.update_config(replace(t.log.config, max_message_bytes=1 << 19))
    t.roll()
    t.clean()
    assert t.offsets() == [1, 2]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_log_with_a_record_over_the_decompressed_bound_waits_until_it_is_raised(
    tmp_path: Path, codec: Codec
) -> None:
    t = small(tmp_path, 16 << 20)
    for key in (0, 1, 0):
        t.logs.put(t.log, (b"%d" % key, bytes(50_000)), codec=codec)
    t.log.update_config(replace(t.log.config, max_decompressed_message_bytes=40_000))
    t.roll()
    before = [segment.path.read_bytes() for segment in t.log.segments]
    assert not t.logs.cleaner.clean_once()
    (reason,) = t.logs.cleaning.uncleanable_partitions(t.log.log_dir).values()
    assert (
        "exceeds the configured maximum record size of 40000, in the batch of offset 0 at byte 0. "
        "Raise max.decompressed.message.bytes of the topic" in reason
    )
    assert [segment.path.read_bytes() for segment in t.log.segments] == before
    t.log.update_config(replace(t.log.config, max_decompressed_message_bytes=60_000))
    t.clean()
    assert t.offsets() == [1, 2]


def test_a_user_record_with_the_key_of_a_marker_is_a_user_record(t: Compacted) -> None:
    now = t.logs.clock.now_ms()
    for _ in range(2):
        for version in (0, 1):
            key = b"\x00\x00\x00" + bytes([version])
            t.log.append_as_leader(
                build_batch([Record(0, now, key, b"%d" % t.log.log_end_offset)], base_offset=0)
            )
    t.log.update_high_watermark(4)
    t.roll()
    t.clean(dirty=2)
    assert t.offsets() == [2, 3]


def test_keys_that_look_like_markers_all_survive_when_they_differ(t: Compacted) -> None:
    t.transact(1, 1)
    t.commit(1)
    now = t.logs.clock.now_ms()
    marker = t.batches()[1].records()[0]
    t.log.append_as_leader(build_batch([Record(0, now, marker.key, marker.value)], base_offset=0))
    t.log.update_high_watermark(3)
    t.transact(1, 2)
    t.commit(1)
    t.roll()
    t.clean()
    assert t.offsets() == [0, 1, 2, 3, 4]


def test_more_appends_and_another_round_give_the_naive_map(tmp_path: Path) -> None:
    t = small(tmp_path)
    naive: dict[bytes, bytes] = {}
    for round_number in range(4):
        for number in range(120):
            key = (number * 7 + round_number) % 23
            if number % 11 == 0:
                t.put(key, None)
                naive.pop(b"%d" % key, None)
            else:
                t.put(key, f"{round_number}-{number}")
                naive[b"%d" % key] = f"{round_number}-{number}".encode()
        assert t.logs.cleaner.clean_once()
        t.pass_horizon()
        found = {key: value for key, (value, _) in newest(read_records(t.log)).items()}
        assert found == naive


# ---- offsets


def test_a_gap_before_the_active_segment_does_not_hold_the_round_back(t: Compacted) -> None:
    for key in range(10):
        t.put(key)
    t.log.roll(11)
    t.follow(11, b"1015")
    t.clean()
    assert t.logs.checkpoint() == 11


def test_gaps_within_and_behind_the_dirty_section_are_passed(t: Compacted) -> None:
    for key in range(10):
        t.put(key)
    t.log.roll(15)
    t.follow(15, b"k")
    t.follow(24, b"k")
    t.log.roll(30)
    t.follow(30, b"1015")
    t.clean()
    assert t.logs.checkpoint() == 30
    assert t.offsets() == [*range(10), 24, 30]


def test_offsets_far_apart_are_kept_whole(t: Compacted) -> None:
    far = 7_206_178
    t.follow(0, b"0")
    t.follow(far, b"0")
    t.follow(far + 1, b"1")
    t.roll()
    t.clean()
    assert t.offsets() == [far, far + 1]


def test_segments_too_far_apart_are_not_grouped(t: Compacted) -> None:
    top = (1 << 31) - 1
    t.put(0)
    t.follow(top, b"1")
    t.log.roll()
    t.follow(top + 1, b"2")
    t.roll()
    t.clean()
    assert t.offsets() == [0, top, top + 1]
    assert t.bases() == [0, top + 1, top + 2]


def test_empty_segments_are_merged_with_their_neighbours(t: Compacted) -> None:
    t.put(0)
    t.log.roll(5)
    t.log.roll(8)
    t.follow(9, b"1")
    t.roll()
    assert t.bases() == [0, 5, 8, 10]
    t.clean()
    assert (t.offsets(), t.bases()) == ([0, 9], [0, 10])


def test_sizes_count_neither_the_active_segment_nor_what_cannot_be_cleaned(
    tmp_path: Path,
) -> None:
    t = small(tmp_path, 100)
    for _ in range(6):
        t.logs.put(t.log, (b"1", bytes(25)))
    sizes = [segment.size_bytes for segment in t.log.segments]
    assert len(sizes) == 6
    assert view_of(t.log, None).size_bytes - t.log.active.size_bytes == sum(sizes[:-1])
    t.log.update_high_watermark(t.bases()[4])
    t.logs.set_checkpoint(t.bases()[2])
    chosen = t.logs.cleaning.grab_filthiest(t.logs.clock.now_ms())
    assert chosen is not None
    assert chosen.cleanable.clean_bytes == sum(sizes[:2])
    assert chosen.cleanable.cleanable_bytes == sum(sizes[2:4])
    assert chosen.cleanable.ratio == pytest.approx(0.5)


# ---- producers


def test_duplicates_are_known_again_after_their_records_were_cleaned(t: Compacted) -> None:
    t.append(1, 1, 2, 3)
    t.append(2, 3, 1, 4)
    t.append(3, 1, 4)
    t.roll()
    t.clean()
    assert t.last_sequences() == {1: 2, 2: 2, 3: 1}
    assert t.last_offsets() == [2, 5, 7]
    assert t.keys() == [2, 3, 1, 4]
    assert t.offsets() == [1, 3, 6, 7]
    t.reload()
    for producer, keys, first, last in (
        (1, (1, 2, 3), 0, 2),
        (3, (1, 4), 6, 7),
        (2, (3, 1, 4), 3, 5),
    ):
        again = t.append(producer, *keys, sequence=0)
        assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, first, last)
    t.append(4, 2)
    t.roll()
    t.clean()
    assert t.last_sequences() == {1: 2, 2: 2, 3: 1, 4: 0}
    assert t.last_offsets() == [2, 5, 7, 8]
    assert t.keys() == [3, 1, 4, 2]
    assert t.offsets() == [3, 6, 7, 8]
    t.reload()
    again = t.append(1, 1, 2, 3, sequence=0)
    assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 0, 2)


def test_the_last_sequence_of_each_producer_is_kept(t: Compacted) -> None:
    t.put(0, 0)
    for producer, key in ((1, 0), (2, 0), (3, 0), (2, 1)):
        t.append(producer, key)
    t.roll()
    t.clean()
    assert t.last_offsets() == [1, 3, 4]
    assert t.last_sequences() == {1: 0, 2: 1, 3: 0}
    assert (t.keys(), t.offsets()) == ([0, 1], [3, 4])


def test_the_last_sequence_is_kept_though_its_transaction_was_aborted(t: Compacted) -> None:
    t.transact(1, 1)
    t.transact(1, 2, 3)
    t.abort(1)
    t.roll()
    t.clean()
    assert t.last_offsets() == [2, 3]
    assert t.last_sequences() == {1: 2}
    assert (t.keys(), t.offsets()) == ([], [3])
    t.transact(1, 1, 5)
    t.commit(1)
    t.roll()
    t.clean()
    assert t.last_offsets() == [3, 5, 6]
    assert t.last_sequences() == {1: 4}
    assert (t.keys(), t.offsets()) == ([1, 5], [3, 4, 5, 6])


def test_old_empty_batches_go_though_a_producer_begins_at_sequence_0_again(t: Compacted) -> None:
    # As the group coordinator does in every transaction.
    for key in (1, 2):
        now, end = t.logs.clock.now_ms(), t.log.log_end_offset
        t.log.append_as_follower(
            build_batch(
                [Record(end, now, b"%d" % key, b"v")],
                base_offset=end,
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
        t.commit(1)
    t.put(1, 1)
    t.put(2, 1)
    t.roll()
    t.clean()
    assert t.offsets() == [1, 3, 4, 5]
    assert t.last_offsets() == [1, 2, 3, 4, 5]
    t.clean_twice()
    assert t.offsets() == [3, 4, 5]
    assert t.last_offsets() == [2, 3, 4, 5]


# ---- transactions


def test_aborted_data_goes_and_markers_that_are_needed_stay(t: Compacted) -> None:
    t.transact(1, 1, 2)
    t.transact(2, 2, 3)
    t.transact(1, 3, 4)
    t.abort(1)
    t.commit(2)
    t.transact(1, 2)
    t.commit(1)
    aborted = t.aborted()
    t.roll()
    t.clean()
    assert t.keys() == [3, 2]
    assert t.offsets() == [3, 6, 7, 8, 9]
    assert t.aborted() == aborted
    assert len(aborted) == 1


def test_transactions_over_several_segments_are_cleaned_segment_by_segment(t: Compacted) -> None:
    t.transact(1, 1, 2)
    t.transact(3, 2, 3)
    t.transact(2, 3, 4)
    t.roll()
    t.transact(2, 5, 6)
    t.transact(3, 6, 7)
    t.transact(1, 7, 8)
    t.abort(2)
    t.transact(3, 8, 9)
    t.commit(3)
    t.transact(1, 9, 10)
    t.abort(1)
    t.clean()
    assert t.keys() == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    t.roll()
    t.transact(2, 11)
    t.transact(1, 12)
    t.clean(dirty=6)
    assert t.keys() == [2, 3, 6, 7, 8, 9, 11, 12]


def test_a_commit_marker_goes_behind_its_horizon_once_its_records_are_gone(t: Compacted) -> None:
    t.transact(1, 1)
    t.transact(1, 2, 3)
    t.commit(1)
    t.transact(1, 2)
    t.commit(1)
    t.roll()
    t.clean()
    assert (t.keys(), t.offsets()) == ([1, 3, 2], [0, 2, 3, 4, 5])
    t.transact(1, 1, 3)
    t.commit(1)
    t.roll()
    t.clean()
    # The marker at 3 stays: records of its transaction were still read.
    assert (t.keys(), t.offsets()) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    t.clean()
    assert (t.keys(), t.offsets()) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    t.pass_horizon()
    t.clean()
    assert (t.keys(), t.offsets()) == ([2, 1, 3], [4, 5, 6, 7, 8])


def test_batches_that_leave_nothing_do_not_end_the_round(t: Compacted) -> None:
    t.transact(1, 1)
    t.abort(1)
    t.transact(1, 2)
    t.transact(1, 2)
    t.commit(1)
    t.roll()
    t.clean()
    assert (t.keys(), t.offsets()) == ([2], [1, 3, 4])
    t.clean_twice()
    assert (t.keys(), t.offsets()) == ([2], [3, 4])


def test_a_commit_marker_stays_as_long_as_an_empty_batch_of_its_transaction(
    t: Compacted,
) -> None:
    t.transact(1, 2, 3)
    t.roll()
    t.transact(2, 2, 3)
    t.commit(2)
    t.roll()
    t.put(2)
    t.put(3)
    t.commit(1)
    t.roll()
    for _ in range(2):
        t.clean()
        assert (t.keys(), t.offsets()) == ([2, 3], [4, 5, 6, 7])
        assert t.last_offsets() == [1, 3, 4, 5, 6, 7]
        t.pass_horizon()
    t.transact(2, 1)
    t.commit(2)
    t.roll()
    t.clean()
    assert (t.keys(), t.offsets()) == ([2, 3, 1], [4, 5, 6, 7, 8, 9])
    assert t.last_offsets() == [1, 4, 5, 6, 7, 8, 9]
    t.clean_twice()
    assert (t.keys(), t.offsets()) == ([2, 3, 1], [5, 6, 7, 8, 9])
    assert t.last_offsets() == [1, 5, 6, 7, 8, 9]


def test_a_marker_that_is_all_of_its_producer_is_left_empty(t: Compacted) -> None:
    t.commit(1)
    t.put(2)
    t.put(3)
    t.roll()
    t.clean_twice()
    for _ in range(2):
        assert (t.keys(), t.offsets()) == ([2, 3], [1, 2])
        assert t.last_offsets() == [0, 1, 2]
        t.clean()


def test_a_committed_transaction_over_two_segments_stays_whole(t: Compacted) -> None:
    t.transact(1, 1)
    t.roll()
    t.commit(1)
    t.roll()
    t.clean_twice()
    assert (t.offsets(), t.last_offsets()) == ([0, 1], [0, 1])


def test_an_aborted_transaction_over_two_segments_leaves_its_last_batch_and_marker(
    t: Compacted,
) -> None:
    t.transact(1, 1)
    t.roll()
    t.abort(1)
    t.roll()
    for _ in range(3):
        t.clean()
        assert (t.offsets(), t.last_offsets()) == ([1], [0, 1])
        t.pass_horizon()


def test_an_abort_marker_goes_behind_its_horizon(t: Compacted) -> None:
    t.transact(1, 1)
    t.transact(1, 2, 3)
    t.abort(1)
    t.transact(1, 3)
    t.commit(1)
    t.roll()
    t.clean()
    assert (t.keys(), t.offsets()) == ([3], [3, 4, 5])
    t.clean()
    assert t.offsets() == [3, 4, 5]
    t.pass_horizon()
    t.clean()
    assert (t.keys(), t.offsets()) == ([3], [4, 5])


def test_an_abort_marker_is_indexed_as_long_as_a_batch_of_its_transaction_is_seen(
    t: Compacted,
) -> None:
    t.transact(1, 2, 3)
    t.abort(1)
    t.roll()
    entry = t.aborted()[0]
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (1, 0, 2)
    for _ in range(2):
        t.clean()
        assert t.aborted() == [entry]
        assert (t.keys(), t.offsets(), t.last_offsets()) == ([], [2], [1, 2])
        t.pass_horizon()
    t.transact(1, 1)
    t.commit(1)
    t.roll()
    t.clean()
    assert t.aborted() == [entry]
    assert (t.keys(), t.offsets(), t.last_offsets()) == ([1], [2, 3, 4], [2, 3, 4])
    t.clean_twice()
    assert (t.keys(), t.offsets(), t.last_offsets()) == ([1], [3, 4], [3, 4])
    assert t.aborted() == []


# ---- tombstones


def test_a_tombstones_horizon_counts_from_its_first_round_not_from_its_timestamp(
    t: Compacted,
) -> None:
    now = t.logs.clock.now_ms()
    t.put(0, "0", timestamp=now + 10_000)
    t.roll()
    t.clean()
    t.put(0, None, timestamp=now - HORIZON_MS - 10_000)
    t.roll()
    t.clean(dirty=1)
    assert t.last_offsets() == [1]
    (batch,) = t.batches()
    assert isinstance(batch, RecordBatch)
    horizon = batch.header.base_timestamp
    assert horizon == now + HORIZON_MS
    t.put(1, "1")
    t.roll()
    t.logs.clock.advance(HORIZON_MS - 1)
    t.clean(dirty=2)
    tombstone, *_ = t.batches()
    assert isinstance(tombstone, RecordBatch)
    assert (tombstone.last_offset, tombstone.header.base_timestamp) == (1, horizon)
    t.put(2, "2")
    t.roll()
    t.logs.clock.advance(1)
    t.clean(dirty=3)
    assert t.last_offsets() == [2, 3]


# ---- batches of every codec in one log


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_its_codec(t: Compacted, codec: Codec) -> None:
    t.logs.put(t.log, (b"0", b"a" * 100), (b"1", b"b" * 100), codec=codec)
    t.logs.put(t.log, (b"0", b"c" * 100), codec=codec)
    t.roll()
    t.clean()
    assert t.offsets() == [1, 2]
    found: Sequence[RecordBatch | LegacyBatch] = t.batches()
    assert {batch.codec for batch in found} == {codec}
