"""A disk without room: appends are refused and change nothing, reads go on, and so do appends when
there is room again.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import OutOfOrderSequenceError, StorageError
from cordwood.storage.filesystem import OS
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.log_under_test import (
    Producer,
    bases,
    catch_up,
    fetch,
    first_unstable,
    follow,
    last_sequences,
    new_log,
    offsets_read,
    state_of,
)
from support.stored_log import batch_of, files_of, put, records_in

LOGS = Path("/logs")


def used(fs: SimulatedFileSystem) -> int:
    """The bytes of all files together."""
    plenty = 1 << 40
    before, fs.capacity_bytes = fs.capacity_bytes, plenty
    try:
        return plenty - fs.free_bytes(LOGS)
    finally:
        fs.capacity_bytes = before


def leave(fs: SimulatedFileSystem, size_bytes: int) -> None:
    """Takes all room away but so much."""
    fs.capacity_bytes = used(fs) + size_bytes


def simulated(**settings: Any) -> tuple[SimulatedFileSystem, PartitionLog]:
    fs = SimulatedFileSystem()
    fs.make_directory(LOGS)
    fs.sync_directory(LOGS.parent)
    log = new_log(LOGS, fs=fs, **settings)
    put(log, b"first", producer=(1, 0, 0))
    catch_up(log)
    return fs, log


def refused(work: Callable[[], object]) -> None:
    """Checks that there is no room, and that the directory is not given up for that."""
    with pytest.raises(StorageError) as error:
        work()
    assert error.value.code == 56
    assert isinstance(error.value.__cause__, NoSpaceError)


# ---- appends


@pytest.mark.parametrize("room", [0, 1, 60, 61, 70])
def test_an_append_that_does_not_fit_changes_nothing_and_works_when_there_is_room(
    room: int,
) -> None:
    fs, log = simulated()
    leave(fs, room)
    before, files = state_of(log), files_of(log.directory, fs)
    for _ in range(3):
        refused(lambda: put(log, bytes(20), producer=(1, 0, 1)))
        refused(lambda: follow(log, batch_of(bytes(20), base_offset=1, leader_epoch=0)))
        assert state_of(log) == before
        assert files_of(log.directory, fs) == files
        assert offsets_read(fetch(log, 0, isolation=Isolation.HIGH_WATERMARK)) == [0]
    assert not log.context.failures.offline

    fs.capacity_bytes = None
    result = put(log, bytes(20), producer=(1, 0, 1))
    assert (result.first_offset, result.is_duplicate) == (1, False), "it is no duplicate"
    assert put(log, bytes(20), producer=(1, 0, 1)).is_duplicate
    log.close()
    assert [offset for offset, *_ in records_in(new_log(LOGS, fs=fs))] == [0, 1]


def test_a_smaller_append_may_fit_where_a_larger_does_not() -> None:
    fs, log = simulated()
    leave(fs, 100)
    refused(lambda: put(log, bytes(100)))
    assert put(log, b"small").first_offset == 1


@pytest.mark.parametrize("room", [0, 150])
@pytest.mark.parametrize(
    ("producer_id", "sequence"), [(2, 0), (1, 1)], ids=["a new producer", "a known producer"]
)
def test_a_producers_second_batch_is_refused_like_the_first_that_did_not_fit(
    producer_id: int, sequence: int, room: int
) -> None:
    fs, log = simulated()
    leave(fs, room)
    first, second = (producer_id, 0, sequence), (producer_id, 0, sequence + 2)
    refused(lambda: put(log, bytes(100), bytes(100), producer=first))
    before = state_of(log)
    for capacity_bytes in (fs.capacity_bytes, None):
        fs.capacity_bytes = capacity_bytes
        with pytest.raises(StorageError) as error:
            put(log, b"small", producer=second)
        assert str(error.value) == (
            f"A batch of producer {producer_id} with sequence {sequence} did not fit on the disk "
            f"of t-0: sequence {sequence + 2} is refused until it is written"
        )
        assert state_of(log) == before
    assert put(log, bytes(100), bytes(100), producer=first).first_offset == 1
    assert put(log, b"small", producer=second).first_offset == 3
    assert put(log, bytes(100), bytes(100), producer=first).is_duplicate
    with pytest.raises(OutOfOrderSequenceError):
        put(log, b"small", producer=(producer_id, 0, sequence + 7))


def test_the_leader_that_wrote_what_did_not_fit_here_ends_its_refusal() -> None:
    fs, log = simulated()
    leave(fs, 0)
    refused(lambda: put(log, bytes(100), producer=(1, 0, 1)))
    fs.capacity_bytes = None
    follow(log, batch_of(bytes(100), base_offset=1, leader_epoch=1, producer=(1, 0, 1)))
    assert put(log, b"v", producer=(1, 0, 2), leader_epoch=2).first_offset == 2


def test_another_epoch_begins_anew_after_a_batch_that_did_not_fit() -> None:
    fs, log = simulated()
    leave(fs, 0)
    refused(lambda: put(log, bytes(100), producer=(2, 0, 0)))
    fs.capacity_bytes = None
    assert put(log, b"v", producer=(2, 1, 5)).first_offset == 1


def test_batches_that_did_not_fit_are_forgotten_as_old_producers_are() -> None:
    fs, log = simulated()
    leave(fs, 0)
    refused(lambda: put(log, bytes(100), producer=(2, 0, 0)))
    fs.capacity_bytes = None
    expiration_ms = log.producer_state.producer_id_expiration_ms
    log.producer_state.remove_expired(log.context.clock.now_ms() + expiration_ms)
    assert put(log, b"v", producer=(2, 0, 5)).first_offset == 1


def test_a_log_that_is_full_is_whole_after_a_kill() -> None:
    fs, log = simulated()
    leave(fs, 50)
    refused(lambda: put(log, bytes(100)))
    fs.capacity_bytes = None
    expected = records_in(log)
    found = new_log(LOGS, fs=fs.process_crash(), clean=False)
    assert records_in(found) == expected


def test_a_new_leader_epoch_without_room_for_its_line_refuses_the_append() -> None:
    fs, log = simulated()
    leave(fs, 0)
    before = state_of(log)
    refused(lambda: put(log, b"v", leader_epoch=7))
    assert state_of(log) == before
    fs.capacity_bytes = None
    put(log, b"v", leader_epoch=7)
    assert log.leader_epochs.epoch_entries == ((0, 0), (7, 1))


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    told = fetch(log, 0, isolation=Isolation.TXN_COMMITTED).aborted
    assert told is not None
    return [(e.producer_id, e.first_offset, e.last_offset) for e in told]


def test_an_abort_marker_that_fits_is_taken_though_its_index_entry_does_not_fit() -> None:
    fs, log = simulated()
    producer = Producer(log, 2)
    producer.append(3)
    leave(fs, 100)  # the marker takes 78 bytes, its entry in the index 34
    assert producer.end(commit=False).last_offset == 4
    catch_up(log)
    assert first_unstable(log) is None
    assert aborted(log) == [(2, 1, 4)]
    refused(log.flush)
    assert log.offsets.recovery_point == 0, "what is not indexed on disk is recovered"
    refused(log.close)
    found = new_log(LOGS, fs=roomy(fs.process_crash()), clean=False)
    catch_up(found)
    assert aborted(found) == [(2, 1, 4)]
    fs.capacity_bytes = None
    log.flush()
    assert log.offsets.recovery_point == 5
    log.close()
    log = new_log(LOGS, fs=fs)
    catch_up(log)
    assert aborted(log) == [(2, 1, 4)]


def roomy(fs: SimulatedFileSystem) -> SimulatedFileSystem:
    fs.capacity_bytes = None
    return fs


@pytest.mark.parametrize("room", range(0, 160, 8))
def test_with_flush_messages_an_append_is_there_and_lasts_or_it_is_refused_and_gone(
    room: int,
) -> None:
    fs, log = simulated(flush_messages=1, index_interval_bytes=0)
    put(log, b"second", producer=(1, 0, 1))
    leave(fs, room)
    before = state_of(log)
    try:
        put(log, bytes(20), producer=(1, 0, 2))
    except StorageError:
        assert not log.context.failures.offline
        assert state_of(log) == before
    else:
        assert log.log_end_offset == 3
        assert log.offsets.recovery_point in {2, 3}, "an index may have found no room"
        for image in fs.crash_images(5, random.Random(1)):
            found = new_log(
                LOGS, fs=roomy(image), clean=False, recovery_point=log.offsets.recovery_point
            )
            assert found.log_end_offset == 3
    fs.capacity_bytes = None
    assert put(log, bytes(20), producer=(1, 0, 2)).last_offset == 2
    log.flush()
    assert log.offsets.recovery_point == log.log_end_offset == 3


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_index_entries_that_a_full_disk_has_lost_in_a_sync_are_written_again(suffix: str) -> None:
    fs, log = simulated(index_interval_bytes=0)
    now = log.context.clock.now_ms()
    for number in range(4):
        put(log, b"v", timestamp=now + number)
    producer = Producer(log, 2)
    producer.append(1)
    producer.end(commit=False)

    def fail(operation: FileOperation) -> OSError | None:
        if operation.kind is FileOperationKind.SYNC and operation.path.name.endswith(suffix):
            fs.fail = None
            return OSError(errno.ENOSPC, "no room for what was written before")
        return None

    fs.fail = fail
    refused(log.flush)
    assert log.offsets.recovery_point == 0
    log.flush()
    assert log.offsets.recovery_point == log.log_end_offset == 7
    index = next(name for name in fs.names_in(log.directory) if name.endswith(suffix))
    (image, *_) = fs.crash_images(1, random.Random(0))
    expected = fs.read_bytes(log.directory / index)
    assert image.read_bytes(log.directory / index) == expected
    assert expected.rstrip(b"\0")


# ---- what makes room must need none


def full_log(**settings: Any) -> tuple[SimulatedFileSystem, PartitionLog, ManualClock]:
    """Segments of two records each, of several leader epochs, and no byte left."""
    fs = SimulatedFileSystem()
    clock = ManualClock()
    log = new_log(LOGS, fs=fs, clock=clock, file_delete_delay_ms=1000, **settings)
    for number in range(6):
        put(log, bytes(500), producer=(number, 0, 0), leader_epoch=number)
        if number in {1, 3}:
            log.roll()
    catch_up(log)
    log.context.scheduler.run_due()
    leave(fs, 0)
    refused(lambda: put(log, b"v"))
    return fs, log, clock


@pytest.mark.parametrize(
    ("settings", "left"),
    [({"retention_bytes": 1000}, (4,)), ({"retention_ms": 10}, (6,))],
    ids=["by size", "all of it by time"],
)
def test_retention_makes_room_on_a_full_disk(settings: dict[str, int], left: tuple[int]) -> None:
    fs, log, clock = full_log(**settings)
    clock.advance(10_000)
    for _ in range(2):  # what needs room itself goes with the next pass
        retain(log, clock.now_ms())
        clock.advance(log.config.file_delete_delay_ms)
        log.context.scheduler.run_due()
    assert bases(log) == left
    assert log.log_start_offset == left[0]
    assert fs.free_bytes(LOGS) > 1000
    assert put(log, bytes(500), leader_epoch=6).first_offset == 6
    assert not log.context.failures.offline
    fs.capacity_bytes = None
    expected = records_in(log)
    epochs = log.leader_epochs.epoch_entries
    log.close()
    log = new_log(LOGS, fs=fs)
    assert records_in(log) == expected
    assert log.leader_epochs.epoch_entries == epochs


def test_records_are_deleted_on_a_full_disk() -> None:
    _, log, _ = full_log()
    assert log.delete_records(3) == 3
    assert (log.log_start_offset, log.offsets.recovery_point) == (3, 4)
    assert log.leader_epochs.epoch_entries == ((3, 3), (4, 4), (5, 5))


@pytest.mark.parametrize("fully", [False, True])
def test_a_log_is_truncated_on_a_full_disk(fully: bool) -> None:
    fs, log, clock = full_log()
    if fully:
        truncate_fully_and_start_at(log, 3)
    else:
        truncate_to(log, 3)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    assert log.producer_state.map_end_offset == 3
    epochs = log.leader_epochs.epoch_entries
    assert epochs == (() if fully else ((0, 0), (1, 1), (2, 2)))
    assert last_sequences(log) == ({} if fully else {0: 0, 1: 0, 2: 0})
    clock.advance(log.config.file_delete_delay_ms)
    fs.capacity_bytes = None
    log.context.scheduler.run_due()
    found = new_log(LOGS, fs=fs.process_crash(), clean=False)
    assert found.leader_epochs.epoch_entries == epochs, "written when there is room"
    assert put(log, b"again", leader_epoch=9).first_offset == 3


def refuse_name(fs: SimulatedFileSystem, number: int) -> None:
    """Lets the directory have no room for the name of a file to be deleted, `number` from now."""
    names: list[str] = []

    def fail(operation: FileOperation) -> OSError | None:
        target = operation.target
        if (
            operation.kind is FileOperationKind.RENAME
            and target is not None
            and target.suffix == ".deleted"
        ):
            names.append(target.name)
            if len(names) == number:
                return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return None

    fs.fail = fail


@pytest.mark.parametrize("number", range(1, 8))
def test_a_full_truncation_without_room_for_a_name_changes_nothing(number: int) -> None:
    fs, log, _ = full_log()
    fs.capacity_bytes = None
    records, names = records_in(log), fs.names_in(log.directory)
    refuse_name(fs, number)
    refused(lambda: truncate_fully_and_start_at(log, 3))
    fs.fail = None
    assert fs.names_in(log.directory) == names
    put(log, b"after")
    found = new_log(LOGS, fs=fs.process_crash(), clean=False)
    assert records_in(found)[:-1] == records
    truncate_fully_and_start_at(log, 3)
    assert put(log, b"again").first_offset == 3


@pytest.mark.parametrize("number", range(1, 5))
def test_a_truncation_without_room_for_a_name_takes_the_directory_offline(number: int) -> None:
    fs, log, _ = full_log()
    fs.capacity_bytes = None
    records = records_in(log)
    refuse_name(fs, number)
    with pytest.raises(StorageError):
        truncate_to(log, 1)
    fs.fail = None
    assert log.context.failures.offline, "nothing is appended before the rest is cut off"
    found = new_log(LOGS, fs=fs.process_crash(), clean=False)
    assert records_in(found) == records[: len(records_in(found))]
    truncate_to(found, 1)
    assert put(found, b"again").first_offset == 1


# ---- on a real file system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; where none can be made, a skip, or under CI as root a failure."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = f"NO FULL DISK WAS TRIED, no tmpfs can be mounted: {done.stderr.strip()}"
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(log: PartitionLog) -> int:
    """Appends until the disk is full; how many batches fitted."""
    for sequence in range(100):
        try:
            put(log, bytes(8000), producer=(1, 0, sequence))
        except StorageError:
            return sequence
    raise AssertionError("the disk is not full")


def test_a_real_disk_that_is_full_refuses_appends_and_serves_reads(small_disk: Path) -> None:
    log = new_log(small_disk, segment_bytes=64 << 10, file_delete_delay_ms=0)
    catch_up(log)
    end = fill(log)
    assert 20 < end == log.log_end_offset < 100
    before = state_of(log)
    refused(lambda: put(log, bytes(8000), producer=(1, 0, end)))
    assert state_of(log) == before
    assert [record[0] for record in records_in(log)] == list(range(end))
    assert [offset for n in range(end) for offset in offsets_read(fetch(log, n, 1))] == [
        *range(end)
    ]
    assert log.active.path.stat().st_size == log.active.size_bytes, "nothing torn is left"

    catch_up(log)
    log.delete_records(log.segments[1].base_offset)
    assert retain(log, log.context.clock.now_ms()) == 1
    log.context.scheduler.run_due()
    log.context.resources.close()
    assert OS.free_bytes(small_disk) > 16_000
    assert put(log, bytes(8000), producer=(1, 0, end)).first_offset == end
    assert not log.context.failures.offline
