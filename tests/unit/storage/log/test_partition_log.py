"""Flushes, files and names of a log: the rest of UnifiedLogTest and LocalLogTest."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import INDEX_SUFFIX, LOG_SUFFIX, PARTITION_METADATA
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.record_batch import iter_batches
from cordwood.model.errors import ImpossibleOffsetError
from cordwood.model.kafka_errors import InconsistentTopicIdError, StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.filesystem import OS
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.segment.segment_split import split_overflowed
from cordwood.testing.manual_clock import ManualClock
from support.log_under_test import (
    Producer,
    bases,
    fetch,
    last_sequences,
    names_with,
    new_log,
    offsets_read,
    remove_snapshots,
    snapshot_offsets,
    state_of,
)
from support.stored_log import batch_of, put, records_in

TOPIC_ID = parse_uuid("b3JkZXJzAAAAAAAAAAAAAQ")
OTHER_ID = parse_uuid("b3RoZXItdG9waWMAAAAAAA")
DELETED_NAME = "t-0.0123456789abcdef0123456789abcdef-delete"
INT_MAX = (1 << 31) - 1


def topic_id_in(directory: Path) -> UUID | None:
    path = directory / PARTITION_METADATA
    return parse_partition_metadata(path.read_bytes()).topic_id if path.exists() else None


# ---- flush


@pytest.mark.parametrize("force_active", [False, True])
def test_a_flush_leaves_an_empty_active_segment_as_the_roll_made_it(
    tmp_path: Path, force_active: bool
) -> None:
    log = new_log(tmp_path)
    put(log, b"Test")
    log.roll()
    assert log.active.size_bytes == 0
    log.flush(force_active=force_active)
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX):
        assert len(names_with(log.directory, suffix)) == 2
    assert log.offsets.recovery_point == 1


def test_a_flush_up_to_a_new_segment_moves_the_recovery_point_and_the_time_of_the_flush(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock)
    assert (log.offsets.recovery_point, log.flusher.last_flush_ms) == (0, clock.now_ms())
    put(log, b"a")
    clock.advance(1)
    segment = log.roll()
    log.flusher.flush_up_to(segment.base_offset)
    assert (log.offsets.recovery_point, log.flusher.last_flush_ms) == (1, clock.now_ms())


def test_a_flush_never_moves_the_recovery_point_back_nor_beyond_the_end(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(5):
        put(log, b"a")
    log.flusher.flush_up_to(3)
    assert log.offsets.recovery_point == 3
    log.flusher.flush_up_to(2)
    assert log.offsets.recovery_point == 3
    log.flush()
    log.flusher.flush_up_to(100)
    assert log.offsets.recovery_point == 5


@pytest.mark.parametrize(
    ("batches", "expected"), [([1, 1, 1, 1], [0, 0, 3, 3]), ([2, 2], [0, 4]), ([5], [5])]
)
def test_flush_messages_flushes_when_so_many_are_unflushed(
    tmp_path: Path, batches: list[int], expected: list[int]
) -> None:
    log = new_log(tmp_path, flush_messages=3)
    found = []
    for count in batches:
        put(log, *[b"v"] * count)
        found.append(log.offsets.recovery_point)
    assert found == expected


def test_a_snapshot_that_cannot_be_flushed_keeps_the_recovery_point_where_it_was(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put(log, b"a")
    log.roll(1)
    (snapshot,) = names_with(log.directory, ".snapshot")
    (log.directory / snapshot).unlink()
    (log.directory / snapshot).mkdir()
    log.context.scheduler.run_due()
    assert log.offsets.recovery_point == 0
    assert tmp_path in log.context.failures.offline


# ---- partition.metadata


def test_a_topic_id_is_written_with_the_first_record(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    put(log, b"simpleValue")
    assert topic_id_in(log.directory) == TOPIC_ID
    lines = (log.directory / PARTITION_METADATA).read_text()
    assert lines == f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}"


def test_a_topic_id_is_written_at_the_latest_when_the_log_is_closed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    log.close()
    log = new_log(tmp_path)
    assert (topic_id_in(log.directory), log.topic_id) == (TOPIC_ID, TOPIC_ID)


def test_a_topic_id_is_known_after_a_restart(tmp_path: Path) -> None:
    log = new_log(tmp_path, topic_id=TOPIC_ID)
    put(log, b"v")
    log.close_handlers()
    assert new_log(tmp_path, clean=False).topic_id == TOPIC_ID


def test_a_log_of_another_topic_id_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    log.close()
    with pytest.raises(
        InconsistentTopicIdError, match=f"already contained topic ID {uuid_text(TOPIC_ID)}"
    ):
        new_log(tmp_path, topic_id=OTHER_ID)
    log = new_log(tmp_path, topic_id=TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError):
        log.assign_topic_id(OTHER_ID)
    log.assign_topic_id(TOPIC_ID)
    assert log.topic_id == TOPIC_ID
    assert InconsistentTopicIdError.code == 103


# ---- another name


@pytest.mark.parametrize("assigned", ["in time", "just before"])
def test_a_topic_id_goes_with_its_directory(tmp_path: Path, assigned: str) -> None:
    log = new_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    if assigned == "in time":
        put(log, b"foo", leader_epoch=5)
    old, new = log.directory, tmp_path / DELETED_NAME
    log.rename_directory(new)
    assert topic_id_in(new) == TOPIC_ID
    assert not old.exists()
    put(log, b"foo", leader_epoch=10)
    assert log.topic_id == TOPIC_ID


def test_leader_epochs_are_written_to_the_directorys_new_name(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"foo", leader_epoch=5)
    assert log.leader_epochs.latest_epoch == 5
    old, new = log.directory, tmp_path / DELETED_NAME
    log.rename_directory(new)
    put(log, b"foo", leader_epoch=10)
    assert log.leader_epochs.epoch_entries == ((5, 0), (10, 1))
    assert (new / "leader-epoch-checkpoint").read_text() == "0\n2\n5 0\n10 1\n"
    assert not old.exists()


def test_a_log_goes_on_under_its_directorys_new_name(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a")
    log.roll()
    reader = fetch(log, 0)
    old, new = log.directory, tmp_path / "u-7"
    log.rename_directory(new)
    assert (log.directory, log.log_dir) == (new, tmp_path)
    assert len(log.segments) == 2
    assert {segment.path.parent for segment in log.segments} == {new}
    assert offsets_read(reader) == [0], "a range that is held stays readable"
    put(log, b"b", producer=(1, 0, 0))
    log.roll()
    put(log, b"c")
    truncate_to(log, 2)
    assert [value for _, _, _, value in records_in(log)] == [b"a", b"b"]
    assert snapshot_offsets(new) == [1, 2]
    log.close()
    assert not old.exists()


def test_a_log_whose_directory_was_renamed_can_be_deleted(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.rename_directory(tmp_path / DELETED_NAME)
    put(log, b"value", key=b"key")
    assert log.log_end_offset == 1
    log.delete()
    assert list(tmp_path.iterdir()) == []


# ---- closed and deleted


def test_a_deleted_log_leaves_nothing_and_takes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a")
    log.roll()
    log.delete()
    assert not log.directory.exists()
    with pytest.raises(StorageError):
        put(log, b"b")
    with pytest.raises(StorageError):
        delete_segments(log, 1, reason="test")
    log.context.scheduler.run_due()
    assert not log.context.failures.offline, "nothing put off stumbles over it"


@pytest.mark.parametrize("handlers", [False, True])
def test_a_closed_log_can_be_deleted(tmp_path: Path, handlers: bool) -> None:
    log = new_log(tmp_path)
    put(log, b"a")
    if handlers:
        log.close_handlers()
    else:
        log.close()
    log.delete()
    assert not log.directory.exists()


def test_a_directory_that_is_a_file_cannot_be_deleted_and_goes_offline(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    OS.remove_tree(log.directory)
    log.directory.touch()
    with pytest.raises(StorageError):
        log.delete()
    assert tmp_path in log.context.failures.offline


def test_a_closed_log_reads_the_same_when_it_is_opened_again(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1)
    producer.append(3)
    log.roll()
    producer.append(2)
    producer.end(commit=False)
    log.assign_epoch(3)
    before = state_of(log)
    log.close()
    again = new_log(tmp_path)
    again.offsets.recovery_point = log.offsets.recovery_point = 0
    # Between the two, only the epoch that no record was written with is gone, and the recovery
    # point is at the end.
    assert again.leader_epochs.epoch_entries == ((0, 0),)
    again.assign_epoch(3)
    assert state_of(again) == before


def test_settings_are_put_in_force_while_the_log_runs(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    old = log.config
    new = LogConfig(segment_bytes=100)
    assert log.update_config(new) == old
    assert log.config == new
    put(log, b"a")
    put(log, b"b")
    assert len(log.segments) == 2


# ---- loading


def test_a_directory_to_be_deleted_without_segments_is_loaded(tmp_path: Path) -> None:
    (tmp_path / DELETED_NAME).mkdir()
    log = load_log(
        LoadRequest(
            directory=tmp_path / DELETED_NAME,
            topic_partition=TopicPartition("t", 0),
            config=LogConfig(),
            context=LogContext(clock=ManualClock()),
        )
    )
    assert len(log.segments) == 1
    log.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_stray_snapshot_at_42_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{42:020d}.snapshot").touch()
    new_log(tmp_path)
    assert snapshot_offsets(directory) == []


def test_a_log_without_snapshots_gets_them_for_the_last_two_segments_and_its_end(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, segment_bytes=640)
    assert snapshot_offsets(log.directory) == []
    for number in range(101):
        put(log, b"%d" % number)
    assert len(log.segments) >= 2
    end, starts = log.log_end_offset, list(bases(log))
    log.close()

    def reopened(*, clean: bool, recovery_point: int) -> list[int]:
        remove_snapshots(tmp_path / "t-0")
        log = new_log(tmp_path, clean=clean, recovery_point=recovery_point, segment_bytes=640)
        found = snapshot_offsets(log.directory)
        log.close()
        return found

    last = [*starts[-2:], end]
    assert reopened(clean=True, recovery_point=end) == last
    assert reopened(clean=False, recovery_point=end) == last
    assert reopened(clean=False, recovery_point=0) == [*starts[1:], end]


def test_the_snapshots_of_an_upgraded_log_do_not_hide_its_producers(tmp_path: Path) -> None:
    # Kafka takes a log that was stopped cleanly and has no snapshots for one without producers.
    log = new_log(tmp_path)
    Producer(log, 1, transactional=False).append(3)
    log.close_handlers()
    remove_snapshots(log.directory)
    assert last_sequences(new_log(tmp_path, clean=False)) == {1: 2}


# ---- segments that reach too far


def sample(base: int) -> list[bytes]:
    """Three batches from `base` on, the last of them as far away as an index reaches."""
    numbers = ([base], [base + 1, base + 2], [base + INT_MAX - 1])
    return [
        batch_of(*[b"%d" % n for n in batch], base_offset=batch[0], leader_epoch=0)
        for batch in numbers
    ]


def write_segment(directory: Path, base: int, batches: list[bytes]) -> None:
    (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    for suffix in ("index", "timeindex"):
        (directory / f"{base:020d}.{suffix}").touch()


def overflowed(directory: Path) -> tuple[list[int], list[bytes]]:
    """Writes three segments, the second of which reaches too far; their bases, all batches."""
    directory.mkdir()
    starts = [0, INT_MAX, 3 * INT_MAX]
    parts = [sample(0), sample(INT_MAX) + sample(2 * INT_MAX), sample(3 * INT_MAX)]
    for base, batches in zip(starts, parts, strict=True):
        write_segment(directory, base, batches)
    return starts, [batch for part in parts for batch in part]


def batches_of(log: PartitionLog) -> list[bytes]:
    return [
        bytes(batch.raw)
        for segment in log.segments
        for _, batch in iter_batches(segment.path.read_bytes()[: segment.size_bytes])
    ]


def test_a_segment_that_reaches_too_far_is_split_and_four_are_left(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    starts, batches = overflowed(directory)
    assert split_overflowed(directory, INT_MAX, next_base_offset=starts[-1], fs=OS) == [
        INT_MAX,
        2 * INT_MAX + 1,
    ]
    log = new_log(tmp_path, index_interval_bytes=1)
    assert list(bases(log)) == sorted([*starts, 2 * INT_MAX + 1])
    assert batches_of(log) == batches
    assert not any(segment.has_overflow() for segment in log.segments)


def test_a_loader_splits_a_segment_that_reaches_too_far(tmp_path: Path) -> None:
    _, batches = overflowed(tmp_path / "t-0")
    log = new_log(tmp_path, clean=False, index_interval_bytes=1)
    assert len(log.segments) == 4
    assert batches_of(log) == batches
    assert not any(segment.has_overflow() for segment in log.segments)
    assert names_with(log.directory, "ed") == []
    assert names_with(log.directory, ".swap") == []


def test_a_batch_whose_damaged_offset_is_far_off_is_refused_and_the_log_left_as_it_is(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    far = 1 << 59
    data = [batch_of(b"v", base_offset=base, leader_epoch=0) for base in (0, 1, far, 3)]
    write_segment(directory, 0, data)
    with pytest.raises(
        ImpossibleOffsetError, match=r"offset 5764\d+ is out of reach .* 3 follows.* byte 138"
    ):
        new_log(tmp_path, clean=False)
    (left,) = directory.glob("*.log")
    assert left.read_bytes() == b"".join(data)


@pytest.mark.parametrize(
    ("first", "batches"),
    [
        (INT_MAX + 1, [(INT_MAX + 1, 1), (INT_MAX + 2, 1)]),
        # The first offset is within reach, the last is not.
        (INT_MAX - 1, [(INT_MAX - 1, 3)]),
    ],
    ids=["all batches", "one batch's last offset"],
)
def test_a_segment_of_which_everything_is_too_far_becomes_one_with_another_base(
    tmp_path: Path, first: int, batches: list[tuple[int, int]]
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = [batch_of(*[b"v"] * n, base_offset=base, leader_epoch=0) for base, n in batches]
    write_segment(directory, 0, data)
    assert split_overflowed(directory, 0, next_base_offset=2 * INT_MAX, fs=OS) == [first]
    log = new_log(tmp_path, index_interval_bytes=1)
    assert bases(log) == (first,)
    assert batches_of(log) == data
    assert not log.active.has_overflow()


# ---- what logs share


def test_a_log_says_where_it_is(tmp_path: Path) -> None:
    log = new_log(tmp_path, context=LogContext(clock=ManualClock()))
    put(log, b"v")
    assert repr(log) == (
        f"Log(dir={tmp_path}/t-0, topicId=None, topic=t, partition=0, highWatermark=0, "
        "lastStableOffset=0, logStartOffset=0, logEndOffset=1)"
    )
