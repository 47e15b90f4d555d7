"""Scenarios of LogSegmentTest on recovery, each by plain and by compiled code."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from cordwood.format.batch_header import BatchHeader, parse_header
from cordwood.format.compression import Codec
from cordwood.format.control_record import (
    ControlType,
    EndTxnMarker,
    build_control_key,
    build_end_txn_marker,
)
from cordwood.format.offset_index import parse_offset_index
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch, build_empty_batch
from cordwood.format.time_index import parse_time_index
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError, ImpossibleOffsetError
from cordwood.model.kafka_errors import (
    InvalidTxnStateError,
    KafkaError,
    SegmentOffsetOverflowError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.producers.producer_entry import CompletedTransaction
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment import native_recovery, segment_recovery
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_recovery import SegmentWalk
from support.appends import with_header
from support.segments import (
    Segments,
    batch,
    bytes_of,
    corrupted,
    last_offsets,
    message,
    put,
)

INT_MAX = (1 << 31) - 1
BOTH = pytest.mark.parametrize("native", [False, True], ids=["plain", "native"])


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(directory=tmp_path)


@pytest.fixture
def producers(tmp_path: Path) -> Callable[[], ProducerStateManager]:
    directory = tmp_path / "producers"
    directory.mkdir()
    return lambda: ProducerStateManager(TopicPartition("topic", 0), directory)


@pytest.fixture
def epochs(tmp_path: Path) -> Callable[[], LeaderEpochCache]:
    numbers = iter(range(1000))

    def make() -> LeaderEpochCache:
        directory = tmp_path / f"epochs-{next(numbers)}"
        directory.mkdir()
        return LeaderEpochCache(directory / "leader-epoch-checkpoint")

    return make


def marker(
    offset: int,
    producer_id: int,
    kind: ControlType,
    *,
    producer_epoch: int = 0,
    timestamp: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    return build_end_txn_marker(
        offset=offset,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        control_type=kind,
        coordinator_epoch=0,
        partition_leader_epoch=leader_epoch,
    )


def reopened_with(segments: Segments, data: bytes, base: int = 0) -> LogSegment:
    """A segment of a log file that holds those bytes, and has no index."""
    for path in segments.directory.glob(f"{base:020d}.*"):
        path.unlink()
    (segments.directory / f"{base:020d}.log").write_bytes(data)
    segments.warnings.clear()
    return segments.open(base)


# ---- damaged indexes


@BOTH
def test_recovery_mends_a_corrupt_index(segments: Segments, *, native: bool) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, str(i)) for i in range(100)])
    segment.flush()
    path = segment.path.with_suffix(".index")
    path.write_bytes(corrupted(path.read_bytes(), 5, random.Random(1)))
    reopened = segments.open(0)
    assert reopened.recover(native=native) == 0
    for i in range(100):
        found = reopened.read(i, 1, min_one=True)
        assert found is not None
        assert last_offsets(found[0]) == [i]
    assert len(parse_offset_index(path.read_bytes(), 0)) == reopened.offset_index.entries > 50


@BOTH
def test_recovery_mends_a_corrupt_time_index(segments: Segments, *, native: bool) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, str(i), timestamps=i * 10) for i in range(100)])
    segment.flush()
    path = segment.path.with_suffix(".timeindex")
    path.write_bytes(corrupted(path.read_bytes(), 5, random.Random(1)))
    reopened = segments.open(0)
    reopened.recover(native=native)
    for i in range(100):
        at, behind = (reopened.find_offset_by_timestamp(i * 10 + more, 0) for more in (0, 1))
        assert at is not None
        assert at.offset == i
        assert (behind and behind.offset) == (i + 1 if i < 99 else None)
    assert segments.warnings == []


# ---- damaged logs


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_recovery_keeps_what_is_before_damage_and_cuts_the_rest_off(
    segments: Segments, seed: int, *, native: bool
) -> None:
    rng = random.Random(seed)
    batches = [batch(i, f"value {i}", timestamps=i) for i in range(20)]
    first_bad = rng.randrange(20)
    start = len(b"".join(batches[:first_bad]))
    whole = b"".join(batches)
    damaged = corrupted(whole, start + rng.randrange(15), rng)
    segment = reopened_with(segments, damaged)
    assert segment.recover(native=native) == len(whole) - start
    assert bytes_of(segment) == whole[:start]
    assert segment.size_bytes == start
    assert segment.read_next_offset() == first_bad
    assert segment.max_timestamp_so_far == first_bad - 1
    assert len(segments.warnings) == 1
    assert f"at byte offset {start}" in segments.warnings[0]


@BOTH
@pytest.mark.parametrize("seed", range(10))
def test_garbage_behind_the_log_and_its_indexes_goes_and_nothing_else(
    segments: Segments, seed: int, *, native: bool
) -> None:
    rng = random.Random(seed)
    segments.segment_index_bytes = 10_000
    segment = segments.create(0)
    count = rng.randrange(1, 150)
    put(segment, *[batch(i, f"value {i}", timestamps=i) for i in range(count)])
    segment.flush()
    whole = bytes_of(segment)
    for suffix in (".log", ".index", ".timeindex"):
        with segment.path.with_suffix(suffix).open("ab") as file:
            file.write(rng.randbytes(rng.randrange(1, 300)))
    reopened = segments.open(0)
    garbage = reopened.size_bytes - len(whole)
    assert reopened.recover(native=native) == garbage > 0
    assert bytes_of(reopened) == whole
    assert reopened.read_next_offset() == count
    assert [reopened.translate_offset(i).base_offset for i in range(count)] == list(range(count))  # type: ignore[union-attr]


@BOTH
def test_a_flipped_bit_anywhere_in_a_batch_ends_the_log_before_it(
    segments: Segments, *, native: bool
) -> None:
    first, second = batch(0, "a", timestamps=5), batch(1, "bcd", timestamps=6)
    for at in range(len(second)):
        if at < 16:  # offset, length and leader epoch are not covered by the CRC
            continue
        data = bytearray(first + second)
        data[len(first) + at] ^= 1 << (at % 8)
        segment = reopened_with(segments, bytes(data))
        assert segment.recover(native=native) == len(second), at
        assert bytes_of(segment) == first
        assert len(segments.warnings) == 1


@BOTH
@pytest.mark.parametrize("cut", [1, 10, 17, 45, 60, 61])
def test_a_torn_batch_at_the_end_is_cut_off_without_a_warning(
    segments: Segments, cut: int, *, native: bool
) -> None:
    first, second = batch(0, "a"), batch(1, "b")
    segment = reopened_with(segments, first + second[:cut])
    assert segment.recover(native=native) == cut
    assert bytes_of(segment) == first
    assert segments.warnings == []


@BOTH
def test_a_recovered_segment_takes_appends_and_is_not_full(
    segments: Segments, *, native: bool
) -> None:
    batches = [batch(i, "a", timestamps=i) for i in range(10)]
    segment = reopened_with(segments, b"".join(batches) + b"garbage" * 5)
    segment.recover(native=native)
    put(segment, *[batch(i, "b", timestamps=i) for i in range(10, 20)])
    segment.close()
    reopened = segments.open(0)
    assert reopened.read_next_offset() == 20
    assert reopened.max_timestamp_so_far == 19
    assert [reopened.translate_offset(i).base_offset for i in range(20)] == list(range(20))  # type: ignore[union-attr]
    assert len(segments.warnings) == 1


@BOTH
def test_an_empty_log_gets_empty_indexes(segments: Segments, *, native: bool) -> None:
    segment = reopened_with(segments, b"")
    assert segment.recover(native=native) == 0
    assert segment.path.with_suffix(".index").read_bytes() == b""
    assert segment.path.with_suffix(".timeindex").read_bytes() == b""
    assert segment.max_timestamp_so_far == -1


# ---- the density of recovered indexes


@BOTH
def test_recovered_entries_are_counted_from_the_last_indexed_position(
    segments: Segments, *, native: bool
) -> None:
    segments.index_interval_bytes = 400
    size = len(batch(0, "x" * 31, timestamps=0))
    batches = [batch(i, "x" * 31, timestamps=100 + i) for i in range(20)]
    segment = reopened_with(segments, b"".join(batches))
    segment.recover(native=native)
    step = 400 // size + 1
    expected = [(i, i * size) for i in range(step, 20, step)]
    entries = parse_offset_index(segment.path.with_suffix(".index").read_bytes(), 0)
    assert entries == expected
    times = parse_time_index(segment.path.with_suffix(".timeindex").read_bytes(), 0)
    assert times == [*((100 + i, i) for i, _ in expected if i < 19), (119, 19)]


# ---- producers, transactions, epochs


def interleaved() -> bytes:
    return b"".join(
        [
            batch(100, "a", "b", producer_id=5, base_sequence=100, is_transactional=True),
            batch(102, "a", "b", producer_id=10, base_sequence=100, is_transactional=True),
            batch(104, "a", "b", leader_epoch=15),
            marker(106, 10, ControlType.ABORT),
            marker(107, 5, ControlType.COMMIT),
        ]
    )


@BOTH
def test_recovery_makes_the_transaction_index_anew(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    segment = reopened_with(segments, interleaved(), 100)
    state = producers()
    segment.recover(producer_state=state, native=native)
    assert state.map_end_offset == 108
    expected = AbortedTransaction(
        producer_id=10, first_offset=102, last_offset=106, last_stable_offset=100
    )
    assert segment.indexes.transactions.all_aborted() == [expected]
    segment.recover(producer_state=producers(), native=native)
    assert segment.indexes.transactions.all_aborted() == [expected]
    assert segment.path.with_suffix(".txnindex").stat().st_size == 34


@BOTH
def test_a_transaction_that_began_in_an_earlier_segment_is_indexed_from_its_start(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    segment = reopened_with(segments, interleaved(), 100)
    state = producers()
    state.load_entry(
        ProducerEntry(
            producer_id=10,
            producer_epoch=0,
            last_sequence=10,
            last_offset=10,
            offset_delta=5,
            timestamp=-1,
            coordinator_epoch=0,
            current_txn_first_offset=75,
        )
    )
    segment.recover(producer_state=state, native=native)
    assert state.map_end_offset == 108
    assert segment.indexes.transactions.all_aborted() == [
        AbortedTransaction(producer_id=10, first_offset=75, last_offset=106, last_stable_offset=100)
    ]


@BOTH
def test_without_producers_the_transaction_index_stays(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    segment = reopened_with(segments, interleaved(), 100)
    segment.recover(producer_state=producers(), native=native)
    segment.recover(native=native)
    assert len(segment.indexes.transactions.all_aborted()) == 1


@BOTH
def test_recovery_fills_the_leader_epochs(
    segments: Segments, epochs: Callable[[], LeaderEpochCache], *, native: bool
) -> None:
    data = b"".join(
        batch(offset, "a", "b", leader_epoch=epoch)
        for offset, epoch in [(104, 0), (106, 1), (108, 1), (110, 2)]
    )
    segment = reopened_with(segments, data)
    cache = epochs()
    segment.recover(leader_epochs=cache, native=native)
    assert [tuple(entry) for entry in cache.epoch_entries] == [(0, 104), (1, 106), (2, 110)]


@BOTH
def test_epochs_that_are_not_larger_than_the_latest_are_not_told(
    segments: Segments, epochs: Callable[[], LeaderEpochCache], *, native: bool
) -> None:
    data = b"".join(
        batch(i, "a", leader_epoch=epoch) for i, epoch in enumerate([-1, 3, 2, 5, 5, 4, -1, 7])
    )
    cache = epochs()
    cache.assign(4, 0)
    segment = reopened_with(segments, data)
    segment.recover(leader_epochs=cache, native=native)
    assert [tuple(entry) for entry in cache.epoch_entries] == [(4, 0), (5, 3), (7, 7)]


@BOTH
def test_a_marker_that_cannot_be_read_ends_the_log_behind_it(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    bad = build_batch(
        [Record(1, 5, build_control_key(ControlType.COMMIT), b"")],
        base_offset=1,
        producer_id=5,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    first = batch(0, "a", producer_id=5, is_transactional=True)
    segment = reopened_with(segments, first + bad + batch(2, "b"))
    state = producers()
    assert segment.recover(producer_state=state, native=native) == len(batch(2, "b"))
    assert bytes_of(segment) == first + bad
    assert state.first_unstable_offset == 0
    assert len(segments.warnings) == 1


@BOTH
def test_a_marker_that_a_clean_emptied_ends_no_transaction(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    emptied = build_empty_batch(parse_header(marker(3, 5, ControlType.COMMIT)))
    segment = reopened_with(segments, emptied + batch(4, "a"))
    state = producers()
    assert segment.recover(producer_state=state, native=native) == 0
    assert state.map_end_offset == 5


@BOTH
def test_what_the_state_of_producers_forbids_is_not_cut_off(
    segments: Segments, producers: Callable[[], ProducerStateManager], *, native: bool
) -> None:
    data = batch(0, "a", producer_id=5, is_transactional=True) + batch(1, "b", producer_id=5)
    segment = reopened_with(segments, data)
    with pytest.raises(InvalidTxnStateError):
        segment.recover(producer_state=producers(), native=native)
    assert bytes_of(segment) == data


# ---- offsets


@BOTH
def test_an_offset_out_of_reach_of_the_base_is_an_overflow(
    segments: Segments, *, native: bool
) -> None:
    data = batch(0, "a") + batch(INT_MAX + 1, "b") + batch(INT_MAX + 2, "c")
    segment = reopened_with(segments, data)
    with pytest.raises(SegmentOffsetOverflowError, match=str(INT_MAX + 1)) as raised:
        segment.recover(native=native)
    assert raised.value.base_offset == 0
    assert bytes_of(segment) == data


@BOTH
def test_an_offset_below_the_base_is_refused(segments: Segments, *, native: bool) -> None:
    data = batch(10, "a") + batch(5, "b") + batch(12, "c")
    segment = reopened_with(segments, data, 10)
    with pytest.raises(ImpossibleOffsetError, match="offsets 5 to 5 do not follow 10"):
        segment.recover(native=native)
    assert bytes_of(segment) == data


@BOTH
def test_an_offset_that_reaches_the_next_segment_is_refused(
    segments: Segments, *, native: bool
) -> None:
    data = batch(0, "a") + batch(7, "b")
    segment = reopened_with(segments, data)
    assert segment.recover(next_base_offset=8, native=native) == 0
    with pytest.raises(ImpossibleOffsetError, match="7 is not below 7, where the next segment"):
        segment.recover(next_base_offset=7, native=native)
    assert bytes_of(segment) == data


@BOTH
@pytest.mark.parametrize("interval", [1, 1 << 20])
@pytest.mark.parametrize(
    "wrong", [(8, 8), (9, 9), (0, 0), (9, 12), (3, 30)], ids=lambda wrong: f"{wrong[0]}-{wrong[1]}"
)
@pytest.mark.parametrize("starts_at", [492, 511])
def test_a_batch_that_does_not_follow_and_may_be_torn_ends_the_log(
    segments: Segments, wrong: tuple[int, int], interval: int, starts_at: int, *, native: bool
) -> None:
    segments.index_interval_bytes = interval
    good, stray, rest = stray_at(starts_at, *wrong)
    segment = reopened_with(segments, good + stray + rest)
    assert segment.recover(native=native) == len(stray + rest)
    assert bytes_of(segment) == good
    assert segment.read_next_offset() == 10


@BOTH
@pytest.mark.parametrize(
    "wrong", [(8, 8), (9, 9), (0, 0), (9, 12), (3, 30)], ids=lambda wrong: f"{wrong[0]}-{wrong[1]}"
)
@pytest.mark.parametrize(("starts_at", "flushed"), [(491, 0), (512, 0), (492, 11), (511, 1 << 63)])
def test_a_batch_that_does_not_follow_and_cannot_be_torn_is_refused(
    segments: Segments, wrong: tuple[int, int], starts_at: int, flushed: int, *, native: bool
) -> None:
    good, stray, rest = stray_at(starts_at, *wrong)
    segment = reopened_with(segments, good + stray + rest)
    with pytest.raises(ImpossibleOffsetError, match="do not follow 9"):
        segment.recover(flushed_offset=flushed, native=native)
    assert bytes_of(segment) == good + stray + rest


def stray_at(position: int, first: int, last: int) -> tuple[bytes, bytes, bytes]:
    """Batches up to offset 9, one with other offsets at that position of the file, and another."""
    good = b"".join(batch(offset, "a") for offset in (0, 7))
    sizes = range(position)
    filler = next(b for n in sizes if len(good + (b := batch(9, "a" * n))) == position)
    return good + filler, batch(first, *["a"] * (last - first + 1)), batch(40, "b")


# ---- odd batches


@BOTH
def test_old_messages_are_recovered_among_new_batches(segments: Segments, *, native: bool) -> None:
    pieces = [
        message(0, "a", magic=0),
        message(1, "", magic=0),
        message(2, "b", timestamp=5),
        batch(3, "c", "d", timestamps=4),
        message(5, "e", timestamp=9),
        batch(6, "f", timestamps=7),
    ]
    segment = reopened_with(segments, b"".join(pieces))
    assert segment.recover(native=native) == 0
    assert segment.read_next_offset() == 7
    assert (segment.max_timestamp_so_far, segment.offset_of_max_timestamp) == (9, 5)
    assert segment.time_index.last_entry == (9, 5)


@BOTH
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_with_a_wrong_crc_ends_the_log(
    segments: Segments, magic: int, *, native: bool
) -> None:
    first, bad = message(0, "a", magic=magic), bytearray(message(1, "b", magic=magic))
    bad[-1] ^= 1
    segment = reopened_with(segments, first + bytes(bad))
    assert segment.recover(native=native) == len(bad)
    assert bytes_of(segment) == first


@BOTH
def test_a_batch_whose_count_is_odd_but_whose_crc_is_right_is_kept(
    segments: Segments, *, native: bool
) -> None:
    odd = with_header(batch(1, "b", timestamps=5), records_count=1000)
    negative = with_header(batch(2, "c", timestamps=5), records_count=-1)
    data = batch(0, "a") + odd + negative + batch(3, "d")
    segment = reopened_with(segments, data)
    assert segment.recover(native=native) == 0
    assert segment.read_next_offset() == 4


@BOTH
def test_a_length_below_the_minimum_or_an_unknown_magic_ends_the_log(
    segments: Segments, *, native: bool
) -> None:
    first = batch(0, "a")
    for at, value in [(8, struct.pack(">i", 13)), (8, struct.pack(">i", -1)), (16, b"\x03")]:
        bad = bytearray(batch(1, "b"))
        bad[at : at + len(value)] = value
        segment = reopened_with(segments, first + bytes(bad) + batch(2, "c"))
        assert segment.recover(native=native) == len(bad) + len(batch(2, "c"))
        assert bytes_of(segment) == first


# ---- both ways come to the same


def random_log(rng: random.Random, *, damage: bool) -> bytes:
    """Batches of many producers, transactions, epochs, sizes, formats; perhaps damaged."""
    pieces: list[bytes] = []
    offset = 0
    epoch = 0
    sequences: dict[int, int] = {}
    open_transactions: set[int] = set()
    for _ in range(rng.randrange(1, 400)):
        kind = rng.random()
        timestamp = rng.randrange(1000) if rng.random() < 0.9 else -1
        epoch += rng.random() < 0.02
        if kind < 0.03:
            pieces.append(message(offset, "old", magic=rng.randrange(2), timestamp=timestamp))
            offset += 1
            continue
        if kind < 0.1 and open_transactions:
            producer = rng.choice(sorted(open_transactions))
            open_transactions.discard(producer)
            ends = rng.choice([ControlType.COMMIT, ControlType.ABORT])
            pieces.append(marker(offset, producer, ends, timestamp=timestamp, leader_epoch=epoch))
            offset += 1
            continue
        count = rng.choice([1, 1, 2, 5])
        producer = rng.choice([-1, 1, 1, 1, 2, 3, 4, 20, 36])
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + count
        transactional = producer in {2, 3, 4}
        if transactional:
            open_transactions.add(producer)
        pieces.append(
            batch(
                offset,
                *("v" * rng.choice([1, 20, 300]) for _ in range(count)),
                timestamps=timestamp,
                codec=rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4]),
                leader_epoch=epoch if rng.random() < 0.9 else -1,
                last_offset=offset + count - 1 + rng.choice([0, 0, 3]),
                producer_id=producer,
                base_sequence=sequence,
                is_transactional=transactional,
            )
        )
        offset += count + 3
    data = bytearray(b"".join(pieces))
    if damage:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        del data[rng.choice([len(data), rng.randrange(len(data))]) :]
    return bytes(data)


def outcome(
    segments: Segments,
    data: bytes,
    state: ProducerStateManager,
    cache: LeaderEpochCache,
    *,
    native: bool,
) -> dict[str, object]:
    segment = reopened_with(segments, data)
    try:
        cut = segment.recover(producer_state=state, leader_epochs=cache, native=native)
    except KafkaError as error:
        return {"failure": (type(error), str(error)), "epochs": cache.epoch_entries}
    return {
        "cut": cut,
        "log": bytes_of(segment),
        "index": segment.path.with_suffix(".index").read_bytes(),
        "time index": segment.path.with_suffix(".timeindex").read_bytes(),
        "aborted": segment.indexes.transactions.all_aborted(),
        "epochs": cache.epoch_entries,
        "end": state.map_end_offset,
        "producers": list(state.entries()),
        "unstable": state.first_unstable_offset,
        "largest": (segment.max_timestamp_so_far, segment.offset_of_max_timestamp),
        "warnings": segments.warnings.copy(),
    }


@pytest.mark.parametrize("seed", range(40))
def test_plain_and_compiled_code_come_to_the_same(
    segments: Segments,
    producers: Callable[[], ProducerStateManager],
    epochs: Callable[[], LeaderEpochCache],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    rng = random.Random(seed)
    segments.index_interval_bytes = rng.choice([0, 10, 300, 5000])
    data = random_log(rng, damage=seed % 2 == 1)
    # Blocks so small that batches straddle them, or are larger; tables that fill up.
    monkeypatch.setattr(native_recovery, "BLOCK_BYTES", rng.choice([500, 3000, 1 << 20]))
    monkeypatch.setattr(native_recovery, "_ROWS", rng.choice([3, 50, 1 << 14]))
    monkeypatch.setattr(segment_recovery, "BLOCK_BYTES", rng.choice([100, 1000, 1 << 20]))
    monkeypatch.setattr(segment_recovery, "WHOLE_BYTES", rng.choice([100, 300, 1 << 20]))
    plain = outcome(segments, data, producers(), epochs(), native=False)
    native = outcome(segments, data, producers(), epochs(), native=True)
    assert native == plain


def test_only_what_makes_a_difference_is_told_of_a_producers_batches(
    segments: Segments, producers: Callable[[], ProducerStateManager]
) -> None:
    data = b"".join(batch(i, "a", producer_id=1, base_sequence=i) for i in range(1000))
    data += batch(1000, "b", producer_id=2)
    told: list[int] = []

    class Counting:
        def replay(
            self, header: BatchHeader, marker: EndTxnMarker | None = None
        ) -> CompletedTransaction | None:
            told.append(header.base_offset)
            return state.replay(header, marker)

        def __getattr__(self, name: str) -> object:
            return getattr(state, name)

    state = producers()
    segment = reopened_with(segments, data)
    segment.recover(producer_state=cast("ProducerStateManager", Counting()), native=True)
    assert told == [0, 995, 996, 997, 998, 999, 1000]
    plain = producers()
    segment.recover(producer_state=plain, native=False)
    assert list(state.entries()) == list(plain.entries())


# ---- by size, and without compiled code


def walk_of(segments: Segments, data: bytes) -> SegmentWalk:
    path = segments.directory / "walked.log"
    path.write_bytes(data)
    file = segments.resources.fs.open(path)
    return SegmentWalk(file, len(data), IndexBuilder(0, 4096, path), path=path)


def numbered(count: int) -> bytes:
    one = bytearray(batch(0, "a"))
    out = bytearray()
    for i in range(count):
        one[:8] = i.to_bytes(8, "big")
        out += one
    return bytes(out)


class _Spy:
    def __init__(self, real: Callable[..., object]) -> None:
        self.real = real
        self.calls: list[bool] = []

    def __call__(self, steps: int, *, is_wanted: bool) -> object:
        made = self.real(steps, is_wanted=is_wanted)
        self.calls.append(made is not None)
        return made


@pytest.mark.parametrize(("count", "is_native"), [(1500, False), (6000, True)])
def test_many_small_batches_are_left_to_compiled_code_where_it_is_loaded(
    segments: Segments, monkeypatch: pytest.MonkeyPatch, count: int, *, is_native: bool
) -> None:
    walk = walk_of(segments, numbered(count))
    spy = _Spy(walk._load_native)
    monkeypatch.setattr(walk, "_load_native", spy)
    walk.run()
    assert walk.position == walk.end
    assert any(spy.calls) is is_native


def test_without_compiled_code_everything_is_done_plainly(
    segments: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SegmentWalk, "_load_native", lambda *_args, **_named: None)
    data = numbered(5000)
    walk = walk_of(segments, data)
    walk.run(native=True)
    assert walk.position == len(data)
    assert walk.next_offset == 5000
    assert walk.reason is None


def test_a_log_of_old_messages_alone_is_not_read_over_and_over(segments: Segments) -> None:
    data = b"".join(message(i, "v" * 50) for i in range(20_000))
    walk = walk_of(segments, data)
    read = 0
    real = walk.file

    class Counted:
        def read_at(self, size: int, position: int) -> bytes:
            nonlocal read
            found = real.read_at(size, position)
            read += len(found)
            return found

        def read_into(self, view: memoryview, position: int) -> int:
            nonlocal read
            got = real.read_into(view, position)
            read += got
            return got

    walk.file = Counted()  # type: ignore[assignment]
    walk.run(native=True)
    assert walk.position == len(data)
    assert read < 20 * len(data)


def test_rebuilding_indexes_checks_no_crc_and_leaves_the_log(segments: Segments) -> None:
    segments.index_interval_bytes = 1
    good = b"".join(batch(i, f"value {i}", timestamps=i) for i in range(10))
    position = 5 * len(batch(0, "value 0", timestamps=0))
    damaged = bytearray(good)
    damaged[position + 65] ^= 1
    segment = reopened_with(segments, bytes(damaged))
    segment.indexes.rebuild(segment)
    assert bytes_of(segment) == bytes(damaged)
    assert segment.offset_index.entries == 9
    assert segment.max_timestamp_so_far == 9


def test_a_file_that_became_shorter_ends_the_log_where_it_is_cut(segments: Segments) -> None:
    first, second = batch(0, "a"), batch(1, "b" * 1000)
    for native in (False, True):
        walk = walk_of(segments, first + second)
        walk.path.write_bytes((first + second)[:500])
        walk.run(native=native)
        assert walk.position == len(first)
        assert isinstance(walk.reason, CorruptError)
        assert walk.reason.position == len(first)
