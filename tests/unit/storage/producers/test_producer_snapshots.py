from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import OsFile, OsFileSystem
from cordwood.storage.producers.producer_snapshots import (
    ProducerSnapshots,
    snapshot_offsets,
    stray_snapshots,
)

ENTRY = ProducerEntry(producer_id=7, producer_epoch=1, timestamp=5)


def put(directory: Path, *offsets: int) -> None:
    for offset in offsets:
        (directory / f"{offset:020d}.snapshot").write_bytes(b"")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_only_live_snapshot_files_count(tmp_path: Path) -> None:
    put(tmp_path, 7, 30)
    for name in (
        "00000000000000000008.snapshot.deleted",
        "00000000000000000009.snapshot.tmp",
        "00000000000000000010.log",
        "leader-epoch-checkpoint",
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "00000000000000000011.snapshot").mkdir()
    assert snapshot_offsets(tmp_path) == [7, 30]
    assert ProducerSnapshots(tmp_path).offsets == [7, 30]


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path / "missing")
    assert snapshots.offsets == []
    assert snapshots.latest is None
    assert snapshots.oldest is None


def test_a_name_without_an_offset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.snapshot").write_bytes(b"")
    with pytest.raises(CorruptError, match="does not begin with an offset"):
        ProducerSnapshots(tmp_path)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path)
    path = snapshots.write(42, [ENTRY])
    assert path == tmp_path / "00000000000000000042.snapshot"
    assert snapshots.read(42) == [ENTRY]
    assert snapshots.offsets == [42]
    assert ProducerSnapshots(tmp_path).offsets == [42]


def test_a_shorter_snapshot_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(tmp_path)
    snapshots.write(42, [ENTRY, ENTRY])
    snapshots.write(42, [])
    assert snapshots.read(42) == []


def test_damage_is_told_with_the_files_name(tmp_path: Path) -> None:
    put(tmp_path, 42)
    with pytest.raises(CorruptError, match=r"00000000000000000042\.snapshot"):
        ProducerSnapshots(tmp_path).read(42)


@pytest.mark.parametrize(
    ("offsets", "bases", "strays"),
    [
        ([2, 5, 42], [5], [2]),
        ([2, 5, 42], [42], [2, 5]),
        ([2, 5, 42], [2, 5, 42], []),
        ([1, 2, 3, 4], [1, 2, 4], [3]),
        ([3, 42, 50], [0, 40], [3, 42]),
        ([3, 42], [], [3]),
        ([], [0], []),
    ],
)
def test_strays(offsets: list[int], bases: list[int], strays: list[int]) -> None:
    assert stray_snapshots(offsets, bases) == strays


def test_strays_are_looked_for_in_the_directory_as_it_is_now(tmp_path: Path) -> None:
    put(tmp_path, 2, 5)
    snapshots = ProducerSnapshots(tmp_path)
    put(tmp_path, 3, 42)
    (tmp_path / "00000000000000000005.snapshot").unlink()
    snapshots.remove_stray([2, 10])
    assert snapshots.offsets == [2, 42]
    assert snapshot_offsets(tmp_path) == [2, 42]


def test_those_at_or_below_the_log_start_and_beyond_the_end_are_outside(tmp_path: Path) -> None:
    put(tmp_path, 1, 2, 3, 4)
    snapshots = ProducerSnapshots(tmp_path)
    snapshots.remove_outside(1, 3)
    assert snapshot_offsets(tmp_path) == snapshots.offsets == [2, 3]


class FullFile(OsFile):
    """A file that takes a few bytes and no more."""

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        os.pwrite(self.fileno(), bytes(parts[0])[:3], position)
        raise NoSpaceError(os.strerror(errno.ENOSPC))


class FullDisk(OsFileSystem):
    """A file system without room."""

    def create(self, path: Path) -> OsFile:
        return FullFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)


@pytest.mark.parametrize("there", [False, True])
def test_a_snapshot_that_finds_no_room_leaves_no_file(tmp_path: Path, *, there: bool) -> None:
    if there:
        put(tmp_path, 42)
    snapshots = ProducerSnapshots(tmp_path, fs=FullDisk())
    with pytest.raises(NoSpaceError):
        snapshots.write(42, [ENTRY])
    assert names(tmp_path) == []
    assert snapshots.offsets == []
