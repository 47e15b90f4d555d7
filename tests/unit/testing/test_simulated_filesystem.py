"""Each promise of the fault model, and each that it does not make."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.model.errors import DirectoryInUseError, NoSpaceError
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)

TOP = Path("/logs")
FILE = TOP / "file"
IMAGES = 400


def made(capacity_bytes: int | None = None) -> SimulatedFileSystem:
    """A file system with an empty directory that is there for good."""
    fs = SimulatedFileSystem(capacity_bytes=capacity_bytes)
    fs.make_directory(TOP)
    fs.sync_directory(Path("/"))
    return fs


def put(fs: SimulatedFileSystem, path: Path, data: bytes) -> None:
    """A file that is there for good."""
    fs.write_durably(path, data)


def tree(fs: SimulatedFileSystem, top: Path = TOP) -> dict[str, bytes | None]:
    """Files with their bytes and directories with None, by path below `top`."""
    found: dict[str, bytes | None] = {}
    for entry in fs.entries_in(top):
        path = top / entry.name
        if entry.is_directory:
            found[entry.name] = None
            for name, data in tree(fs, path).items():
                found[f"{entry.name}/{name}"] = data
        else:
            found[entry.name] = fs.read_bytes(path)
    return found


def images(fs: SimulatedFileSystem, limit: int = IMAGES) -> list[SimulatedFileSystem]:
    return list(fs.crash_images(limit, random.Random(1)))


def trees(fs: SimulatedFileSystem, limit: int = IMAGES) -> list[dict[str, bytes | None]]:
    return [tree(image) for image in images(fs, limit)]


def contents(fs: SimulatedFileSystem, limit: int = IMAGES) -> list[bytes]:
    """Possible contents of the one file."""
    return [image.read_bytes(FILE) for image in images(fs, limit)]


def names(fs: SimulatedFileSystem, limit: int = IMAGES) -> set[frozenset[str]]:
    """The sets of names that may be found."""
    return {frozenset(found) for found in trees(fs, limit)}


# ---- bytes


def test_first_image_has_nothing_unsynced_and_the_second_has_all() -> None:
    fs = made()
    put(fs, FILE, b"old")
    fs.open(FILE, write=True).write_at([b"new and longer"], 0)
    fs.create(TOP / "other").write_at([b"x"], 0)
    nothing, everything = trees(fs, 2)
    assert nothing == {"file": b"old"}
    assert everything == {"file": b"new and longer", "other": b"x"}


def test_what_was_synced_is_in_every_image() -> None:
    fs = made()
    put(fs, FILE, b"a" * 5_000)
    file = fs.open(FILE, write=True)
    file.write_at([b"b" * 5_000], 5_000)
    file.sync()
    assert contents(fs) == [b"a" * 5_000 + b"b" * 5_000] * 2


def test_where_nothing_can_be_lost_there_are_two_equal_images() -> None:
    fs = made()
    put(fs, FILE, b"data")
    assert trees(fs) == [{"file": b"data"}] * 2


def test_images_beyond_the_first_two_differ_from_each_other() -> None:
    fs = made()
    put(fs, FILE, b"")
    file = fs.open(FILE, write=True)
    for position in range(0, 50, 10):
        file.write_at([b"0123456789"], position)
    found = contents(fs)
    assert len(found) > 50
    assert len(set(found)) == len(found)


def test_write_may_be_torn_at_any_byte() -> None:
    fs = made()
    put(fs, FILE, b"")
    data = bytes(range(1, 12))
    fs.open(FILE, write=True).write_at([data], 0)
    prefixes = {len(found) for found in contents(fs, 3_000) if data.startswith(found)}
    assert prefixes == set(range(12))


def test_write_may_be_torn_between_sectors_in_any_order() -> None:
    fs = made()
    old, new = b"o" * 3 * 512, b"n" * 3 * 512
    put(fs, FILE, old)
    fs.open(FILE, write=True).write_at([new], 0)
    kept = {
        tuple(found[at : at + 512] == new[:512] for at in range(0, len(new), 512))
        for found in contents(fs)
        if all(len(set(found[at : at + 512])) == 1 for at in range(0, len(new), 512))
    }
    assert {(False, True, False), (True, False, True), (False, False, True)} <= kept


def test_sectors_are_those_of_the_file_and_not_of_the_write() -> None:
    fs = made()
    put(fs, FILE, b"o" * 2_000)
    fs.open(FILE, write=True).write_at([b"n" * 1_000], 500)
    later_alone = b"o" * 512 + b"n" * 988 + b"o" * 500
    assert later_alone in contents(fs)


def test_later_write_may_last_while_an_earlier_one_is_lost() -> None:
    fs = made()
    put(fs, FILE, b"........")
    file = fs.open(FILE, write=True)
    file.write_at([b"AA"], 0)
    file.write_at([b"BB"], 4)
    assert {b"AA......", b"....BB..", b"AA..BB..", b"........"} <= set(contents(fs))


def test_gap_that_a_lost_write_leaves_is_zeros() -> None:
    fs = made()
    put(fs, FILE, b"start")
    file = fs.open(FILE, write=True)
    file.write_at([b"lost"], 5)
    file.write_at([b"kept"], 9)
    assert b"start\0\0\0\0kept" in contents(fs)


def test_length_may_be_new_where_the_bytes_are_not() -> None:
    fs = made()
    put(fs, FILE, b"start")
    fs.open(FILE, write=True).write_at([b"data"], 5)
    assert b"start\0\0\0\0" in contents(fs)


def test_bytes_that_are_not_there_may_be_anything() -> None:
    fs = made()
    put(fs, FILE, b"start")
    fs.open(FILE, write=True).write_at([b"data"], 5)
    known = [b"start", b"startdata", b"start\0\0\0\0"]
    strange = [f for f in contents(fs) if len(f) == 9 and f not in known and f[5:9].strip(b"\0")]
    assert any(f[5:6] not in b"d\0" for f in strange)
    assert all(f.startswith(b"start") for f in strange)


def test_bytes_that_were_synced_are_never_anything_else_than_old_or_new() -> None:
    fs = made()
    put(fs, FILE, b"o" * 100)
    fs.open(FILE, write=True).write_at([b"n" * 50], 25)
    for found in contents(fs):
        assert len(found) == 100
        assert found[:25] == b"o" * 25
        assert set(found[25:75]) <= set(b"on")
        assert found[75:] == b"o" * 25


def test_truncation_may_be_undone() -> None:
    fs = made()
    put(fs, FILE, b"long content")
    fs.open(FILE, write=True).truncate(4)
    assert set(contents(fs)) == {b"long content", b"long"}


def test_truncation_may_be_undone_beneath_a_later_write() -> None:
    fs = made()
    put(fs, FILE, b"long content")
    file = fs.open(FILE, write=True)
    file.truncate(4)
    file.write_at([b"XY"], 4)
    found = set(contents(fs))
    assert {b"longXYontent", b"longXY", b"long", b"long content"} <= found
    # The old bytes may come back where the new ones were to be.
    assert b"long c" in found


def test_synced_truncation_lasts() -> None:
    fs = made()
    put(fs, FILE, b"long content")
    file = fs.open(FILE, write=True)
    file.truncate(4)
    file.sync()
    assert set(contents(fs)) == {b"long"}


def test_file_made_longer_by_truncation_may_have_its_old_length() -> None:
    fs = made()
    put(fs, FILE, b"ab")
    fs.open(FILE, write=True).truncate(5)
    found = set(contents(fs))
    assert {b"ab", b"ab\0\0\0"} <= found
    assert all(b"ab\0\0\0".startswith(data) for data in found)


def test_new_content_created_over_a_file_may_be_lost_to_the_old_one() -> None:
    fs = made()
    put(fs, FILE, b"old")
    fs.create(FILE).write_at([b"new"], 0)
    assert {b"old", b"new", b""} <= set(contents(fs))


# ---- names


def test_synced_file_without_a_synced_name_may_be_gone() -> None:
    fs = made()
    file = fs.create(FILE)
    file.write_at([b"data"], 0)
    file.sync()
    assert [dict(found) for found in trees(fs)] == [{}, {"file": b"data"}]


def test_synced_name_without_synced_bytes_may_be_empty() -> None:
    fs = made()
    fs.create(FILE).write_at([b"data"], 0)
    fs.sync_directory(TOP)
    found = trees(fs)
    assert found[0] == {"file": b""}
    assert all("file" in image for image in found)


def test_names_are_lost_from_the_last_one_backwards() -> None:
    fs = made()
    for name in "abc":
        fs.create(TOP / name)
    fs.remove(TOP / "a")
    order = [set(), {"a"}, {"a", "b"}, {"a", "b", "c"}, {"b", "c"}]
    assert names(fs) == {frozenset(found) for found in order}


def test_directories_lose_names_independently() -> None:
    fs = made()
    for directory in ("x", "y"):
        fs.make_directory(TOP / directory)
    fs.sync_directory(TOP)
    fs.create(TOP / "x" / "first")
    fs.create(TOP / "y" / "second")
    found = {frozenset(name for name in image if "/" in name) for image in trees(fs)}
    assert found == {
        frozenset(),
        frozenset({"x/first"}),
        frozenset({"y/second"}),
        frozenset({"x/first", "y/second"}),
    }


def test_synced_directory_keeps_its_names_but_not_its_own() -> None:
    fs = made()
    fs.make_directory(TOP / "x")
    put(fs, TOP / "x" / "file", b"data")
    assert names(fs) == {frozenset(), frozenset({"x", "x/file"})}
    fs.sync_directory(TOP)
    assert names(fs) == {frozenset({"x", "x/file"})}


def test_removal_that_was_not_synced_may_be_undone() -> None:
    fs = made()
    put(fs, FILE, b"data")
    fs.remove(FILE)
    assert trees(fs) == [{"file": b"data"}, {}]
    fs.sync_directory(TOP)
    assert trees(fs) == [{}, {}]


def test_rename_that_was_not_synced_leaves_one_name_or_the_other() -> None:
    fs = made()
    put(fs, FILE, b"data")
    fs.rename(FILE, TOP / "new")
    assert trees(fs) == [{"file": b"data"}, {"new": b"data"}]


def test_rename_over_a_file_leaves_the_one_or_the_other_content() -> None:
    fs = made()
    put(fs, FILE, b"old")
    put(fs, TOP / "file.tmp", b"new")
    fs.rename(TOP / "file.tmp", FILE)
    assert trees(fs) == [{"file": b"old", "file.tmp": b"new"}, {"file": b"new"}]


def test_rename_may_last_before_the_bytes_do() -> None:
    fs = made()
    put(fs, FILE, b"old")
    temporary = TOP / "file.tmp"
    fs.create(temporary).write_at([b"new"], 0)
    fs.rename(temporary, FILE)
    fs.sync_directory(TOP)
    assert trees(fs)[0] == {"file": b""}


def test_replace_durably_leaves_the_old_content_or_the_new_at_every_moment() -> None:
    fs = made()
    put(fs, FILE, b"old")
    found = set()

    def look(_: FileOperation) -> None:
        found.update(contents(fs, 50))

    fs.on_operation = look
    fs.replace_durably(FILE, b"new")
    assert found == {b"old", b"new"}
    assert set(contents(fs)) == {b"new"}


def test_rename_between_directories_lasts_whole_or_not_at_all() -> None:
    fs = made()
    for name in ("x", "y"):
        fs.make_directory(TOP / name)
    fs.sync_directory(TOP)
    put(fs, TOP / "x" / "file", b"data")
    fs.create(TOP / "x" / "before")
    fs.create(TOP / "y" / "before")
    fs.rename(TOP / "x" / "file", TOP / "y" / "file")
    fs.create(TOP / "y" / "after")
    found = {frozenset(name for name in image if "/" in name) for image in trees(fs)}
    for image in found:
        assert ("x/file" in image) != ("y/file" in image)
        if "y/file" in image:
            assert {"x/before", "y/before"} <= image
    assert {"x/file"} in found
    assert {"y/file", "x/before", "y/before"} in found
    assert {"x/file", "x/before"} in found


@pytest.mark.parametrize("synced", ["x", "y"])
def test_sync_of_either_directory_makes_a_rename_between_them_last(synced: str) -> None:
    fs = made()
    for name in ("x", "y"):
        fs.make_directory(TOP / name)
    fs.sync_directory(TOP)
    put(fs, TOP / "x" / "file", b"data")
    fs.rename(TOP / "x" / "file", TOP / "y" / "file")
    fs.sync_directory(TOP / synced)
    assert trees(fs) == [{"x": None, "y": None, "y/file": b"data"}] * 2


def test_directory_is_renamed_with_all_that_is_in_it() -> None:
    fs = made()
    fs.make_directory(TOP / "x")
    fs.sync_directory(TOP)
    put(fs, TOP / "x" / "file", b"data")
    fs.rename(TOP / "x", TOP / "y")
    assert trees(fs) == [{"x": None, "x/file": b"data"}, {"y": None, "y/file": b"data"}]


def test_what_is_below_a_directory_that_comes_back_is_as_far_gone_as_was_synced() -> None:
    fs = made()
    fs.make_directory(TOP / "x")
    fs.sync_directory(TOP)
    for name in ("a", "b"):
        put(fs, TOP / "x" / name, b"data")
    fs.remove_tree(TOP / "x")
    assert names(fs) == {
        frozenset({"x", "x/a", "x/b"}),
        frozenset({"x", "x/b"}),
        frozenset({"x"}),
        frozenset(),
    }


# ---- failures


def failing(
    kind: FileOperationKind, path: Path, number: int = errno.EIO
) -> Callable[[FileOperation], OSError | None]:
    def fail(operation: FileOperation) -> OSError | None:
        if operation.kind is kind and operation.path == path:
            return OSError(number, "injected", str(path))
        return None

    return fail


def test_bytes_of_a_failed_sync_are_read_but_lost_whatever_is_synced_later() -> None:
    fs = made()
    put(fs, FILE, b"old,")
    file = fs.open(FILE, write=True)
    file.write_at([b"lost,"], 4)
    fs.fail = failing(FileOperationKind.SYNC, FILE)
    with pytest.raises(OSError, match="injected"):
        file.sync()
    fs.fail = None
    assert fs.read_bytes(FILE) == b"old,lost,"
    file.sync()
    assert b"old,lost," not in contents(fs)
    file.write_at([b"later"], 9)
    file.sync()
    assert fs.read_bytes(FILE) == b"old,lost,later"
    assert set(contents(fs)) == {b"old,\0\0\0\0\0later"}
    assert fs.process_crash().read_bytes(FILE) == b"old,lost,later"


def test_file_is_whole_again_once_the_lost_bytes_were_written_anew() -> None:
    fs = made()
    put(fs, FILE, b"")
    file = fs.open(FILE, write=True)
    file.write_at([b"lost"], 0)
    fs.fail = failing(FileOperationKind.SYNC, FILE)
    with pytest.raises(OSError, match="injected"):
        file.sync()
    fs.fail = None
    file.write_at([b"lost"], 0)
    file.sync()
    assert contents(fs) == [b"lost", b"lost"]


def test_names_that_failed_to_sync_may_be_synced_later() -> None:
    fs = made()
    fs.create(FILE)
    fs.fail = failing(FileOperationKind.SYNC_DIRECTORY, TOP)
    with pytest.raises(OSError, match="injected"):
        fs.sync_directory(TOP)
    assert trees(fs)[0] == {}
    fs.fail = None
    fs.sync_directory(TOP)
    assert trees(fs)[0] == {"file": b""}


def test_failed_read_and_write_change_nothing() -> None:
    fs = made()
    put(fs, FILE, b"data")
    file = fs.open(FILE, write=True)
    fs.fail = failing(FileOperationKind.READ, FILE)
    with pytest.raises(OSError, match="injected"):
        file.read_at(1, 0)
    with pytest.raises(OSError, match="injected"):
        fs.read_bytes(FILE)
    fs.fail = failing(FileOperationKind.WRITE, FILE)
    with pytest.raises(OSError, match="injected"):
        file.write_at([b"more"], 4)
    fs.fail = None
    assert fs.read_bytes(FILE) == b"data"


def test_injected_full_disk_is_told_as_such() -> None:
    fs = made()
    file = fs.create(FILE)
    fs.fail = failing(FileOperationKind.WRITE, FILE, errno.ENOSPC)
    with pytest.raises(NoSpaceError, match="/logs/file: the file system is full"):
        file.write_at([b"data"], 0)


def test_write_to_a_full_disk_writes_what_fits() -> None:
    fs = made(capacity_bytes=10)
    put(fs, TOP / "other", b"1234")
    assert fs.free_bytes(TOP) == 6
    file = fs.create(FILE)
    with pytest.raises(NoSpaceError, match="/logs/file: the file system is full"):
        file.write_at([b"abcd", b"efgh"], 0)
    assert fs.read_bytes(FILE) == b"abcdef"
    assert fs.free_bytes(TOP) == 0
    with pytest.raises(NoSpaceError):
        file.write_at([b"x"], 6)
    file.write_at([b"ABC"], 2)  # what is there already takes no room
    assert fs.read_bytes(FILE) == b"abABCf"


def test_removed_file_takes_room_as_long_as_it_is_open() -> None:
    fs = made(capacity_bytes=10)
    put(fs, FILE, b"12345678")
    file = fs.open(FILE)
    fs.remove(FILE)
    assert fs.free_bytes(TOP) == 2
    file.close()
    assert fs.free_bytes(TOP) == 10


# ---- crashes of programs, copies


def test_killed_program_leaves_all_bytes_and_names_but_no_locks() -> None:
    fs = made()
    fs.create(FILE).write_at([b"data"], 0)
    lock = fs.lock(TOP)
    after = fs.process_crash()
    assert tree(after) == {"file": b"data", ".lock": b""}
    after.lock(TOP)
    with pytest.raises(DirectoryInUseError):
        fs.lock(TOP)
    lock.release()
    assert tree(fs) == {"file": b"data"}
    assert tree(after) == {"file": b"data", ".lock": b""}


def test_what_a_killed_program_did_not_sync_may_still_be_lost() -> None:
    fs = made()
    put(fs, FILE, b"old")
    fs.open(FILE, write=True).write_at([b"new"], 0)
    assert {b"old", b"new"} <= set(contents(fs.process_crash()))


def test_images_hold_no_locks_and_can_lose_power_again() -> None:
    fs = made()
    put(fs, FILE, b"")
    fs.lock(TOP)
    fs.open(FILE, write=True).write_at([b"first"], 0)
    image = images(fs, 2)[1]
    image.lock(TOP)
    file = image.open(FILE, write=True)
    file.write_at([b"second"], 5)
    assert image.read_bytes(FILE) == b"firstsecond"
    assert all(found.startswith(b"first") for found in contents(image))
    assert b"first" in contents(image)


def test_clone_goes_its_own_way() -> None:
    fs = made()
    put(fs, FILE, b"a" * 10_000)
    fs.lock(TOP)
    copy = fs.clone()
    with pytest.raises(DirectoryInUseError):
        copy.lock(TOP)
    copy.open(FILE, write=True).write_at([b"b"], 5_000)
    copy.create(TOP / "new")
    assert fs.read_bytes(FILE) == b"a" * 10_000
    assert not fs.exists(TOP / "new")
    fs.remove(FILE)
    assert copy.read_bytes(FILE) == b"a" * 5_000 + b"b" + b"a" * 4_999


def test_clone_keeps_what_was_not_synced_apart() -> None:
    fs = made()
    put(fs, FILE, b"old")
    fs.open(FILE, write=True).write_at([b"new"], 0)
    copy = fs.clone()
    fs.open(FILE).sync()
    assert set(contents(fs)) == {b"new"}
    assert {b"old", b"new"} <= set(contents(copy))


def test_images_are_of_the_moment_they_were_asked_for() -> None:
    fs = made()
    put(fs, FILE, b"old")
    found = fs.crash_images(2, random.Random(1))
    fs.remove(FILE)
    assert [image.read_bytes(FILE) for image in found] == [b"old", b"old"]


def test_same_chance_gives_the_same_images() -> None:
    fs = made()
    file = fs.create(FILE)
    for number in range(5):
        file.write_at([b"%d" % number * 700], number * 700)
    assert trees(fs) == trees(fs)


def test_real_directory_is_loaded_and_stored(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "sub").mkdir(parents=True)
    (real / "a").write_bytes(b"a" * 9_000)
    (real / "sub" / "b").write_bytes(b"")
    fs = SimulatedFileSystem()
    fs.load(real, TOP)
    assert tree(fs) == {"a": b"a" * 9_000, "sub": None, "sub/b": b""}
    assert trees(fs) == [tree(fs)] * 2
    assert fs.facts_of(TOP / "a").modified_ns == (real / "a").stat().st_mtime_ns
    fs.open(TOP / "a", write=True).write_at([b"b"], 9_000)
    fs.set_modified(TOP / "a", 5_000_000)
    fs.store(tmp_path / "copy", TOP)
    assert (tmp_path / "copy" / "a").read_bytes() == b"a" * 9_000 + b"b"
    assert (tmp_path / "copy" / "a").stat().st_mtime_ns == 5_000_000
    assert (tmp_path / "copy" / "sub" / "b").read_bytes() == b""
    fs.load(real)
    assert tree(fs, real) == {"a": b"a" * 9_000, "sub": None, "sub/b": b""}


# ---- operations


def test_changes_are_announced_before_they_take_effect() -> None:
    fs = made()
    put(fs, TOP / "model", b"")
    before = fs.operations
    seen: list[tuple[FileOperationKind, str, int]] = []
    existed: list[bool] = []

    def note(operation: FileOperation) -> None:
        seen.append((operation.kind, operation.path.name, operation.size))
        existed.append(fs.exists(FILE))

    fs.on_operation = note
    file = fs.create(FILE)
    file.write_at([b"ab", b"cd"], 0)
    file.truncate(3)
    file.sync()
    file.read_at(3, 0)
    fs.rename(FILE, TOP / "new")
    fs.make_directory(TOP / "x" / "y")
    fs.remove_directory(TOP / "x" / "y")
    fs.set_modified(TOP / "new", 1)
    fs.take_after(TOP / "new", fs.facts_of(TOP / "model"))
    fs.remove(TOP / "new")
    fs.sync_directory(TOP)
    assert seen == [
        (FileOperationKind.CREATE, "file", 0),
        (FileOperationKind.WRITE, "file", 4),
        (FileOperationKind.TRUNCATE, "file", 3),
        (FileOperationKind.SYNC, "file", 3),
        (FileOperationKind.RENAME, "file", 0),
        (FileOperationKind.MAKE_DIRECTORY, "x", 0),
        (FileOperationKind.MAKE_DIRECTORY, "y", 0),
        (FileOperationKind.REMOVE_DIRECTORY, "y", 0),
        (FileOperationKind.SET_MODIFIED, "new", 0),
        (FileOperationKind.TAKE_AFTER, "new", 0),
        (FileOperationKind.REMOVE, "new", 0),
        (FileOperationKind.SYNC_DIRECTORY, "logs", 0),
    ]
    assert fs.operations - before == len(seen)
    assert existed[:2] == [False, True]


def test_what_changes_nothing_is_not_announced() -> None:
    fs = made()
    put(fs, FILE, b"data")
    before = fs.operations
    fs.remove(TOP / "none")
    fs.make_directory(TOP)
    fs.rename(FILE, FILE)
    file = fs.open(FILE, write=True)
    file.write_at([], 0)
    file.truncate(4)
    with pytest.raises(FileNotFoundError):
        fs.rename(TOP / "none", TOP / "new")
    assert fs.operations == before


def test_program_can_be_stopped_at_an_operation() -> None:
    class Killed(BaseException):
        pass

    def kill(operation: FileOperation) -> None:
        if operation.kind is FileOperationKind.RENAME:
            raise Killed

    fs = made()
    put(fs, FILE, b"old")
    fs.on_operation = kill
    with pytest.raises(Killed):
        fs.replace_durably(FILE, b"new")
    assert tree(fs.process_crash()) == {"file": b"old", "file.tmp": b"new"}


def test_reads_are_shown_to_fail_alone() -> None:
    fs = made()
    put(fs, FILE, b"data")
    seen: list[FileOperationKind] = []

    def note(operation: FileOperation) -> OSError | None:
        seen.append(operation.kind)
        return None

    fs.fail = note
    fs.open(FILE).read_at(2, 0)
    fs.entries_in(TOP)
    fs.facts_of(FILE)
    assert seen == [
        FileOperationKind.OPEN,
        FileOperationKind.READ,
        FileOperationKind.LIST,
        FileOperationKind.LOOK,
    ]


# ---- times, sizes, threads


def test_times_are_those_of_the_clock() -> None:
    clock = ManualClock(1_000)
    fs = SimulatedFileSystem(clock)
    fs.make_directory(TOP)
    file = fs.create(FILE)
    assert fs.facts_of(FILE).modified_ms == 1_000
    clock.advance(500)
    file.write_at([b"x"], 0)
    assert fs.facts_of(FILE).modified_ms == 1_500
    assert fs.facts_of(TOP).modified_ms == 1_000
    clock.advance(500)
    fs.remove(FILE)
    assert fs.facts_of(TOP).modified_ms == 2_000


def test_files_that_nobody_can_reach_any_more_are_forgotten() -> None:
    fs = made()
    kept = fs.create(TOP / "kept")
    kept.write_at([b"kept"], 0)
    fs.remove(TOP / "kept")
    for number in range(3_000):
        path = TOP / str(number)
        put(fs, path, b"x")
        fs.remove(path)
    fs.sync_directory(TOP)
    put(fs, FILE, b"")
    fs.remove(FILE)
    assert len(fs._tree.nodes) < 1_000
    assert kept.read_at(4, 0) == b"kept"


def test_threads_write_side_by_side() -> None:
    fs = made()
    file = fs.create(FILE)

    def write(number: int) -> None:
        for at in range(200):
            file.write_at([b"%d" % number * 10], (at * 4 + number) * 10)
            fs.replace_durably(TOP / f"checkpoint-{number}", b"%d" % at)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fs.read_bytes(FILE) == b"".join(b"%d" % n * 10 for n in range(4)) * 200
    assert all(fs.read_bytes(TOP / f"checkpoint-{number}") == b"199" for number in range(4))
