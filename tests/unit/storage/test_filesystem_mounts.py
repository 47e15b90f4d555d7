"""The machine's file system with others mounted in it: a path is given to the one that it is of."""

from __future__ import annotations

import errno
import inspect
import os
import re
from pathlib import Path

import pytest

from cordwood.storage.filesystem import FileSystem, MountedFileSystem, OsFileSystem
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

MOUNT = Path("/s3:/bucket/archive")


@pytest.fixture
def inner() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory(MOUNT)
    return fs


@pytest.fixture
def mounted(inner: SimulatedFileSystem) -> MountedFileSystem:
    fs = MountedFileSystem(OsFileSystem())
    fs.mount(MOUNT, inner)
    return fs


def test_every_method_of_a_file_system_goes_to_the_one_of_the_path() -> None:
    def own(kind: type) -> set[str]:
        return {
            name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name in vars(kind)
        }

    primitives = {name for name in own(OsFileSystem) if not name.startswith("_")}
    assert primitives <= own(MountedFileSystem)
    assert set(FileSystem.__abstractmethods__) <= own(MountedFileSystem)


def test_files_are_made_changed_and_read_where_they_are(
    mounted: MountedFileSystem, inner: SimulatedFileSystem, tmp_path: Path
) -> None:
    for directory, fs in ((MOUNT, inner), (tmp_path, OsFileSystem())):
        path, other = directory / "one", directory / "two"
        mounted.write_durably(path, b"0123")
        mounted.append_durably(path, b"45")
        assert fs.read_bytes(path) == mounted.read_bytes(path) == b"012345"
        mounted.set_modified(path, 7_000_000_000)
        assert mounted.facts_of(path).modified_ns == 7_000_000_000
        mounted.take_after(path, mounted.facts_of(path))
        mounted.rename(path, other)
        assert not mounted.exists(path)
        assert mounted.identity_of(other) == fs.identity_of(other)
        assert mounted.names_in(directory) == fs.names_in(directory) == ["two"]
        assert [entry.name for entry in mounted.entries_in(directory)] == ["two"]
        mounted.require_regular(other)
        assert not mounted.is_open_for_writing(other)
        mounted.remove(other)
        assert fs.names_in(directory) == []
        mounted.make_directory(directory / "sub")
        assert mounted.is_directory(directory / "sub")
        mounted.sync_directory(directory)
        mounted.remove_directory(directory / "sub")
        assert not fs.exists(directory / "sub")
        assert mounted.is_same_file_system(directory, directory)
        assert mounted.free_bytes(directory) > 0
        assert mounted.space(directory)[1] > 0
    assert not os.path.exists(MOUNT)
    assert not mounted.is_same_file_system(MOUNT, tmp_path)
    assert mounted.open_files_max() == OsFileSystem().open_files_max()


def test_a_rename_to_another_file_system_is_refused(
    mounted: MountedFileSystem, tmp_path: Path
) -> None:
    mounted.write_file(MOUNT / "one", b"0123")
    refusal = re.escape(f"[Errno {errno.EXDEV}]")
    with pytest.raises(OSError, match=refusal):
        mounted.rename(MOUNT / "one", tmp_path / "one")
    assert mounted.read_bytes(MOUNT / "one") == b"0123"


def test_a_neighbour_with_a_longer_name_is_not_below_the_mount(
    mounted: MountedFileSystem, inner: SimulatedFileSystem
) -> None:
    assert mounted.at(MOUNT) is inner
    assert mounted.at(MOUNT / "t-0" / "x.log") is inner
    for path in (MOUNT.with_name("archive-2"), MOUNT.parent, Path("/"), Path("archive")):
        assert isinstance(mounted.at(path), OsFileSystem)
    assert mounted.mounted(MOUNT) is inner
    assert mounted.mounted(MOUNT / "t-0") is None


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_mounted_below_another_is_found_in_either_order(is_first: bool) -> None:
    outer, inner = SimulatedFileSystem(), SimulatedFileSystem()
    fs = MountedFileSystem(OsFileSystem())
    mounts = [(MOUNT / "below", inner), (MOUNT, outer)]
    for directory, each in mounts if is_first else reversed(mounts):
        fs.mount(directory, each)
    assert fs.at(MOUNT / "below" / "t-0") is inner
    assert fs.at(MOUNT / "below") is inner
    assert fs.at(MOUNT / "t-0") is outer


def test_a_link_of_the_machine_is_copied(mounted: MountedFileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    mounted.copy_link(tmp_path / "link", tmp_path / "copy")
    assert os.readlink(tmp_path / "copy") == "target"
    mounted.lock(tmp_path).release()
