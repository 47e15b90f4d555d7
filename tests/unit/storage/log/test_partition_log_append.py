"""Appends: acceptance and refusal (UnifiedLogTest)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.format.batch_header import LOG_APPEND_TIME
from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from support.log_under_test import (
    Producer,
    bases,
    batches_read,
    catch_up,
    fetch,
    follow,
    new_log,
    offsets_read,
    records_read,
    state_of,
)
from support.stored_log import batch_of, put, records_in

KEYED = (b"and here it is", b"this message has a key")
UNKEYED = (None, b"this message does not have a key")

ABC = batch_of(b"a", b"b", b"c", key=b"k")


def of(*records: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [Record(n, -1, key, value) for n, (key, value) in enumerate(records)],
        base_offset=0,
        codec=codec,
    )


# ---- offsets


def test_the_first_offset_of_an_append_is_the_logs_end_also_after_a_roll(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert log.append_as_leader(ABC).first_offset == 0
    assert log.append_as_leader(ABC).first_offset == 3
    log.roll()
    result = log.append_as_leader(ABC)
    assert (result.first_offset, result.last_offset, result.record_count) == (6, 8, 3)
    assert log.log_end_offset == 9


def test_a_raft_leader_appends_at_the_logs_end_alone(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    def raft(offset: int) -> bytes:
        return batch_of(b"a", b"b", b"c", base_offset=offset, leader_epoch=0)

    log.append_as_leader(raft(0), origin=AppendOrigin.RAFT_LEADER)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    before = state_of(log)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_leader(raft(1), origin=AppendOrigin.RAFT_LEADER)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_leader(raft(4), origin=AppendOrigin.RAFT_LEADER)
    assert state_of(log) == before
    log.append_as_leader(raft(3), origin=AppendOrigin.RAFT_LEADER)
    assert log.log_end_offset == 6


def test_a_followers_offsets_0_1_3_2_4_are_out_of_order(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    batches = [batch_of(b"v", base_offset=offset) for offset in (0, 1, 3, 2, 4)]
    before = state_of(log)
    with pytest.raises(OffsetsOutOfOrderError, match="Out of order offsets found in append to t-0"):
        follow(log, *batches)
    assert state_of(log) == before


def in_old_and_new_formats(first: int, *values: bytes) -> list[tuple[str, list[bytes]]]:
    """The same records as batches of each magic, plain and compressed."""
    records = [Record(first + n, 1, b"k", value) for n, value in enumerate(values)]
    forms = []
    for magic in (0, 1):
        plain = [
            build_legacy_message(
                offset=r.offset, magic=magic, key=r.key, value=r.value, timestamp=r.timestamp
            )
            for r in records
        ]
        forms.append((f"magic {magic}", plain))
        packed = build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP)
        forms.append((f"magic {magic} gzip", [packed]))
    forms.extend(
        (f"magic 2 {codec.name}", [build_batch(records, base_offset=first, codec=codec)])
        for codec in (Codec.NONE, Codec.LZ4)
    )
    return forms


@pytest.mark.parametrize(
    ("form", "batches"), in_old_and_new_formats(0, b"1"), ids=lambda v: v if type(v) is str else ""
)
def test_a_follower_refuses_what_begins_below_the_logs_end(
    tmp_path: Path, form: str, batches: list[bytes]
) -> None:
    log = new_log(tmp_path)
    put(log, b"0")
    put(log, b"1")
    before = state_of(log)
    with pytest.raises(UnexpectedAppendOffsetError, match="less than the next offset 2"):
        follow(log, *batches)
    assert state_of(log) == before, form


@pytest.mark.parametrize(
    ("form", "batches"),
    in_old_and_new_formats(4, b"v1", b"v2", b"v3"),
    ids=lambda v: v if type(v) is str else "",
)
def test_an_empty_log_at_7_refuses_4_to_6_and_says_so(
    tmp_path: Path, form: str, batches: list[bytes]
) -> None:
    log = empty_log_at(tmp_path, 7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    with pytest.raises(UnexpectedAppendOffsetError) as refused:
        follow(log, *batches)
    assert (refused.value.first_offset, refused.value.last_offset) == (4, 6), form
    assert log.log_end_offset == 7


def empty_log_at(tmp_path: Path, offset: int) -> PartitionLog:
    """A log whose only segment begins there, as files that somebody has made by hand."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for suffix in ("log", "index"):
        (directory / f"{offset:020d}.{suffix}").touch()
    return new_log(tmp_path)


def test_the_first_batch_of_an_empty_follower_may_begin_below_its_log_start(
    tmp_path: Path,
) -> None:
    # Records were deleted on the leader inside the batch 5..9: log start 7 (KAFKA-7802).
    log = empty_log_at(tmp_path, 7)
    follow(log, batch_of(b"5", b"6", b"7", b"8", b"9", base_offset=5, leader_epoch=0))
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)
    assert bases(log) == (5,)
    assert log.high_watermark == 7, "never below the log start"
    assert offsets_read(fetch(log, 7)) == [5, 6, 7, 8, 9]


def test_a_compressed_set_of_magic_1_rolls_at_the_logs_end_not_at_its_last_record(
    tmp_path: Path,
) -> None:
    sets = [
        build_legacy_wrapper(
            [Record(first + n, 1, b"k", b"v") for n in range(3)], magic=1, codec=Codec.GZIP
        )
        for first in (0, 3)
    ]
    log = new_log(tmp_path, segment_bytes=len(sets[0]))
    for data in sets:
        follow(log, data)
    assert bases(log) == (0, 3)
    assert log.log_end_offset == 6
    for offset in (3, 4, 5):
        assert fetch(log, offset).read() == sets[1]


def test_a_log_with_two_empty_files_is_loaded_and_appended_to(tmp_path: Path) -> None:
    log = empty_log_at(tmp_path, 0)
    assert put(log, b"test").first_offset == 0


# ---- sizes


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    batch = of((None, b"You"), (None, b"bethe"))
    log = new_log(tmp_path, segment_bytes=len(batch) - 1)
    before = state_of(log)
    with pytest.raises(RecordBatchTooLargeError, match="exceeds the maximum configured segment"):
        log.append_as_leader(batch)
    assert state_of(log) == before
    assert RecordBatchTooLargeError.code == 18


def test_a_batch_larger_than_max_message_bytes_is_refused_of_a_client(tmp_path: Path) -> None:
    small = of((None, b"You"), (None, b"bethe"))
    large = of((None, b"change (I need more bytes)... blah blah"), (None, b"More padding boo hoo"))
    log = new_log(tmp_path, max_message_bytes=len(large) - 1)
    log.append_as_leader(small)
    before = state_of(log)
    with pytest.raises(RecordTooLargeError):
        log.append_as_leader(large)
    assert state_of(log) == before
    assert RecordTooLargeError.code == 10


def test_a_batch_of_just_max_message_bytes_is_taken(tmp_path: Path) -> None:
    batch = of((None, b"You"), (None, b"bethe"))
    log = new_log(tmp_path, max_message_bytes=len(batch))
    assert log.append_as_leader(batch).last_offset == 1


def test_a_batch_larger_than_max_message_bytes_is_taken_of_a_leader(tmp_path: Path) -> None:
    small = batch_of(b"You", b"bethe", leader_epoch=0)
    large = batch_of(b"change (I need more bytes)", b"padding", base_offset=5, leader_epoch=0)
    log = new_log(tmp_path, max_message_bytes=len(large) - 1)
    follow(log, small)
    assert follow(log, large).last_offset == 6


# ---- records


@pytest.mark.parametrize(
    ("batch", "index"),
    [
        (of(UNKEYED, KEYED), 0),
        (of(UNKEYED), 0),
        (of(KEYED, UNKEYED, codec=Codec.GZIP), 1),
    ],
    ids=["first of two", "only one", "second of two, compressed"],
)
def test_a_compacted_topic_refuses_records_without_key_and_says_which(
    tmp_path: Path, batch: bytes, index: int
) -> None:
    log = new_log(tmp_path, cleanup_policy="compact")
    before = state_of(log)
    with pytest.raises(RecordValidationError) as refused:
        log.append_as_leader(batch)
    assert isinstance(refused.value.cause, InvalidRecordError)
    assert refused.value.code == 87
    (error,) = refused.value.record_errors
    assert error.index == index
    assert error.message.startswith("Compacted topic cannot accept message without key")
    assert log.context.metrics.no_key_compacted_topic_records == 1
    assert state_of(log) == before


@pytest.mark.parametrize(
    "batch",
    [
        of(KEYED),
        of(KEYED, (b"another key", b"this message also has a key")),
        of(KEYED, codec=Codec.GZIP),
    ],
)
def test_a_compacted_topic_takes_records_with_keys(tmp_path: Path, batch: bytes) -> None:
    log = new_log(tmp_path, cleanup_policy="compact")
    assert log.append_as_leader(batch).first_offset == 0
    assert log.context.metrics.no_key_compacted_topic_records == 0


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", ""])
def test_a_null_value_is_taken_under_any_policy(tmp_path: Path, policy: str) -> None:
    log = new_log(tmp_path, cleanup_policy=policy)
    put(log, None, key=b"k")
    (record,) = records_read(fetch(log, 0))
    assert (record.offset, record.key, record.value) == (0, b"k", None)


def test_a_record_without_timestamp_is_taken(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    result = put(log, b"value", key=b"key", timestamp=-1)
    assert (result.max_timestamp, result.log_append_time_ms) == (-1, -1)
    assert records_read(fetch(log, 0))[0].timestamp == -1


def test_with_log_append_time_the_result_says_the_time(tmp_path: Path) -> None:
    log = new_log(tmp_path, message_timestamp_type=LOG_APPEND_TIME)
    now = log.context.clock.now_ms()
    result = put(log, b"value", timestamp=now - 5)
    assert (result.log_append_time_ms, result.max_timestamp) == (now, now)
    assert records_read(fetch(log, 0))[0].timestamp == now


def test_an_append_of_nothing_changes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v")
    before = state_of(log)
    for nothing in (b"", ABC[:-1], ABC[:11]):
        result = log.append_as_leader(nothing)
        assert (result.first_offset, result.last_offset, result.size_bytes) == (-1, -1, 0)
        assert follow(log, nothing).first_offset == -1
    assert state_of(log) == before


def test_a_followers_partial_batch_at_the_end_is_left_out(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = (batch_of(b"v", base_offset=n, leader_epoch=0) for n in (0, 1))
    assert follow(log, first, second[:-1]).last_offset == 0
    assert log.log_end_offset == 1
    assert follow(log, second).last_offset == 1


# ---- leader epochs


def test_a_leaders_epoch_is_stamped_on_every_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.assign_epoch(72, 50)
    for number in range(50):
        put(log, b"%d" % number, leader_epoch=72)
    assert [b.header.partition_leader_epoch for b in batches_read(fetch(log, 0))] == [72] * 50


def test_a_follower_learns_epochs_from_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in range(50):
        follow(log, batch_of(b"v", base_offset=offset, leader_epoch=42))
    assert log.leader_epochs.latest_epoch == 42
    assert log.leader_epochs.epoch_entries == ((42, 0),)


def test_a_follower_leaves_out_batches_of_a_higher_epoch_than_its_own(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    epochs = (1, 2, 3, 2)
    batches = [batch_of(b"v", base_offset=n, leader_epoch=e) for n, e in enumerate(epochs)]
    assert follow(log, *batches, leader_epoch=2).last_offset == 1
    assert log.log_end_offset == 2
    assert log.leader_epochs.epoch_entries == ((1, 0), (2, 1))
    assert follow(log, *batches[2:], leader_epoch=2).last_offset == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_makes_the_log_forget_its_epochs(
    tmp_path: Path, magic: int
) -> None:
    log = new_log(tmp_path)
    put(log, b"foo", leader_epoch=5)
    assert log.leader_epochs.latest_entry == (5, 0)
    follow(log, build_legacy_message(offset=1, magic=magic, key=None, value=b"foo", timestamp=3))
    assert not log.leader_epochs.non_empty
    checkpoint = log.directory / "leader-epoch-checkpoint"
    assert checkpoint.read_bytes() == b"0\n0\n"
    follow(log, batch_of(b"foo", base_offset=2, leader_epoch=6))
    assert log.leader_epochs.epoch_entries == ((6, 2),)


# ---- several producers in one append


def mixed(producers: Sequence[tuple[int, int]]) -> list[bytes]:
    """A batch of a record for each (producer id, sequence)."""
    return [
        batch_of(b"value", key=b"key", base_offset=n, producer=(pid, 0, seq), leader_epoch=0)
        for n, (pid, seq) in enumerate(producers)
    ]


def test_a_follower_takes_batches_of_several_producers_in_one_append(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    batches = mixed([(1, 0), (2, 0), (3, 0), (4, 0)])
    follow(log, *batches)
    log.flush(force_active=False)
    read = batches_read(fetch(log, 0))
    assert b"".join(bytes(batch.raw) for batch in read) == b"".join(batches)
    assert [batch.header.producer_id for batch in read] == [1, 2, 3, 4]


def test_a_follower_takes_duplicates_within_one_append(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    follow(log, *mixed([(1, 0), (2, 0), (1, 1), (2, 1), (1, 1)]))
    assert log.log_end_offset == 5


# ---- a directory that is offline


def test_when_the_directory_is_offline_everything_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, None)
    catch_up(log)
    assert offsets_read(fetch(log, 0)) == [0]
    log.context.failures.fail(tmp_path, "the disk is gone")
    before = state_of(log)
    for work in (
        lambda: put(log, None),
        lambda: follow(log, batch_of(b"v", base_offset=1, leader_epoch=0)),
        lambda: fetch(log, 0),
        lambda: log.reader.list_offset(-1),
        lambda: log.reader.list_offset(0),
        log.roll,
        log.flush,
        lambda: truncate_to(log, 0),
        lambda: truncate_fully_and_start_at(log, 0),
        lambda: log.delete_records(1),
        lambda: delete_segments(log, 1, reason="test"),
        lambda: log.assign_epoch(9),
        lambda: log.rename_directory(tmp_path / "u-0"),
        log.delete,
        log.close,
    ):
        with pytest.raises(StorageError, match="already offline due to a previous IO exception"):
            work()
    assert state_of(log) == before
    assert (tmp_path / "t-0").exists()
    assert StorageError.code == 56


def test_a_marker_that_cannot_be_indexed_takes_the_directory_offline(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, None)
    producer = Producer(log, 1)
    producer.append(10)
    (log.directory / "00000000000000000000.txnindex").mkdir()
    with pytest.raises(StorageError):
        producer.end(commit=False, coordinator_epoch=1)
    for work in (lambda: put(log, None), lambda: fetch(log, 0)):
        with pytest.raises(StorageError, match="already offline"):
            work()


def test_after_handlers_are_closed_nothing_is_rolled_or_appended(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v")
    records = records_in(log)
    log.close_handlers()
    log.close_handlers()
    for work in (lambda: log.roll(1), lambda: put(log, b"w"), lambda: truncate_to(log, 0)):
        with pytest.raises(StorageError, match="already closed"):
            work()
    assert records_in(new_log(tmp_path)) == records


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v")
    log.close()
    files = sorted(path.name for path in log.directory.iterdir())
    log.close()
    assert sorted(path.name for path in log.directory.iterdir()) == files
    with pytest.raises(StorageError, match="already closed"):
        put(log, b"w")
