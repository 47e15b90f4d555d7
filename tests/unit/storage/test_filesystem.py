"""Contract of every `FileSystem`: the machine's and the simulated one agree, in errors too."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cordwood.model.errors import DirectoryInUseError, NoSpaceError, NotARegularFileError
from cordwood.storage.filesystem import OS, DirectoryLock, Entry, File, FileSystem, FileWriter
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.failing_disks import fill, may_mount, small_disk


@dataclass
class Place:
    """A file system and an empty directory in it."""

    fs: FileSystem
    top: Path

    def put(self, name: str, data: bytes = b"") -> Path:
        path = self.top / name
        file = self.fs.create(path)
        file.write_at([data], 0)
        file.close()
        return path

    def names(self) -> list[str]:
        return self.fs.names_in(self.top)


@pytest.fixture(params=["machine", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    fs = OS if request.param == "machine" else SimulatedFileSystem()
    fs.make_directory(tmp_path)
    return Place(fs, tmp_path)


def refusal(number: int) -> pytest.RaisesExc[OSError]:
    """The operating system's error of that number."""
    return pytest.raises(OSError, match=re.escape(f"[Errno {number}] {os.strerror(number)}"))


class TestContract:
    # ---- files

    def test_new_file_is_empty_and_can_be_written_and_read(self, place: Place) -> None:
        file = place.fs.create(place.top / "file")
        assert file.size() == 0
        file.write_at([b"hello ", bytearray(b"wide "), memoryview(b"world")], 0)
        assert file.size() == 16
        assert file.read_at(100, 0) == b"hello wide world"
        assert file.read_at(4, 6) == b"wide"
        assert file.read_at(4, 16) == b""
        assert file.read_at(4, 99) == b""
        file.sync()
        file.close()

    def test_read_into_a_buffer_says_how_many_bytes_came(self, place: Place) -> None:
        file = place.fs.open(place.put("file", b"0123456789"))
        buffer = bytearray(4)
        assert file.read_into(memoryview(buffer), 3) == 4
        assert buffer == b"3456"
        assert file.read_into(memoryview(buffer)[1:], 8) == 2
        assert buffer == b"3896"
        assert file.read_into(memoryview(buffer), 10) == 0

    def test_write_beyond_the_end_leaves_zeros(self, place: Place) -> None:
        file = place.fs.create(place.top / "file")
        file.write_at([b"x"], 10_000)
        assert file.read_at(20_000, 0) == bytes(10_000) + b"x"

    def test_write_of_nothing_changes_nothing(self, place: Place) -> None:
        file = place.fs.create(place.top / "file")
        file.write_at([], 5)
        file.write_at([b"", b""], 5)
        assert file.size() == 0

    def test_write_of_more_parts_than_one_call_takes(self, place: Place) -> None:
        parts = [b"%05d" % number for number in range(5_000)]
        file = place.fs.create(place.top / "file")
        file.write_at(parts, 3)
        assert file.read_at(30_000, 0) == bytes(3) + b"".join(parts)

    def test_writes_across_pages(self, place: Place) -> None:
        expected = bytearray()
        file = place.fs.create(place.top / "file")
        for number in range(40):
            data = bytes([number]) * (number * 97)
            position = number * 523 % (len(expected) + 1)
            file.write_at([data], position)
            expected[position : position + len(data)] = data
        assert file.read_at(1 << 20, 0) == expected

    def test_truncation_cuts_off_and_fills_up(self, place: Place) -> None:
        file = place.fs.create(place.top / "file")
        file.write_at([b"a" * 9_000], 0)
        for size in (8_192, 5_000, 5_000, 4_096, 9_000, 12_288, 12_289, 0, 1):
            before = file.read_at(1 << 20, 0)
            file.truncate(size)
            after = file.read_at(1 << 20, 0)
            assert after == before[:size] + bytes(max(0, size - len(before)))

    def test_create_empties_a_file_that_is_there(self, place: Place) -> None:
        path = place.put("file", b"old")
        held = place.fs.open(path)
        place.fs.create(path)
        assert place.fs.read_bytes(path) == b""
        assert held.size() == 0, "it is the same file still"

    def test_file_opened_for_reading_cannot_be_written(self, place: Place) -> None:
        file = place.fs.open(place.put("file", b"data"))
        with refusal(errno.EBADF) as caught:
            file.write_at([b"x"], 0)
        assert caught.value.filename == str(place.top / "file")
        with refusal(errno.EINVAL):
            file.truncate(0)
        file.sync()

    def test_closed_file_is_of_no_more_use(self, place: Place) -> None:
        file = place.fs.open(place.put("file", b"data"), write=True)
        file.close()
        file.close()
        uses: list[Callable[[], Any]] = [
            lambda: file.read_at(1, 0),
            lambda: file.read_into(memoryview(bytearray(1)), 0),
            lambda: file.write_at([b"x"], 0),
            lambda: file.truncate(0),
            file.sync,
            file.size,
        ]
        for use in uses:
            with refusal(errno.EBADF):
                use()

    def test_positions_below_zero_are_refused(self, place: Place) -> None:
        path = place.put("file", b"data")
        file = place.fs.open(path, write=True)
        with refusal(errno.EINVAL):
            file.truncate(-1)
        with refusal(errno.EINVAL):
            file.read_at(1, -1)
        with pytest.raises(AssertionError, match="position -1"):
            file.read_into(memoryview(bytearray(1)), -1)
        with pytest.raises(AssertionError, match="position -1"):
            file.write_at([b"x"], -1)
        assert place.fs.read_bytes(path) == b"data"

    def test_open_file_outlives_its_name(self, place: Place) -> None:
        path = place.put("file", b"data")
        file = place.fs.open(path, write=True)
        place.fs.rename(path, place.top / "new")
        file.write_at([b"DA"], 0)
        assert place.fs.read_bytes(place.top / "new") == b"DAta"
        place.fs.remove(place.top / "new")
        place.put("new", b"another")
        file.write_at([b"TA"], 2)
        assert file.read_at(9, 0) == b"DATA"
        assert place.fs.read_bytes(place.top / "new") == b"another"

    def test_open_of_what_is_not_there(self, place: Place) -> None:
        for path in (place.top / "none", place.top / "none" / "file"):
            for write in (False, True):
                with pytest.raises(FileNotFoundError) as caught:
                    place.fs.open(path, write=write)
                assert caught.value.filename == str(path)
        with pytest.raises(FileNotFoundError):
            place.fs.create(place.top / "none" / "file")

    def test_file_is_no_directory(self, place: Place) -> None:
        path = place.put("file")
        uses: list[Callable[[], Any]] = [
            lambda: place.fs.open(path / "x"),
            lambda: place.fs.create(path / "x"),
            lambda: place.fs.entries_in(path),
            lambda: place.fs.facts_of(path / "x"),
            lambda: place.fs.sync_directory(path),
            lambda: place.fs.remove_directory(path),
            lambda: place.fs.remove(path / "x"),
            lambda: place.fs.make_directory(path / "x"),
            lambda: place.fs.rename(path, path / "x"),
        ]
        for use in uses:
            with pytest.raises(NotADirectoryError):
                use()
        assert place.names() == ["file"]

    def test_directory_is_no_file(self, place: Place) -> None:
        path = place.top / "x"
        place.fs.make_directory(path)
        uses: list[Callable[[], Any]] = [
            lambda: place.fs.open(path, write=True),
            lambda: place.fs.open(path).read_at(1, 0),
            lambda: place.fs.create(path),
            lambda: place.fs.remove(path),
        ]
        for use in uses:
            with pytest.raises(IsADirectoryError) as caught:
                use()
            assert caught.value.filename == str(path)
        assert place.names() == ["x"]

    def test_name_that_is_too_long(self, place: Place) -> None:
        place.put("n" * 255)
        for name in ("n" * 256, "\N{SNOWMAN}" * 86):
            path = place.top / name
            assert not place.fs.exists(path)
            for use in (place.fs.create, place.fs.open, place.fs.make_directory):
                with refusal(errno.ENAMETOOLONG):
                    use(path)
            with refusal(errno.ENAMETOOLONG):
                place.fs.rename(place.top / ("n" * 255), path)

    # ---- directories

    def test_directory_lists_what_it_holds_by_name(self, place: Place) -> None:
        place.put("b")
        place.put("c")
        place.fs.make_directory(place.top / "a" / "deep")
        assert place.fs.entries_in(place.top) == [
            Entry("a", is_directory=True),
            Entry("b", is_directory=False, is_regular=True),
            Entry("c", is_directory=False, is_regular=True),
        ]
        assert place.names() == ["a", "b", "c"]

    def test_what_exists_and_what_is_a_directory(self, place: Place) -> None:
        path = place.put("file")
        fs = place.fs
        assert (fs.exists(path), fs.is_directory(path)) == (True, False)
        assert (fs.exists(place.top), fs.is_directory(place.top)) == (True, True)
        for none in (place.top / "none", path / "below", place.top / "none" / "below"):
            assert (fs.exists(none), fs.is_directory(none)) == (False, False)

    def test_making_a_directory_that_is_there_is_no_error(self, place: Place) -> None:
        place.fs.make_directory(place.top / "x" / "y")
        place.put("x/y/file")
        place.fs.make_directory(place.top / "x" / "y")
        assert place.fs.names_in(place.top / "x" / "y") == ["file"]

    def test_directory_is_not_made_in_the_place_of_a_file(self, place: Place) -> None:
        with pytest.raises(FileExistsError):
            place.fs.make_directory(place.put("file"))

    def test_directory_is_removed_when_empty(self, place: Place) -> None:
        place.fs.make_directory(place.top / "x")
        path = place.put("x/file")
        with refusal(errno.ENOTEMPTY):
            place.fs.remove_directory(place.top / "x")
        place.fs.remove(path)
        place.fs.remove_directory(place.top / "x")
        assert place.names() == []
        with pytest.raises(FileNotFoundError):
            place.fs.remove_directory(place.top / "x")

    def test_directory_that_is_not_there(self, place: Place) -> None:
        path = place.top / "none"
        for use in (place.fs.entries_in, place.fs.sync_directory, place.fs.free_bytes):
            with pytest.raises(FileNotFoundError):
                use(path)

    def test_tree_is_removed_with_all_in_it(self, place: Place) -> None:
        place.fs.make_directory(place.top / "x" / "y")
        place.put("x/file")
        place.put("x/y/file")
        place.fs.remove_tree(place.top / "x")
        place.fs.remove_tree(place.top / "x")
        assert place.names() == []

    # ---- names

    def test_rename_takes_the_place_of_a_file(self, place: Place) -> None:
        path, target = place.put("file", b"new"), place.put("target", b"old")
        place.fs.rename(path, target)
        assert place.names() == ["target"]
        assert place.fs.read_bytes(target) == b"new"

    def test_rename_to_its_own_name_changes_nothing(self, place: Place) -> None:
        path = place.put("file", b"data")
        place.fs.rename(path, path)
        place.fs.rename(place.top, place.top)
        assert place.fs.read_bytes(path) == b"data"

    def test_rename_between_directories(self, place: Place) -> None:
        for name in ("x", "y"):
            place.fs.make_directory(place.top / name)
        place.fs.rename(place.put("x/file", b"data"), place.top / "y" / "new")
        assert place.fs.names_in(place.top / "x") == []
        assert place.fs.read_bytes(place.top / "y" / "new") == b"data"

    def test_directory_is_renamed_with_all_in_it_also_over_an_empty_one(self, place: Place) -> None:
        for name in ("x", "empty"):
            place.fs.make_directory(place.top / name)
        place.put("x/file", b"data")
        place.fs.rename(place.top / "x", place.top / "empty")
        assert place.names() == ["empty"]
        assert place.fs.read_bytes(place.top / "empty" / "file") == b"data"

    def test_renames_that_cannot_be(self, place: Place) -> None:
        file, directory, full = place.put("file"), place.top / "x", place.top / "full"
        place.fs.make_directory(directory)
        place.fs.make_directory(full)
        place.put("full/inside")
        refused = [
            (place.top / "none", place.top / "new", errno.ENOENT),
            (file, place.top / "none" / "new", errno.ENOENT),
            (file, directory, errno.EISDIR),
            (directory, file, errno.ENOTDIR),
            (directory, full, errno.ENOTEMPTY),
            (directory, directory / "below", errno.EINVAL),
            (file / "below", place.top / "new", errno.ENOTDIR),
        ]
        for path, target, number in refused:
            with refusal(number):
                place.fs.rename(path, target)
        assert place.names() == ["file", "full", "x"]

    def test_removal_of_what_is_gone_is_no_error(self, place: Place) -> None:
        path = place.put("file")
        place.fs.remove(path)
        place.fs.remove(path)
        place.fs.remove(place.top / "none" / "file")
        assert place.names() == []

    # ---- facts

    def test_facts_of_a_file(self, place: Place) -> None:
        path = place.put("file", b"12345")
        place.fs.set_modified(path, 1_234_567_890_123)
        facts = place.fs.facts_of(path)
        assert facts.size_bytes == 5
        assert facts.modified_ns == 1_234_567_890_123
        assert facts.modified_ms == 1_234_567
        for use in (place.fs.facts_of, lambda none: place.fs.set_modified(none, 1)):
            with pytest.raises(FileNotFoundError):
                use(place.top / "none")

    def test_owner_and_mode_are_taken_from_a_model(self, place: Place) -> None:
        path, other = place.put("file"), place.put("other")
        model = place.fs.facts_of(path)
        place.fs.take_after(other, model)
        assert place.fs.facts_of(other).mode == model.mode
        place.fs.take_after_directory(other, place.top)
        owner = place.fs.facts_of(place.top)
        facts = place.fs.facts_of(other)
        assert (facts.uid, facts.gid, facts.mode) == (owner.uid, owner.gid, model.mode)

    def test_free_bytes(self, place: Place) -> None:
        assert place.fs.free_bytes(place.top) > 0

    # ---- what is made of it

    def test_whole_files_written_replaced_and_appended_to(self, place: Place) -> None:
        path = place.top / "file"
        place.fs.replace_durably(path, b"first")
        assert place.fs.read_bytes(path) == b"first"
        place.fs.append_durably(path, b" line")
        assert place.fs.read_bytes(path) == b"first line"
        place.fs.write_durably(path, b"2nd")
        assert place.fs.read_bytes(path) == b"2nd"
        place.fs.replace_durably(path, memoryview(b"third"))
        assert place.fs.read_bytes(path) == b"third"
        assert place.names() == ["file"]
        with pytest.raises(FileNotFoundError):
            place.fs.append_durably(place.top / "none", b"x")
        with pytest.raises(FileNotFoundError):
            place.fs.read_bytes(place.top / "none")
        with pytest.raises(IsADirectoryError):
            place.fs.read_bytes(place.top)

    def test_writer_counts_what_it_has_written(self, place: Place) -> None:
        writer = FileWriter(place.top / "file", fs=place.fs)
        writer.write(b"abc")
        writer.write(memoryview(b"def"))
        assert writer.size_bytes == 6
        writer.close()
        assert place.fs.read_bytes(place.top / "file") == b"abcdef"

    def test_lock_is_a_file_while_it_is_held(self, place: Place) -> None:
        lock = place.fs.lock(place.top)
        assert place.names() == [".lock"]
        lock.release()
        assert place.names() == []
        place.fs.lock(place.top).release()
        with pytest.raises(FileNotFoundError):
            place.fs.lock(place.top / "none")


# ---- the machine's own


def test_lock_that_another_process_holds(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if DirectoryLock.holder(tmp_path) != os.getppid():
                status = 2
            with suppress(DirectoryInUseError):
                OS.lock(tmp_path)
                status = 2
            status = 0 if status == 1 else status
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_file_closes_itself_when_nothing_refers_to_it(tmp_path: Path) -> None:
    file = OS.create(tmp_path / "file")
    handle = file.fileno()
    assert os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path / "file")
    del file
    with pytest.raises(FileNotFoundError):
        os.readlink(f"/proc/self/fd/{handle}")


@pytest.mark.skipif(bool(may_mount()), reason=may_mount())
def test_full_disk_is_told_as_such(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        file = OS.create(disk / "file")
        fill(disk)
        with pytest.raises(NoSpaceError, match="file: the file system is full"):
            file.write_at([b"x"], 0)
        file.close()


@pytest.mark.parametrize("write", [False, True])
def test_fifo_and_device_are_refused_without_waiting(tmp_path: Path, write: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(NotARegularFileError, match="not a regular file"):
            OS.open(path, write=write)
        with pytest.raises(NotARegularFileError):
            OS.create(path)
        with pytest.raises(NotARegularFileError):
            OS.require_regular(path)


def test_file_that_a_process_writes_to_is_known_by_any_of_its_names(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    (tmp_path / "hard").hardlink_to(path)
    (tmp_path / "soft").symlink_to(path)
    names = [path, tmp_path / "hard", tmp_path / "soft"]
    assert not any(OS.is_open_for_writing(name) for name in names)
    reader = OS.open(path)
    assert not any(OS.is_open_for_writing(name) for name in names)
    writer = OS.open(path, write=True)
    assert all(OS.is_open_for_writing(name) for name in names)
    writer.close()
    reader.close()
    assert not any(OS.is_open_for_writing(name) for name in names)


def test_circle_of_links_is_no_directory_and_hides_no_other_name(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "x").mkdir()
    assert OS.entries_in(tmp_path) == [
        Entry("circle", is_directory=False, is_link=True),
        Entry("x", is_directory=True),
    ]


def test_simulated_file_has_no_descriptor(tmp_path: Path) -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(tmp_path)
    with pytest.raises(OSError, match="no descriptor"):
        fs.create(tmp_path / "file").fileno()


def test_lock_of_a_simulated_file_system_that_is_held() -> None:
    fs = SimulatedFileSystem()
    lock = fs.lock(Path("/"))
    with pytest.raises(DirectoryInUseError, match=r"Failed to acquire lock on file \.lock in /\."):
        fs.lock(Path("/"))
    lock.release()
    again = fs.lock(Path("/"))
    lock.release()
    assert fs.names_in(Path("/")) == [".lock"], "released once is released"
    again.release()


# ---- anything at all, on both


_NAMES = st.sampled_from(["a", "b", "c"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_POSITIONS = st.one_of(st.integers(0, 20), st.sampled_from([4_095, 4_096, 4_097, 10_000]))
_DATA = st.one_of(
    st.binary(max_size=12), st.integers(4_000, 9_000).map(lambda size: b"\x5a" * size)
)


class BothFileSystems(RuleBasedStateMachine):
    """The same operations on both, which must give the same."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.simulated = SimulatedFileSystem()
        self.simulated.make_directory(self.top)
        self.files: list[tuple[File, File]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.top)

    def on_both(self, use: Callable[[FileSystem], Any]) -> None:
        self.same(lambda: use(OS), lambda: use(self.simulated))

    def same(self, one: Callable[[], Any], other: Callable[[], Any]) -> tuple[Any, Any] | None:
        found = []
        for call in (one, other):
            try:
                found.append(("value", call()))
            except OSError as error:
                names = (error.filename, error.filename2)
                found.append(("error", (type(error), error.errno, *names)))
        if found[0][0] == found[1][0] == "value" and hasattr(found[0][1], "read_at"):
            return found[0][1], found[1][1]
        assert found[0] == found[1]
        return None

    def opened(self, use: Callable[[FileSystem], File]) -> None:
        files = self.same(lambda: use(OS), lambda: use(self.simulated))
        if files is not None:
            self.files.append(files)
            del self.files[:-4]

    @rule(name=_PATHS)
    def create(self, name: str) -> None:
        self.opened(lambda fs: fs.create(self.top / name))

    @rule(name=_PATHS, write=st.booleans())
    def open(self, name: str, write: bool) -> None:
        self.opened(lambda fs: fs.open(self.top / name, write=write))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 3), data=_DATA, position=_POSITIONS)
    def write(self, which: int, data: bytes, position: int) -> None:
        one, other = self.files[which % len(self.files)]
        self.same(lambda: one.write_at([data], position), lambda: other.write_at([data], position))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 3), size=_POSITIONS)
    def truncate(self, which: int, size: int) -> None:
        one, other = self.files[which % len(self.files)]
        self.same(lambda: one.truncate(size), lambda: other.truncate(size))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 3), size=_POSITIONS, position=_POSITIONS)
    def read(self, which: int, size: int, position: int) -> None:
        one, other = self.files[which % len(self.files)]
        self.same(lambda: one.read_at(size, position), lambda: other.read_at(size, position))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 3))
    def close(self, which: int) -> None:
        one, other = self.files[which % len(self.files)]
        one.close()
        other.close()

    @rule(name=_PATHS, new_name=_PATHS)
    def rename(self, name: str, new_name: str) -> None:
        self.on_both(lambda fs: fs.rename(self.top / name, self.top / new_name))

    @rule(name=_PATHS)
    def remove(self, name: str) -> None:
        self.on_both(lambda fs: fs.remove(self.top / name))

    @rule(name=_PATHS)
    def make_directory(self, name: str) -> None:
        self.on_both(lambda fs: fs.make_directory(self.top / name))

    @rule(name=_PATHS)
    def remove_directory(self, name: str) -> None:
        self.on_both(lambda fs: fs.remove_directory(self.top / name))

    @rule(name=_PATHS)
    def remove_tree(self, name: str) -> None:
        self.on_both(lambda fs: fs.remove_tree(self.top / name))

    @rule(name=_PATHS)
    def sync_directory(self, name: str) -> None:
        self.on_both(lambda fs: fs.sync_directory(self.top / name))

    @rule(name=_PATHS, data=_DATA)
    def replace(self, name: str, data: bytes) -> None:
        self.on_both(lambda fs: fs.replace_durably(self.top / name, data))

    @rule(name=_PATHS)
    def look(self, name: str) -> None:
        path = self.top / name
        self.on_both(lambda fs: (fs.exists(path), fs.is_directory(path)))
        self.on_both(lambda fs: fs.facts_of(path).mode if not fs.is_directory(path) else None)

    @rule()
    def copy(self) -> None:
        clone = self.simulated.clone()
        assert self.tree(clone, self.top) == self.tree(OS, self.top)

    @invariant()
    def same_trees(self) -> None:
        assert self.tree(OS, self.top) == self.tree(self.simulated, self.top)

    def tree(self, fs: FileSystem, top: Path) -> dict[str, Any]:
        return {
            entry.name: self.tree(fs, top / entry.name)
            if entry.is_directory
            else fs.read_bytes(top / entry.name)
            for entry in fs.entries_in(top)
        }


TestBothFileSystems = BothFileSystems.TestCase


def test_a_second_lock_of_a_directory_is_refused_in_the_same_process_too(tmp_path: Path) -> None:
    first = OS.lock(tmp_path)
    with pytest.raises(DirectoryInUseError, match=r"Failed to acquire lock on file \.lock in"):
        OS.lock(tmp_path)
    assert DirectoryLock.holder(tmp_path) == os.getpid()
    first.release()
    assert DirectoryLock.holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    OS.lock(tmp_path).release()


def test_a_linked_directory_is_unlinked_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    OS.remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept" / "file").read_bytes() == b"x"
    assert not (tmp_path / "tree").exists()
