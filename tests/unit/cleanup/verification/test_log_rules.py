"""Every rule of a log: a plant that breaks it alone, and that very finding."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cordwood.cleanup.verification.directories import Verification, verify
from cordwood.cleanup.verification.findings import Finding, Level, Rule
from cordwood.cleanup.verification.offsets import PartitionFacts
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec
from cordwood.format.crc32c import crc32c
from cordwood.format.leader_epoch_checkpoint import build_leader_epoch_checkpoint
from cordwood.format.producer_snapshot import build_producer_snapshot, parse_producer_snapshot
from cordwood.format.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    parse_batch,
)
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.format.transaction_index import build_transaction_index, parse_transaction_index
from cordwood.model.clock import FixedClock
from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.verification import verified
from cordwood.storage.filesystem import DirectoryLock, OsFileSystem
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.segments import message

PARTITION = TopicPartition("sound", 0)
IDEMPOTENT, COMMITTING, ABORTING = (1, 0), (7, 0), (8, 3)
#: Where the segments of the log begin, and where it ends.
SECOND, THIRD, END = 48, 96, 116


def sound_log() -> LogBuilder:
    """Three segments with everything that a log may hold, but for old messages."""
    log = LogBuilder(str(PARTITION), index_interval_bytes=150)
    for segment in range(2):
        for number in range(8):
            key = b"key-%d" % (number % 3)
            log.put(key, b"v" * 30, producer=IDEMPOTENT, timestamp=NOW_MS + log.next_offset)
        log.batch([(b"a", b"1"), (b"b", b"2"), (b"c", None)], codec=Codec.GZIP, timestamp=NOW_MS)
        log.put(b"t", b"3", producer=COMMITTING, transactional=True)
        log.put(b"t", b"4", producer=ABORTING, transactional=True)
        log.marker(COMMITTING, commit=True, coordinator_epoch=2)
        log.marker(ABORTING, commit=False, coordinator_epoch=2)
        for number in range(33):
            log.put(b"k%d" % number, b"w" * 40, timestamp=NOW_MS + 1_000 + log.next_offset)
        log.roll()
        if segment == 0:
            log.new_leader_epoch()
    assert [s.base_offset for s in log.segments] == [0, SECOND, THIRD]
    log.put(b"open", b"5", producer=COMMITTING, transactional=True)
    for number in range(19):
        log.put(b"tail-%d" % number, b"x" * 50, timestamp=NOW_MS + 2_000 + number)
    assert log.next_offset == END
    return log


@dataclass(slots=True)
class Place:
    """A sound log directory, to plant something in, and its topic's bound on a record."""

    root: Path
    record_bytes_max: int = RECORD_BYTES_MAX

    @property
    def log(self) -> Path:
        return self.root / str(PARTITION)

    def file(self, base: int, suffix: str) -> Path:
        return self.log / f"{base:020d}{suffix}"

    def verify(self) -> Verification:
        facts = PartitionFacts(record_bytes_max=self.record_bytes_max)
        return verify([self.root], clock=FixedClock(NOW_MS), facts_of=lambda _, __: facts)

    def findings(self) -> list[Finding]:
        result = self.verify()
        return [*result.findings, *(each for log in result.logs for each in log.findings)]

    # ---- plants

    def batch_at(self, base: int, number: int) -> tuple[int, bytes]:
        """(position, bytes) of a batch of a segment."""
        data = self.file(base, ".log").read_bytes()
        position, batch = list(iter_batches(data))[number]
        return position, data[position : position + batch.size_bytes]

    def put_batch(self, base: int, number: int, batch: bytes, *, sealed: bool = True) -> None:
        """Puts another batch in the place of one, with a right CRC if it is sealed."""
        path = self.file(base, ".log")
        data = path.read_bytes()
        position, old = self.batch_at(base, number)
        if sealed:
            crc = struct.pack(">I", crc32c(batch[21:]))
            batch = batch[:17] + crc + batch[21:]
        path.write_bytes(data[:position] + batch + data[position + len(old) :])

    def edit_batch(
        self, base: int, number: int, at: int, value: bytes, *, sealed: bool = True
    ) -> None:
        """Overwrites bytes of a batch."""
        _, batch = self.batch_at(base, number)
        batch = batch[:at] + value + batch[at + len(value) :]
        self.put_batch(base, number, batch, sealed=sealed)

    def edit(self, path: Path, at: int, value: bytes) -> None:
        """Overwrites bytes of a file; a negative place counts from the end."""
        data = bytearray(path.read_bytes())
        at = at % len(data)
        data[at : at + len(value)] = value
        path.write_bytes(bytes(data))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(write_log_dir(tmp_path / "data", [sound_log()]))


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _long(value: int) -> bytes:
    return struct.pack(">q", value)


# Each plant returns where it is to be found: the file, the byte in it, and the offset.
Where = tuple[Path, int | None, int | None]
Plant = Callable[[Place], Where]
PLANTS: dict[str, tuple[Rule, Plant]] = {}
#: The number of a batch of keys that stands alone, and how far its offset is above its number.
ALONE, SHIFT = 20, 2


def breaks(rule: Rule) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        PLANTS[plant.__name__] = rule, plant
        return plant

    return register


def in_batch(
    place: Place, at: int, value: bytes, *, number: int = ALONE, sealed: bool = True
) -> Where:
    """Overwrites bytes of a batch of the second segment."""
    position, batch = place.batch_at(SECOND, number)
    place.edit_batch(SECOND, number, at, value, sealed=sealed)
    return place.file(SECOND, ".log"), position, int.from_bytes(batch[:8], "big")


# ---- batches and records


@breaks(Rule.BATCH_LENGTH)
def a_length_that_is_too_small(place: Place) -> Where:
    return in_batch(place, 8, _int(5), sealed=False)


@breaks(Rule.BATCH_MAGIC)
def an_unknown_magic(place: Place) -> Where:
    return in_batch(place, 16, b"\x03", sealed=False)


@breaks(Rule.BATCH_CRC)
def a_flipped_bit_in_a_value(place: Place) -> Where:
    return in_batch(place, 80, b"?", sealed=False)


@breaks(Rule.BATCH_CRC)
def a_flipped_bit_in_the_last_offset_delta(place: Place) -> Where:
    return in_batch(place, 26, b"\x01", sealed=False)


@breaks(Rule.BATCH_COUNT)
def more_records_than_fit(place: Place) -> Where:
    return in_batch(place, 57, _int(900))


@breaks(Rule.BATCH_CUT_OFF)
def a_length_that_leads_beyond_the_segment(place: Place) -> Where:
    return in_batch(place, 8, _int(1 << 20), sealed=False)


@breaks(Rule.BATCH_CUT_OFF)
def a_log_that_was_cut(place: Place) -> Where:
    path = place.file(SECOND, ".log")
    position, batch = place.batch_at(SECOND, -1)
    path.write_bytes(path.read_bytes()[:-7])
    return path, position, int.from_bytes(batch[:8], "big")


@breaks(Rule.BATCH_LEGACY)
def an_old_message_that_is_damaged(place: Place) -> Where:
    position, _ = place.batch_at(SECOND, ALONE)
    old = bytearray(message(SECOND + ALONE + SHIFT, "old", timestamp=NOW_MS))
    old[-1] ^= 1
    place.put_batch(SECOND, ALONE, bytes(old), sealed=False)
    return place.file(SECOND, ".log"), position, None


@breaks(Rule.OFFSET_ORDER)
def an_offset_that_was_there_before(place: Place) -> Where:
    path, position, offset = in_batch(place, 0, _long(SECOND + ALONE + SHIFT - 1))
    return path, position, (offset or 0) - 1


@breaks(Rule.OFFSET_RANGE)
def an_offset_of_the_segment_before(place: Place) -> Where:
    path, position, _ = in_batch(place, 0, _long(5), number=0)
    return path, position, 5


@breaks(Rule.OFFSET_RANGE)
def an_offset_of_the_segment_behind(place: Place) -> Where:
    path, position, _ = in_batch(place, 0, _long(THIRD), number=-1)
    return path, position, THIRD


@breaks(Rule.MAX_TIMESTAMP)
def a_maximum_timestamp_that_no_record_has(place: Place) -> Where:
    return in_batch(place, 35, _long(NOW_MS + 5_000))


@breaks(Rule.RECORD_FORMAT)
def a_record_whose_length_is_too_large(place: Place) -> Where:
    return in_batch(place, HEADER_BYTES, b"\x7e")


@breaks(Rule.RECORD_FORMAT)
def a_header_that_the_record_counts_and_lacks(place: Place) -> Where:
    _, batch = place.batch_at(SECOND, ALONE)
    return in_batch(place, len(batch) - 1, b"\x02")


@breaks(Rule.RECORD_ORDER)
def records_that_do_not_ascend(place: Place) -> Where:
    offset = SECOND + ALONE + SHIFT
    position, _ = place.batch_at(SECOND, ALONE)
    good = build_batch(
        [Record(offset, NOW_MS, b"k1", b"v"), Record(offset + 1, NOW_MS, b"k2", b"v")],
        base_offset=offset,
        partition_leader_epoch=1,
    )
    # The offset delta of the second record: behind its length, attributes and timestamp delta.
    second = HEADER_BYTES + (len(good) - HEADER_BYTES) // 2
    bad = good[: second + 3] + b"\x00" + good[second + 4 :]
    place.put_batch(SECOND, ALONE, bad)
    place.edit_batch(SECOND, ALONE, 23, _int(1))
    data = place.file(SECOND, ".log").read_bytes()
    following = position + len(bad)
    place.file(SECOND, ".log").write_bytes(data[:following] + data[_end_of(data, following) :])
    return place.file(SECOND, ".log"), position, offset


def _end_of(data: bytes, position: int) -> int:
    return position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")


@breaks(Rule.RECORD_ORDER)
def a_record_beyond_its_batch(place: Place) -> Where:
    return in_batch(place, HEADER_BYTES + 3, b"\x02")


@breaks(Rule.RECORD_COUNT)
def bytes_behind_the_records(place: Place) -> Where:
    position, batch = place.batch_at(SECOND, ALONE)
    length = struct.pack(">i", len(batch) - 12 + 3)
    place.put_batch(SECOND, ALONE, batch[:8] + length + batch[12:] + b"\0\0\0")
    return place.file(SECOND, ".log"), position, SECOND + ALONE + SHIFT


@breaks(Rule.COMPRESSION)
def records_that_do_not_decompress(place: Place) -> Where:
    return in_batch(place, HEADER_BYTES, b"none", number=8)


@breaks(Rule.RECORD_SIZE)
def a_record_over_the_bound(place: Place) -> Where:
    position, raw = place.batch_at(SECOND, ALONE)
    batch = parse_batch(raw)
    assert isinstance(batch, RecordBatch)
    compressed = build_batch(
        batch.records(),
        base_offset=batch.base_offset,
        codec=Codec.GZIP,
        partition_leader_epoch=batch.header.partition_leader_epoch,
    )
    place.put_batch(SECOND, ALONE, compressed)
    place.record_bytes_max = 20
    return place.file(SECOND, ".log"), position, batch.base_offset


@breaks(Rule.CONTROL_BATCH)
def a_marker_of_an_unknown_type(place: Place) -> Where:
    _, batch = place.batch_at(SECOND, 11)
    return in_batch(place, batch.index(b"\0\0\0\1", HEADER_BYTES) + 3, b"\x09", number=11)


@breaks(Rule.CONTROL_BATCH)
def a_marker_without_a_transaction(place: Place) -> Where:
    return in_batch(place, 22, b"\x20", number=11)


@breaks(Rule.MARKER_ORDER)
def a_marker_of_an_older_epoch(place: Place) -> Where:
    return in_batch(place, 51, b"\0\x02", number=12)


@breaks(Rule.MARKER_ORDER)
def a_marker_of_an_older_coordinator(place: Place) -> Where:
    _, batch = place.batch_at(SECOND, 11)
    return in_batch(place, batch.index(_int(2), HEADER_BYTES), _int(1), number=11)


@breaks(Rule.SEQUENCE)
def a_sequence_that_does_not_follow(place: Place) -> Where:
    _, batch = place.batch_at(SECOND, 7)
    sequence = int.from_bytes(batch[53:57], "big")
    return in_batch(place, 53, _int(sequence + 1), number=7)


@breaks(Rule.SEQUENCE)
def an_older_epoch_of_a_producer(place: Place) -> Where:
    in_batch(place, 51, b"\0\x01", number=1)
    in_batch(place, 53, _int(0), number=1)
    return in_batch(place, 51, b"\0\0", number=2)


@breaks(Rule.MARKER_MISSING)
def a_transaction_that_begins_while_another_is_open(place: Place) -> Where:
    log = LogBuilder(str(PARTITION))
    log.put(b"k", b"v", producer=ABORTING, transactional=True)
    log.put(b"k", b"v", producer=(ABORTING[0], ABORTING[1] + 1), transactional=True)
    shutil.rmtree(place.root)
    write_log_dir(place.root, [log])
    _, first = place.batch_at(0, 0)
    return place.file(0, ".log"), len(first), 1


def _without(place: Place, base: int, *numbers: int) -> None:
    """Removes batches of a segment, with indexes of what is left."""
    path = place.file(base, ".log")
    data = path.read_bytes()
    left = [each for n, each in enumerate(iter_batches(data)) if n not in numbers]
    path.write_bytes(b"".join(data[at : at + batch.size_bytes] for at, batch in left))
    place.file(base, ".index").write_bytes(b"")
    newest = max((batch for _, batch in left), key=lambda batch: batch.max_timestamp)
    place.file(base, ".timeindex").write_bytes(
        _long(newest.max_timestamp) + _int(newest.last_offset - base)
    )


@breaks(Rule.OFFSETS_MISSING)
def a_batch_that_was_cut_out(place: Place) -> Where:
    position, batch = place.batch_at(SECOND, ALONE)
    _without(place, SECOND, ALONE)
    return place.file(SECOND, ".log"), position, int.from_bytes(batch[:8], "big")


@breaks(Rule.OFFSETS_MISSING)
def a_closed_segment_that_was_cut_between_batches(place: Place) -> Where:
    position, batch = place.batch_at(0, -1)
    _without(place, 0, len(list(iter_batches(place.file(0, ".log").read_bytes()))) - 1)
    return place.file(0, ".log"), position, int.from_bytes(batch[:8], "big")


@breaks(Rule.OFFSETS_MISSING)
def a_segment_that_is_gone(place: Place) -> Where:
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        place.file(SECOND, suffix).unlink()
    return place.file(0, ".log"), place.file(0, ".log").stat().st_size, SECOND


@breaks(Rule.OFFSETS_MISSING)
def a_first_segment_that_is_gone(place: Place) -> Where:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        place.file(0, suffix).unlink()
    return place.file(SECOND, ".log"), None, 0


@breaks(Rule.LOG_MISSING)
def a_log_that_is_gone_while_its_indexes_stay(place: Place) -> Where:
    place.file(SECOND, ".log").unlink()
    return place.file(SECOND, ".log"), None, SECOND


@breaks(Rule.PRODUCER_MISSING)
def a_last_batch_that_no_compaction_takes(place: Place) -> Where:
    path = place.root / "cleaner-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {THIRD}\n")
    os.utime(path, ns=(NOW_MS * 1_000_000,) * 2)
    # The last batch of the idempotent producer.
    _, batch = place.batch_at(SECOND, 7)
    _without(place, SECOND, 7)
    place.file(THIRD, ".snapshot").unlink()
    return place.file(THIRD, ".log"), None, int.from_bytes(batch[:8], "big")


# ---- indexes


@breaks(Rule.INDEX_MISSING)
def a_missing_offset_index(place: Place) -> Where:
    place.file(SECOND, ".index").unlink()
    return place.file(SECOND, ".index"), None, None


@breaks(Rule.INDEX_SIZE)
def a_time_index_that_was_cut(place: Place) -> Where:
    path = place.file(SECOND, ".timeindex")
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    return path, len(data) - 12, None


@breaks(Rule.OFFSET_INDEX_ORDER)
def offsets_that_do_not_ascend(place: Place) -> Where:
    place.edit(place.file(SECOND, ".index"), 8, _int(1))
    return place.file(SECOND, ".index"), 8, None


@breaks(Rule.OFFSET_INDEX_ENTRY)
def a_position_where_no_batch_begins(place: Place) -> Where:
    path = place.file(SECOND, ".index")
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 16)
    place.edit(path, 20, _int(position + 1))
    return path, 16, SECOND + offset


@breaks(Rule.OFFSET_INDEX_ENTRY)
def an_offset_of_a_batch_that_is_not_there(place: Place) -> Where:
    path = place.file(SECOND, ".index")
    offset, _ = struct.unpack_from(">ii", path.read_bytes(), 16)
    place.edit(path, 16, _int(offset - 1))
    return path, 16, SECOND + offset - 1


@breaks(Rule.OFFSET_INDEX_BEYOND)
def an_entry_beyond_the_log(place: Place) -> Where:
    path = place.file(SECOND, ".index")
    data = path.read_bytes()
    path.write_bytes(data + _int(60) + _int(1 << 20))
    return path, len(data), SECOND + 60


@breaks(Rule.TIME_INDEX_ORDER)
def timestamps_that_do_not_ascend(place: Place) -> Where:
    place.edit(place.file(SECOND, ".timeindex"), 24, _long(NOW_MS))
    return place.file(SECOND, ".timeindex"), 24, None


@breaks(Rule.TIME_INDEX_ENTRY)
def a_timestamp_that_no_batch_has(place: Place) -> Where:
    path = place.file(SECOND, ".timeindex")
    last = len(path.read_bytes()) - 12
    timestamp, offset = struct.unpack_from(">qi", path.read_bytes(), last)
    place.edit(path, last, _long(timestamp + 1))
    return path, last, SECOND + offset


@breaks(Rule.TIME_INDEX_BEYOND)
def a_time_beyond_the_log(place: Place) -> Where:
    path = place.file(THIRD, ".timeindex")
    data = path.read_bytes()
    path.write_bytes(data + _long(NOW_MS + 9_000) + _int(END - THIRD + 3))
    return path, len(data), END + 3


@breaks(Rule.TXN_INDEX_FORMAT)
def a_transaction_index_that_was_cut(place: Place) -> Where:
    path = place.file(SECOND, ".txnindex")
    path.write_bytes(path.read_bytes()[:-1])
    return path, None, None


@breaks(Rule.TXN_INDEX_ENTRY)
def an_aborted_transaction_without_a_marker(place: Place) -> Where:
    path = place.file(SECOND, ".txnindex")
    (entry,) = parse_transaction_index(path.read_bytes())
    more = replace(entry, last_offset=entry.last_offset + 3)
    path.write_bytes(build_transaction_index([entry, more]))
    return path, 34, entry.last_offset + 3


@breaks(Rule.TXN_INDEX_ENTRY)
def an_aborted_transaction_that_begins_too_late(place: Place) -> Where:
    path = place.file(SECOND, ".txnindex")
    (entry,) = parse_transaction_index(path.read_bytes())
    path.write_bytes(build_transaction_index([replace(entry, first_offset=entry.last_offset)]))
    return path, 0, entry.last_offset


@breaks(Rule.TXN_INDEX_ENTRY)
def a_wrong_last_stable_offset(place: Place) -> Where:
    path = place.file(SECOND, ".txnindex")
    (entry,) = parse_transaction_index(path.read_bytes())
    path.write_bytes(build_transaction_index([replace(entry, last_stable_offset=3)]))
    return path, 0, entry.last_offset


@breaks(Rule.TXN_INDEX_MISSING)
def an_aborted_transaction_that_is_not_listed(place: Place) -> Where:
    path = place.file(SECOND, ".txnindex")
    (entry,) = parse_transaction_index(path.read_bytes())
    path.unlink()
    return path, None, entry.last_offset


# ---- beside the segments


@breaks(Rule.SNAPSHOT_FORMAT)
def a_flipped_bit_in_a_snapshot(place: Place) -> Where:
    path = place.file(THIRD, ".snapshot")
    place.edit(path, 20, b"?")
    return path, 2, None


def _changed_snapshot(place: Place, base: int, **change: int) -> Where:
    path = place.file(base, ".snapshot")
    first, *rest = parse_producer_snapshot(path.read_bytes())
    path.write_bytes(build_producer_snapshot([replace(first, **change), *rest]))
    return path, None, base


@breaks(Rule.SNAPSHOT_CONTENT)
def a_sequence_that_was_not_written(place: Place) -> Where:
    return _changed_snapshot(place, THIRD, last_sequence=77)


@breaks(Rule.SNAPSHOT_CONTENT)
def an_epoch_that_was_not_written(place: Place) -> Where:
    return _changed_snapshot(place, THIRD, producer_epoch=5)


@breaks(Rule.SNAPSHOT_CONTENT)
def an_open_transaction_that_is_not_open(place: Place) -> Where:
    return _changed_snapshot(place, THIRD, current_txn_first_offset=50)


@breaks(Rule.SNAPSHOT_CONTENT)
def an_open_transaction_that_is_missing(place: Place) -> Where:
    path = place.file(END, ".snapshot")
    entries = parse_producer_snapshot(path.read_bytes())
    assert any(each.current_txn_first_offset >= 0 for each in entries)
    settled = [each for each in entries if each.current_txn_first_offset < 0]
    path.write_bytes(build_producer_snapshot(settled))
    return path, None, END


@breaks(Rule.SNAPSHOT_CONTENT)
def a_batch_of_the_future(place: Place) -> Where:
    # Its log is not compared any more: it begins with that snapshot.
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        place.file(0, suffix).unlink()
    _epochs(place, (1, SECOND))
    return _changed_snapshot(place, SECOND, last_offset=SECOND + 2)


@breaks(Rule.EPOCHS_FORMAT)
def leader_epochs_of_an_unknown_version(place: Place) -> Where:
    path = place.log / "leader-epoch-checkpoint"
    path.write_text("0\nmany\n")
    return path, None, None


def _epochs(place: Place, *entries: tuple[int, int]) -> Path:
    path = place.log / "leader-epoch-checkpoint"
    path.write_bytes(build_leader_epoch_checkpoint(entries))
    return path


@breaks(Rule.EPOCHS_ORDER)
def leader_epochs_that_do_not_ascend(place: Place) -> Where:
    return _epochs(place, (0, 0), (1, SECOND), (2, SECOND - 1)), None, SECOND - 1


@breaks(Rule.EPOCHS_CONTENT)
def a_leader_epoch_that_begins_too_late(place: Place) -> Where:
    return _epochs(place, (0, 0), (1, SECOND + 10)), None, SECOND


@breaks(Rule.EPOCHS_CONTENT)
def a_leader_epoch_beyond_the_log(place: Place) -> Where:
    return _epochs(place, (0, 0), (1, SECOND), (2, END + 1)), None, END + 1


@breaks(Rule.PARTITION_METADATA)
def a_topic_id_that_is_none(place: Place) -> Where:
    path = place.log / "partition.metadata"
    path.write_text("version: 0\ntopic_id: ?")
    return path, None, None


@breaks(Rule.PARTITION_METADATA)
def a_topic_id_that_is_not_there(place: Place) -> Where:
    path = place.log / "partition.metadata"
    path.unlink()
    return path, None, None


@breaks(Rule.META_PROPERTIES)
def an_identity_that_is_not_there(place: Place) -> Where:
    path = place.root / "meta.properties"
    path.unlink()
    return path, None, None


@breaks(Rule.CHECKPOINT_FORMAT)
def a_checkpoint_that_is_no_text(place: Place) -> Where:
    path = place.root / "cleaner-offset-checkpoint"
    path.write_bytes(b"\xff\xfe")
    return path, 0, None


@breaks(Rule.CHECKPOINT_BOUNDS)
def a_recovery_point_beyond_the_log(place: Place) -> Where:
    path = place.root / "recovery-point-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {END + 1}\n")
    return path, None, END + 1


@breaks(Rule.CHECKPOINT_BOUNDS)
def a_high_watermark_beyond_the_log(place: Place) -> Where:
    path = place.root / "replication-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {END + 1}\n")
    return path, None, END + 1


@breaks(Rule.CHECKPOINT_BOUNDS)
def a_log_start_beyond_the_log(place: Place) -> Where:
    path = place.root / "log-start-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {END + 1}\n")
    return path, None, END + 1


@breaks(Rule.CHECKPOINT_BOUNDS)
def a_clean_section_beyond_the_log(place: Place) -> Where:
    path = place.root / "cleaner-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {END + 1}\n")
    return path, None, END + 1


@breaks(Rule.UNREADABLE)
def a_link_that_leads_nowhere(place: Place) -> Where:
    path = place.root / "gone-0"
    path.symlink_to(place.root / "nowhere")
    return path, None, None


# ---- no damage


@breaks(Rule.OFFSETS_UNKNOWN)
def a_gap_that_a_compaction_may_have_left(place: Place) -> Where:
    path = place.root / "cleaner-offset-checkpoint"
    path.write_text(f"0\n1\nsound 0 {THIRD}\n")
    _, batch = place.batch_at(SECOND, ALONE)
    _without(place, SECOND, ALONE)
    return place.log, None, int.from_bytes(batch[:8], "big")


@breaks(Rule.TORN_TAIL)
def a_tail_that_a_crash_has_torn(place: Place) -> Where:
    (place.root / ".kafka_cleanshutdown").unlink()
    path = place.file(THIRD, ".log")
    data = path.read_bytes()
    path.write_bytes(data + place.batch_at(THIRD, -1)[1][:40])
    return path, len(data), END


@breaks(Rule.UNFINISHED_WORK)
def a_cleaned_file(place: Place) -> Where:
    path = place.file(0, ".log.cleaned")
    path.write_bytes(b"half")
    return path, None, None


@breaks(Rule.UNFINISHED_WORK)
def a_swapped_index(place: Place) -> Where:
    path = place.file(0, ".index.swap")
    path.write_bytes(b"")
    return path, None, None


@breaks(Rule.UNFINISHED_WORK)
def a_staged_file(place: Place) -> Where:
    path = place.file(0, ".log.abcd.staged")
    path.write_bytes(b"")
    return path, None, None


@breaks(Rule.UNFINISHED_WORK)
def a_journal_of_a_compaction(place: Place) -> Where:
    path = place.log / "cordwood.round"
    path.write_bytes(b"{}\n")
    return path, None, None


@breaks(Rule.ORPHANED_INDEX)
def an_index_without_a_log(place: Place) -> Where:
    path = place.file(7, ".index")
    path.write_bytes(b"")
    return path, None, None


@breaks(Rule.DELETED_FILE)
def a_file_that_is_about_to_be_removed(place: Place) -> Where:
    path = place.file(0, ".log.deleted")
    path.write_bytes(b"")
    return path, None, None


# ---- the tests


def test_a_sound_log_gives_no_finding(place: Place) -> None:
    result = place.verify()
    assert [str(each) for log in result.logs for each in log.findings] == []
    assert result.is_sound
    (log,) = result.logs
    assert log.facts is not None
    assert (log.facts.segments, log.facts.log_end_offset) == (3, END)
    assert log.facts.records == END


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_plant_gives_that_finding_alone(place: Place, name: str) -> None:
    rule, plant = PLANTS[name]
    where = plant(place)
    found = place.findings()
    if rule is Rule.PRODUCER_MISSING:
        # Of the offset itself it cannot be told.
        assert found.pop().rule is Rule.OFFSETS_UNKNOWN
    assert [each.rule for each in found] == [rule], [str(each) for each in found]
    (finding,) = found
    assert (Path(finding.path), finding.position, finding.offset) == where
    assert finding.reason
    assert finding.rule.remedy
    assert place.verify().is_sound == (rule.level is not Level.DAMAGED)


def test_every_rule_of_a_log_is_planted() -> None:
    of_logs = {rule for rule in Rule if not rule.code.startswith(("cleaning-", "copy-"))}
    assert {rule for rule, _ in PLANTS.values()} == of_logs


def test_damage_hides_no_other_damage_behind_it(place: Place) -> None:
    first = a_flipped_bit_in_a_value(place)
    second = in_batch(place, 80, b"!", number=ALONE + 5, sealed=False)
    found = place.findings()
    assert [(each.rule, each.position) for each in found] == [
        (Rule.BATCH_CRC, first[1]),
        (Rule.BATCH_CRC, second[1]),
    ]


@pytest.mark.parametrize("which", ["before", "after", "before-2", "after-2"])
def test_logs_of_a_real_kafka_are_sound(golden_a: Golden, which: str) -> None:
    result = verify([golden_a.root / which], clock=FixedClock(NOW_MS))
    found = [*result.findings, *(each for log in result.logs for each in log.findings)]
    assert [str(each) for each in found if each.rule is not Rule.OFFSETS_UNKNOWN] == []
    # Nothing had been compacted before the first cleaning.
    assert bool(found) == (which != "before")
    assert len([log for log in result.logs if log.facts]) > 25


def without_last_time(root: Path, name: str, *, is_closed: bool) -> list[Rule]:
    """The findings where a time index is as a broker that was killed leaves it."""
    log = LogBuilder(name)
    for number in range(2):
        log.put(b"k", b"v", timestamp=NOW_MS + number)
        if number == 0:
            log.roll()
    write_log_dir(root, [log])
    index = root / name / f"{0 if is_closed else 1:020d}.timeindex"
    assert len(index.read_bytes()) == 12
    index.write_bytes(bytes(10 * 12))
    result = verify([root], clock=FixedClock(NOW_MS))
    return [each.rule for log in result.logs for each in log.findings]


def test_a_kafka_does_not_close_the_metadata_log_when_it_stops(tmp_path: Path) -> None:
    metadata = "__cluster_metadata-0"
    assert without_last_time(tmp_path / "a", metadata, is_closed=False) == []
    bad = [Rule.TIME_INDEX_ENTRY]
    assert without_last_time(tmp_path / "b", metadata, is_closed=True) == bad
    assert without_last_time(tmp_path / "c", "sound-0", is_closed=False) == bad


@pytest.mark.parametrize("mark", ["stray", "future"])
def test_a_marked_directory_beside_its_partition_is_not_held_to_the_partitions_lines(
    place: Place, mark: str
) -> None:
    shorter = LogBuilder(str(PARTITION))
    shorter.put(b"k", b"v")
    shorter.write(place.root / f"{PARTITION}.0123456789abcdef0123456789abcdef-{mark}")
    for name in ("replication", "recovery-point", "cleaner"):
        (place.root / f"{name}-offset-checkpoint").write_text("0\n1\nsound 0 3\n")
    assert [str(each) for each in place.findings()] == []
    assert len(place.verify().logs) == 2


def test_a_log_start_that_a_killed_broker_has_not_written_yet_is_no_damage(place: Place) -> None:
    (place.root / ".kafka_cleanshutdown").unlink()
    _epochs(place, (0, 10), (1, SECOND))
    assert place.findings() == []


def test_a_partition_can_be_named_alone(place: Place) -> None:
    result = verify([place.log], clock=FixedClock(NOW_MS))
    assert [log.partition for log in result.logs] == [PARTITION]
    assert result.is_sound


def test_a_glob_chooses_topics(place: Place) -> None:
    a_flipped_bit_in_a_value(place)
    assert not verify([place.root], topics=["so*"], clock=FixedClock(NOW_MS)).is_sound
    with pytest.raises(ConfigError, match="matches --topic other; there is so"):
        verify([place.root], topics=["other"], clock=FixedClock(NOW_MS))


#: The size of a page, which is no multiple of an entry's.
CUT_AT = 4096


class CuttingFiles(OsFileSystem):
    """A broker cuts an index when it is read: the reader gets the pages before it noticed."""

    def __init__(self, index: Path) -> None:
        self._index = index

    def read_bytes(self, path: Path) -> bytes:
        data = super().read_bytes(path)
        if path != self._index or len(data) < CUT_AT:
            return data
        path.write_bytes(data.rstrip(b"\0"))
        return data[:CUT_AT]


def test_an_index_that_is_cut_while_it_is_read_is_read_again(place: Place) -> None:
    index = place.file(SECOND, ".timeindex")
    whole = index.read_bytes()
    assert not whole.endswith(b"\0")
    index.write_bytes(whole.ljust(12 * 1000, b"\0"))
    lock = DirectoryLock(place.root)
    try:
        result = verify([place.root], clock=FixedClock(NOW_MS), fs=CuttingFiles(index))
    finally:
        lock.release()
    assert [str(each) for log in result.logs for each in log.findings] == []
    assert index.read_bytes() == whole


def test_a_torn_tail_of_a_directory_in_use_is_a_write_under_way(place: Place) -> None:
    path = place.file(THIRD, ".log")
    path.write_bytes(path.read_bytes() + b"\0\0\0\0")
    lock = DirectoryLock(place.root)
    try:
        result = place.verify()
    finally:
        lock.release()
    assert [each.log_dir for each in result.in_use] == [str(place.root)]
    assert [each.rule for log in result.logs for each in log.findings] == [Rule.TORN_TAIL]
    assert result.is_sound
    assert {each.log_dir for each in verified(result).not_checked} == {str(place.root)}
