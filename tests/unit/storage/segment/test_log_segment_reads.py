"""Scenarios of LogSegmentTest that read, and segments whose indexes or logs are damaged.

Offsets, timestamps and index intervals are those of Kafka's test where it has them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordwood.format.batch_header import parse_header
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.offset_index import build_offset_index, parse_offset_index
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch, build_empty_batch
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError
from cordwood.storage.reading.batch_heads import BatchPosition
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.segments import (
    Segments,
    batch,
    bytes_of,
    last_offsets,
    message,
    put,
    set_last_modified,
)

INT_MAX = (1 << 31) - 1


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(directory=tmp_path)


def offset_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.offset_index
    return [(*index.entry(i),) for i in range(index.entries)]


def time_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.time_index
    return [(*index.entry(i),) for i in range(index.entries)]


def read_offsets(segment: LogSegment, start: int, max_bytes: int = 1 << 20) -> list[int] | None:
    found = segment.read(start, max_bytes)
    return None if found is None else last_offsets(found[0])


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# ---- read


def test_a_read_of_an_empty_segment_gives_nothing(segments: Segments) -> None:
    assert segments.create(40).read(40, 300) is None


def test_a_read_before_the_first_offset_starts_at_the_first_batch(segments: Segments) -> None:
    segment = segments.create(40)
    data = batch(50, "hello", "there", "little", "bee")
    put(segment, data)
    found = segment.read(41, 300)
    assert found is not None
    assert found[0] is not None
    assert found[0].read() == data
    assert found[1] == (50, 53, 0, len(data))


def test_a_read_after_the_last_offset_gives_nothing(segments: Segments) -> None:
    segment = segments.create(40)
    put(segment, batch(50, "hello", "there"))
    assert segment.read(52, 200) is None


def test_a_read_from_a_gap_starts_at_the_next_batch(segments: Segments) -> None:
    segment = segments.create(40)
    put(segment, batch(50, "hello", "there"))
    put(segment, batch(60, "alpha", "beta"))
    assert read_offsets(segment, 55) == [61]


@pytest.mark.parametrize("min_one", [True, False])
@pytest.mark.parametrize("start", [48, 50, 51])
def test_a_read_with_a_largest_position_before_the_start_gives_no_bytes_but_the_place(
    segments: Segments, start: int, *, min_one: bool
) -> None:
    segment = segments.create(40)
    put(segment, batch(50, "hello", "there"), batch(52, "x"))
    found = segment.read(start, 1, max_position=0, min_one=min_one)
    assert found is not None
    assert found[0] is None
    assert found[1].base_offset == 50
    later = segment.read(52, 1, max_position=10, min_one=min_one)
    assert later is not None
    assert later[0] is None
    assert later[1].position == found[1].size_bytes
    assert segment.read(53, 1, max_position=0, min_one=min_one) is None


def test_a_read_stops_at_the_largest_position(segments: Segments) -> None:
    segment = segments.create(0)
    first = batch(0, "hello")
    put(segment, first, batch(1, "there"))
    found = segment.read(0, 1000, max_position=len(first))
    assert found is not None
    assert found[0] is not None
    assert found[0].read() == first


def test_a_read_of_one_byte_gives_the_whole_first_batch_only_if_one_is_asked_for(
    segments: Segments,
) -> None:
    segment = segments.create(0)
    data = batch(0, "hello")
    put(segment, data)
    small, whole = segment.read(0, 1), segment.read(0, 1, min_one=True)
    assert small is not None
    assert small[0] is not None
    assert small[0].size_bytes == 1 < small[1].size_bytes
    assert whole is not None
    assert whole[0] is not None
    assert whole[0].read() == data


def test_a_read_of_zero_bytes_gives_none(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "hello"))
    found = segment.read(0, 0)
    assert found is not None
    assert found[0] is None


def test_a_read_of_fewer_than_zero_bytes_is_an_illegal_argument(segments: Segments) -> None:
    with pytest.raises(ValueError, match="Invalid max size -1"):
        segments.create(0).read(0, -1)


def test_a_range_stays_readable_after_its_segment_was_renamed_and_removed(
    segments: Segments,
) -> None:
    segment = segments.create(0)
    data = batch(0, "hello")
    put(segment, data)
    found = segment.read(0, 100)
    assert found is not None
    assert found[0] is not None
    segment.change_suffix("", ".deleted")
    segment.delete_if_exists()
    assert files_in(segments.directory) == []
    assert found[0].read() == data


def test_a_batch_is_found_from_a_position_known_to_be_before_it(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, "a") for i in range(10)])
    place = segment.translate_offset(5)
    assert place is not None
    assert segment.translate_offset(7, place.position) == segment.translate_offset(7)


def test_readers_see_whole_batches_while_a_writer_appends(segments: Segments) -> None:
    segments.index_interval_bytes = 200
    segments.segment_index_bytes = 1 << 20
    segment = segments.create(0)
    put(segment, batch(0, "v0"))
    written = [1]
    wrong: list[object] = []
    done = threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            offset = rng.randrange(written[0])
            found = segment.translate_offset(offset)
            if found is None or found.base_offset != offset:
                wrong.append((offset, found))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    for offset in range(1, 3000):
        put(segment, batch(offset, f"v{offset}"))
        written[0] = offset + 1
    done.set()
    for reader in readers:
        reader.join(120)
    assert wrong == []
    assert segments.warnings == []


# ---- next offset, overflow


def test_the_next_offset_follows_the_last_record(segments: Segments) -> None:
    segment = segments.create(40)
    assert segment.read_next_offset() == 40
    put(segment, batch(50, "hello", "there", "you"))
    assert segment.read_next_offset() == 53


def test_a_torn_batch_at_the_end_does_not_count_for_the_next_offset(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, "hello") for i in range(5)])
    whole = segment.size_bytes
    segment.close()
    with segment.path.open("ab") as file:
        file.write(batch(5, "hello")[:-1])
    reopened = segments.open(0)
    assert reopened.read_next_offset() == 5
    assert reopened.valid_bytes() == whole < reopened.size_bytes


def test_a_segment_whose_last_offset_is_out_of_reach_has_an_overflow(segments: Segments) -> None:
    segment = segments.create(0)
    assert not segment.has_overflow()
    put(segment, batch(INT_MAX, "a"))
    assert not segment.has_overflow()
    segment.close()
    with segment.path.open("ab") as file:
        file.write(batch(INT_MAX + 1, "b"))
    assert segments.open(0).has_overflow()


# ---- timestamps


def test_records_are_found_by_timestamp(segments: Segments) -> None:
    segments.index_interval_bytes = 2 * len(batch(0, "msg00", timestamps=0)) - 1
    segment = segments.create(40)
    for offset in range(40, 50):
        put(segment, batch(offset, f"msg{offset}", timestamps=offset * 10))
    assert segment.largest_timestamp == 490

    def found(timestamp: int) -> int | None:
        record = segment.find_offset_by_timestamp(timestamp, 0)
        return None if record is None else record.offset

    assert found(420) == 42, "an indexed timestamp"
    assert found(421) == 43
    assert found(430) == 43, "one that is not indexed"
    assert found(431) == 44
    assert found(491) is None, "beyond the last"
    assert found(401) == 41, "before the first that is indexed"
    assert found(399) == 40, "before the first"


def test_the_starting_offset_bounds_what_is_found_by_timestamp(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i * 2, "a", "b", timestamps=[100 + i, 50 + i]) for i in range(10)])
    assert segment.find_offset_by_timestamp(103, 0) == (103, 6, -1)
    assert segment.find_offset_by_timestamp(53, 7) == (53, 7, -1), "within the batch"
    assert segment.find_offset_by_timestamp(103, 7) == (104, 8, -1)
    assert segment.find_offset_by_timestamp(0, 20) is None


def test_records_of_a_compressed_batch_are_found_with_their_leader_epoch(
    segments: Segments,
) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", "b", "c", timestamps=[1, 2, 3], codec=Codec.ZSTD, leader_epoch=5))
    assert segment.find_offset_by_timestamp(2, 0) == (2, 1, 5)


def test_the_record_of_the_largest_timestamp_is_the_first_that_has_it(segments: Segments) -> None:
    segments.index_interval_bytes = 100
    segment = segments.create(0)
    put(segment, *[batch(i * 3, "a", "b", "c", timestamps=[i, 90 - i, i]) for i in range(10)])
    put(
        segment,
        batch(40, "x", "y", timestamps=[95, 95], leader_epoch=4),
        batch(42, "z", timestamps=95),
    )
    assert segment.find_max_timestamp() == (95, 40, 4)
    segment.close()
    assert segments.open(0).find_max_timestamp() == (95, 40, 4)


def test_a_segment_without_records_has_no_largest_timestamp(segments: Segments) -> None:
    assert segments.create(0).find_max_timestamp() is None


def test_a_damaged_payload_is_an_error_that_says_where(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", timestamps=5), batch(1, "b", timestamps=6, codec=Codec.GZIP))
    place = segment.translate_offset(1)
    assert place is not None
    data = bytearray(bytes_of(segment))
    data[place.position + 61 :] = bytes(len(data) - place.position - 61)
    segment.path.write_bytes(data)
    with pytest.raises(CorruptError) as raised:
        segment.find_offset_by_timestamp(6, 0)
    assert raised.value.path == str(segment.path)


def test_the_largest_timestamp_without_timestamps_is_the_files(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a"))
    set_last_modified(segment, 1_600_000_000_000)
    assert segment.largest_record_timestamp == -1
    assert segment.largest_timestamp == 1_600_000_000_000
    put(segment, batch(1, "b", timestamps=5))
    assert segment.largest_timestamp == segment.largest_record_timestamp == 5


def test_the_largest_timestamp_of_a_reopened_segment_is_its_last_time_index_entry(
    segments: Segments,
) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=t) for i, t in enumerate([10, 99, 20, 30])])
    segment.close()
    reopened = segments.open(0)
    assert reopened.max_timestamp_so_far == 99
    assert reopened.offset_of_max_timestamp == 1
    assert segments.warnings == []


def test_modification_times_are_set_on_the_log_and_its_indexes(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a"))
    set_last_modified(segment, 1_000)
    segment.flush()
    set_last_modified(segment, 1_234_567_890_123)
    for suffix in (".log", ".index", ".timeindex"):
        found = segment.path.with_suffix(suffix).stat().st_mtime_ns
        assert found == 1_234_567_890_123_000_000
    assert segment.last_modified_ms == 1_234_567_890_123


def test_a_segment_prints_itself_as_kafka_does_without_reading_its_index(
    segments: Segments,
) -> None:
    segment = segments.create(7)
    put(segment, batch(7, "hello", timestamps=1_700_000_000_000))
    set_last_modified(segment, 1_700_000_000_001)
    size = segment.size_bytes
    assert str(segment) == (
        f"LogSegment(baseOffset=7, size={size}, lastModifiedTime=1700000000001, "
        "largestRecordTimestamp=1700000000000)"
    )
    segment.close()
    reopened = segments.open(7)
    assert str(reopened).endswith("largestRecordTimestamp=-1)")
    reopened.path.unlink()
    assert "lastModifiedTime=0" in str(reopened)


# ---- old messages


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_read_counted_and_found_by_offset(segments: Segments, magic: int) -> None:
    segments.index_interval_bytes = 60
    segment = segments.create(0)
    for i in range(20):
        put(segment, message(i * 2, f"value {i}", magic=magic, timestamp=i))
    assert segment.read_next_offset() == 39
    assert read_offsets(segment, 11) == list(range(12, 40, 2))
    place = segment.translate_offset(11)
    assert place is not None
    assert (place.base_offset, place.last_offset) == (12, 12)
    assert segment.offset_index.entries > 3
    segment.close()
    assert read_offsets(segments.open(0), 11) == list(range(12, 40, 2))
    assert segments.warnings == []


def test_messages_of_magic_1_are_found_by_timestamp(segments: Segments) -> None:
    segments.index_interval_bytes = 60
    segment = segments.create(0)
    for i in range(20):
        put(segment, message(i, f"value {i}", timestamp=100 + i))
    assert segment.max_timestamp_so_far == 119
    assert segment.find_offset_by_timestamp(107, 0) == (107, 7, -1)


def test_messages_of_magic_0_have_no_timestamps(segments: Segments) -> None:
    segment = segments.create(0)
    for i in range(20):
        put(segment, message(i, f"value {i}", magic=0))
    assert segment.largest_record_timestamp == -1
    assert segment.time_index.entries == 0
    assert segment.find_offset_by_timestamp(1, 0) is None
    assert segment.find_max_timestamp() is None


def test_a_record_without_a_timestamp_is_that_of_the_largest_if_none_has_one(
    segments: Segments,
) -> None:
    segment = segments.create(7)
    put(segment, build_batch([Record(7, -1, b"k", b"v"), Record(8, -1, b"k", b"w")], base_offset=7))
    assert segment.largest_record_timestamp == -1
    assert segment.find_max_timestamp() == (-1, 7, -1)
    assert segments.open(7).find_max_timestamp() == (-1, 7, -1)


def test_a_log_of_all_magics_is_read_as_one(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, message(0, "", magic=0), message(1, "b", timestamp=5), batch(2, "c", "d"))
    assert read_offsets(segment, 0) == [0, 1, 3]
    assert [segment.translate_offset(o).last_offset for o in range(4)] == [0, 1, 3, 3]  # type: ignore[union-attr]


# ---- indexes that are not to be believed


def written(segments: Segments, count: int = 60) -> LogSegment:
    """A closed segment of `count` batches, two records each, offsets and timestamps with gaps."""
    segments.index_interval_bytes = 200
    segment = segments.create(1000)
    rng = random.Random(count)
    for i in range(count):
        size = rng.randrange(1, 60)
        put(
            segment, batch(1000 + i * 3, "k" * size, "v", timestamps=[5000 + i * 10, 5001 + i * 10])
        )
    segment.close()
    return segment


def answers(segment: LogSegment) -> list[object]:
    """Answers of the segment to every offset and timestamp there is."""
    found: list[object] = [segment.translate_offset(o) for o in range(995, 1185)]
    found += [segment.find_offset_by_timestamp(t, 0) for t in range(4995, 5610, 3)]
    found += [segment.find_offset_by_timestamp(5000, o) for o in range(1000, 1180, 7)]
    found += [segment.read_next_offset(), segment.valid_bytes()]
    return found


def damages(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Index files as they should not be."""
    for _ in range(40):
        flipped = bytearray(data)
        for _ in range(rng.choice([1, 1, 1, 5])):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
    for _ in range(10):
        yield data[: rng.randrange(len(data))]
        yield data + rng.randbytes(rng.randrange(1, 40))
        yield rng.randbytes(rng.randrange(1, 200))
        start = rng.randrange(len(data))
        yield data[:start] + rng.randbytes(8) + data[start + 8 :]
    yield b""
    yield bytes(len(data))
    yield data + data
    yield data[::-1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_damaged_indexes_never_lead_to_another_answer(segments: Segments, suffix: str) -> None:
    segment = written(segments)
    expected = answers(segment)
    path = segment.path.with_suffix(suffix)
    both = [segment.path.with_suffix(".index"), segment.path.with_suffix(".timeindex")]
    good = {each: each.read_bytes() for each in both}
    mended = 0
    for damaged in damages(good[path], random.Random(11)):
        for each in both:
            each.write_bytes(good[each])
        path.write_bytes(damaged)
        segments.warnings.clear()
        assert answers(segments.open(1000)) == expected
        assert len(segments.warnings) <= 1, "an index is made anew once"
        mended += len(segments.warnings)
    assert mended > 10


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_appends_go_on_behind_damaged_indexes(segments: Segments, suffix: str) -> None:
    segment = written(segments, 30)
    path = segment.path.with_suffix(suffix)
    log, good = bytes_of(segment), path.read_bytes()
    for damaged in damages(good, random.Random(12)):
        segment.path.write_bytes(log)
        path.write_bytes(damaged)
        reopened = segments.open(1000)
        for i in range(5):
            put(reopened, batch(2000 + i, "more", timestamps=9000 + i))
        assert read_offsets(reopened, 1990) == [2000, 2001, 2002, 2003, 2004]
        assert reopened.find_offset_by_timestamp(9002, 0) == (9002, 2002, -1)
        reopened.close()
        again = segments.open(1000)
        assert again.read_next_offset() == 2005
        assert again.max_timestamp_so_far == 9004
        path.write_bytes(good)


@pytest.mark.parametrize("content", [None, b"  "], ids=["deleted", "two blanks"])
def test_without_good_indexes_every_record_is_found_by_offset_and_timestamp(
    segments: Segments, content: bytes | None
) -> None:
    segment = written(segments)
    expected = answers(segment)
    for suffix in (".index", ".timeindex"):
        path = segment.path.with_suffix(suffix)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    assert answers(segments.open(1000)) == expected


def test_an_index_that_points_beyond_the_log_is_made_anew(segments: Segments) -> None:
    segment = written(segments)
    data = bytes_of(segment)
    place = segment.translate_offset(1050)
    assert place is not None
    segment.path.write_bytes(data[: place.position])
    reopened = segments.open(1000)
    assert reopened.translate_offset(1050) is None
    assert reopened.read_next_offset() == place.base_offset - 1
    assert len(segments.warnings) == 1
    assert "rebuilding index files" in segments.warnings[0]
    kept = segments.open(1000)
    assert kept.offset_index.last_entry.position < place.position
    assert len(segments.warnings) == 1, "the new index is on disk"


def test_an_index_that_is_made_anew_is_written_to_its_file(segments: Segments) -> None:
    segment = written(segments)
    path = segment.path.with_suffix(".index")
    path.write_bytes(b"xx")
    reopened = segments.open(1000)
    assert reopened.translate_offset(1100) is not None
    entries = parse_offset_index(path.read_bytes(), 1000)
    assert len(entries) > 5
    assert entries == offset_entries(reopened)
    assert len(segments.warnings) == 1
    segments.warnings.clear()
    assert segments.open(1000).translate_offset(1100) is not None
    assert segments.warnings == []


def test_an_index_that_cannot_be_written_is_still_used(tmp_path: Path) -> None:
    segment = written(Segments(directory=tmp_path))
    segment.path.with_suffix(".index").write_bytes(b"xx")
    fs = SimulatedFileSystem()
    fs.load(tmp_path, Path("/log"))
    fs.capacity_bytes = 1
    segments = Segments(directory=Path("/log"), index_interval_bytes=200, fs=fs)
    reopened = segments.open(1000)
    assert reopened.translate_offset(1100) == segment.translate_offset(1100)
    assert reopened.offset_index.entries > 5
    assert ["Could not write the indexes" in warning for warning in segments.warnings] == [
        False,
        True,
    ]


def test_an_index_is_made_anew_by_one_of_many_readers(segments: Segments) -> None:
    segment = written(segments)
    expected = segment.translate_offset(1150)
    segment.path.with_suffix(".index").write_bytes(b"xx")
    reopened = segments.open(1000)
    found: list[BatchPosition | None] = []
    start = threading.Barrier(4)

    def read() -> None:
        start.wait(120)
        found.append(reopened.translate_offset(1150))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(120)
    assert found == [expected] * 4
    assert len(segments.warnings) == 1


def test_entries_of_older_brokers_are_believed(segments: Segments) -> None:
    """They name the last offset of a set of batches, and where the set begins."""
    segments.index_interval_bytes = 1 << 20
    segment = segments.create(0)
    size = len(batch(0, "a"))
    put(segment, *[batch(i, "a") for i in range(30)])
    segment.close()
    segment.path.with_suffix(".index").write_bytes(
        build_offset_index([(9, 5 * size), (19, 10 * size), (29, 20 * size)], 0)
    )
    reopened = segments.open(0)
    for offset in range(30):
        place = reopened.translate_offset(offset)
        assert place is not None
        assert place.base_offset == offset
    assert reopened.translate_offset(30) is None
    assert reopened.read_next_offset() == 30
    assert segments.warnings == []


def test_an_upper_bound_is_not_taken_from_a_damaged_index(segments: Segments) -> None:
    segment = written(segments)
    first = segment.translate_offset(1000)
    assert first is not None
    expected = segment.fetch_upper_bound_offset(first, 1000)
    assert expected is not None
    path = segment.path.with_suffix(".index")
    entries = parse_offset_index(path.read_bytes(), 1000)
    number = next(i for i, entry in enumerate(entries) if entry[0] == expected)
    entries[number] = (expected - 1, entries[number][1])
    path.write_bytes(build_offset_index(entries, 1000))
    reopened = segments.open(1000)
    found = reopened.fetch_upper_bound_offset(first, 1000)
    assert found is not None
    assert found >= expected
    assert len(segments.warnings) == 1
    assert reopened.fetch_upper_bound_offset(first, 1 << 30) is None


# ---- logs that are not to be believed


def test_damaged_headers_stop_a_look_up_with_an_error_that_says_where(segments: Segments) -> None:
    segment = written(segments)
    place = segment.translate_offset(1120)
    assert place is not None
    good = bytes_of(segment)
    for at, value in [(8, b"\x00\x00\x00\x05"), (8, b"\x7f\xff\xff\xff"), (16, b"\x07")]:
        damaged = bytearray(good)
        damaged[place.position + at : place.position + at + len(value)] = value
        segment.path.write_bytes(damaged)
        reopened = segments.open(1000)
        assert reopened.translate_offset(1000) is not None
        for _ in range(3):
            with pytest.raises(CorruptError) as raised:
                reopened.translate_offset(place.base_offset)
            assert raised.value.path == str(segment.path)
            assert raised.value.position == place.position
        assert len(segments.warnings) == 1, "made anew in vain once, and not again"
        segments.warnings.clear()


def test_any_damage_to_the_log_gives_batches_or_a_typed_error(segments: Segments) -> None:
    segment = written(segments, 20)
    good = bytes_of(segment)
    rng = random.Random(5)
    refused = 0
    for _ in range(150):
        damaged = bytearray(good)
        damaged[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        segment.path.write_bytes(damaged[: rng.choice([len(good), rng.randrange(len(good))])])
        reopened = segments.open(1000)
        questions: list[Callable[[LogSegment], object]] = [
            lambda s: [s.translate_offset(o) for o in range(1000, 1070, 9)],
            lambda s: [s.find_offset_by_timestamp(t, 0) for t in range(5000, 5200, 17)],
            lambda s: (s.read_next_offset(), s.valid_bytes(), s.first_batch_timestamp()),
            lambda s: (s.max_timestamp_so_far, s.find_max_timestamp()),
            lambda s: list(s.producer_batches(0, 5000)),
        ]
        for question in questions:
            try:
                question(reopened)
            except (CorruptError, KafkaError):
                refused += 1
    assert refused > 20


def test_a_reader_that_meets_a_truncation_does_not_fail(segments: Segments) -> None:
    segments.index_interval_bytes = 200
    segments.segment_index_bytes = 1 << 16
    segment = segments.create(0)
    put(segment, *[batch(i, f"value {i}") for i in range(200)])
    wrong: list[object] = []
    done = threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            offset = rng.randrange(200)
            try:
                found = segment.translate_offset(offset)
            except CorruptError as error:
                wrong.append(error)
                return
            if found is not None and found.base_offset != offset:
                wrong.append((offset, found))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(150):
        segment.truncate_to(60 + turn % 90)
        put(segment, *[batch(i, f"value {i}") for i in range(segment.read_next_offset(), 200)])
    done.set()
    for reader in readers:
        reader.join(120)
    assert wrong == []


# ---- producers


def test_batches_of_producers_are_given_with_their_markers(segments: Segments) -> None:
    segment = segments.create(0)
    put(
        segment,
        batch(0, "a", "b", producer_id=7, producer_epoch=1, is_transactional=True),
        batch(2, "c"),
        batch(3, "d", producer_id=8),
        build_end_txn_marker(
            offset=4,
            timestamp=9,
            producer_id=7,
            producer_epoch=1,
            control_type=ControlType.ABORT,
            coordinator_epoch=3,
        ),
        batch(5, "e", producer_id=8, base_sequence=1),
    )
    found = [
        (header.base_offset, header.producer_id, marker and marker.control_type)
        for header, marker in segment.producer_batches(0, 100)
    ]
    assert found == [(0, 7, None), (3, 8, None), (4, 7, ControlType.ABORT), (5, 8, None)]
    assert [h.base_offset for h, _ in segment.producer_batches(1, 5)] == [0, 3, 4]
    assert [h.base_offset for h, _ in segment.producer_batches(2, 5)] == [3, 4]
    assert list(segment.producer_batches(6, 100)) == []


def test_a_control_batch_that_a_clean_emptied_has_no_marker(segments: Segments) -> None:
    marker = build_end_txn_marker(
        offset=0,
        timestamp=9,
        producer_id=7,
        producer_epoch=1,
        control_type=ControlType.COMMIT,
        coordinator_epoch=3,
    )
    segment = segments.create(0)
    put(segment, build_empty_batch(parse_header(marker)))
    assert [marker for _, marker in segment.producer_batches(0, 100)] == [None]
