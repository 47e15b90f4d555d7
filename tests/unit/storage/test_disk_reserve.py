"""Room kept on a disk: as much as there is, given up at once, no trouble of its own."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cordwood.storage.disk_reserve import RESERVE, DiskReserve
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = Path("/logs")
PATH = DIRECTORY / RESERVE
SIZE = 200_000


@pytest.fixture
def fs() -> SimulatedFileSystem:
    found = SimulatedFileSystem()
    found.make_directory(DIRECTORY)
    return found


def test_what_was_taken_is_given_up_again(fs: SimulatedFileSystem) -> None:
    reserve = DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs)
    reserve.take()
    assert fs.facts_of(PATH).size_bytes == SIZE
    assert reserve.release()
    assert not fs.exists(PATH)
    assert not reserve.release()


def test_it_takes_what_there_is_and_the_rest_later(fs: SimulatedFileSystem) -> None:
    fs.capacity_bytes = SIZE // 2
    reserve = DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs)
    reserve.take()
    assert 0 < fs.facts_of(PATH).size_bytes <= SIZE // 2
    fs.capacity_bytes = None
    reserve.take()
    assert fs.facts_of(PATH).size_bytes == SIZE


def test_on_a_full_disk_there_is_nothing_to_give_up(fs: SimulatedFileSystem) -> None:
    fs.capacity_bytes = 0
    reserve = DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs)
    reserve.take()
    assert not reserve.release()


def test_what_another_process_left_is_removed(fs: SimulatedFileSystem) -> None:
    DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs).take()
    DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs).release()
    assert not fs.exists(PATH)


def test_of_no_size_it_touches_nothing(fs: SimulatedFileSystem) -> None:
    reserve = DiskReserve(DIRECTORY, size_bytes=0, fs=fs)
    before = fs.operations
    reserve.take()
    assert not reserve.release()
    assert fs.operations == before


def test_a_disk_that_fails_is_for_others_to_find(fs: SimulatedFileSystem) -> None:
    reserve = DiskReserve(DIRECTORY, size_bytes=SIZE, fs=fs)
    reserve.take()
    fs.fail = lambda _: OSError(errno.EIO, "broken")
    assert not reserve.release()
    reserve.take()
    fs.fail = None
    assert fs.exists(PATH)
