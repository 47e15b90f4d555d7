from __future__ import annotations

import resource
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cordwood.format.offset_index import build_offset_index
from cordwood.storage.filesystem import File, OsFileSystem
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.resources import ResourceCache


@dataclass(eq=False)
class Owner:
    path: Path
    naming_lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture
def owners(tmp_path: Path) -> list[Owner]:
    found = []
    for number in range(6):
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"content of %d" % number)
        found.append(Owner(path))
    return found


def is_open(file: File) -> bool:
    return file.fileno() >= 0


def test_a_file_is_opened_once(owners: list[Owner]) -> None:
    cache = ResourceCache()
    assert cache.file(owners[0]) is cache.file(owners[0])
    assert cache.file(owners[0]).read_at(20, 0) == b"content of 0"
    assert cache.files_open == 1


def test_an_opened_file_can_be_written_to(owners: list[Owner]) -> None:
    ResourceCache().file(owners[0]).write_at([b"CON"], 0)
    assert owners[0].path.read_bytes() == b"CONtent of 0"


def test_no_more_files_are_kept_than_allowed(owners: list[Owner]) -> None:
    cache = ResourceCache(files_max=3)
    for owner in owners:
        cache.file(owner)
    assert cache.files_open == 3


def test_half_of_what_a_process_may_open_is_kept_unless_told_otherwise(owners: list[Owner]) -> None:
    class Tight(OsFileSystem):
        def open_files_max(self) -> int:
            return 4

    cache = ResourceCache(Tight())
    for owner in owners:
        cache.file(owner)
    assert len(owners) > cache.files_open == 2
    assert OsFileSystem().open_files_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_the_least_recently_used_file_makes_room(owners: list[Owner]) -> None:
    cache = ResourceCache(files_max=2)
    first, second = cache.file(owners[0]), cache.file(owners[1])
    cache.file(owners[0])
    cache.file(owners[2])
    assert cache.file(owners[0]) is first
    assert cache.file(owners[1]) is not second


def test_a_file_that_made_room_stays_readable_for_who_holds_it(owners: list[Owner]) -> None:
    cache = ResourceCache(files_max=1)
    held = cache.file(owners[0])
    cache.file(owners[1])
    assert is_open(held)
    assert held.read_at(20, 0) == b"content of 0"


def test_a_file_that_nobody_holds_is_closed_when_it_makes_room(owners: list[Owner]) -> None:
    cache = ResourceCache(files_max=1)
    handle = cache.file(owners[0]).fileno()
    links = Path(f"/proc/self/fd/{handle}")
    assert links.exists()
    assert links.readlink() == owners[0].path
    cache.file(owners[1])
    assert not links.exists() or links.readlink() != owners[0].path


def test_a_forgotten_file_is_opened_anew(owners: list[Owner]) -> None:
    cache = ResourceCache()
    file = cache.file(owners[0])
    cache.forget(owners[0])
    cache.forget(owners[0])
    assert cache.files_open == 0
    assert cache.file(owners[0]) is not file


def test_a_file_is_not_opened_while_it_is_being_renamed(owners: list[Owner]) -> None:
    cache = ResourceCache()
    owner = owners[0]
    found: list[bytes] = []
    with owner.naming_lock:
        reader = threading.Thread(target=lambda: found.append(cache.file(owner).read_at(20, 0)))
        reader.start()
        target = owner.path.with_suffix(".deleted")
        owner.path.rename(target)
        owner.path = target
    reader.join(120)
    assert found == [b"content of 0"]


def test_a_file_that_is_gone_is_an_error_each_time(owners: list[Owner]) -> None:
    cache = ResourceCache()
    owners[0].path.unlink()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            cache.file(owners[0])


def test_many_threads_share_files(owners: list[Owner]) -> None:
    cache = ResourceCache(files_max=2)
    wrong: list[bytes] = []

    def work() -> None:
        for turn in range(300):
            number = turn % len(owners)
            data = cache.file(owners[number]).read_at(20, 0)
            if data != b"content of %d" % number:
                wrong.append(data)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
    assert cache.files_open == 2


# ---- indexes


def indexes_of(directory: Path, cache: ResourceCache, count: int) -> list[OffsetIndex]:
    found = []
    for number in range(count):
        path = directory / f"{number}.index"
        path.write_bytes(build_offset_index([(i, i) for i in range(1, 11)], 0))
        found.append(OffsetIndex(path, 0, cache=cache))
    return found


def test_indexes_beyond_the_bound_are_released(tmp_path: Path) -> None:
    cache = ResourceCache(index_bytes_max=200)
    indexes = indexes_of(tmp_path, cache, 5)
    for index in indexes:
        assert index.entries == 10
    assert cache.index_bytes == 160
    assert [index.is_loaded for index in indexes] == [False, False, False, True, True]


def test_an_index_that_is_in_use_is_released_later_than_one_that_is_not(tmp_path: Path) -> None:
    cache = ResourceCache(index_bytes_max=200)
    used, idle, new = indexes_of(tmp_path, cache, 3)
    used.columns()
    idle.columns()
    used.lookup(5)
    new.columns()
    assert used.is_loaded
    assert not idle.is_loaded


def test_the_newest_index_is_kept_even_if_it_alone_is_beyond_the_bound(tmp_path: Path) -> None:
    cache = ResourceCache(index_bytes_max=10)
    index, other = indexes_of(tmp_path, cache, 2)
    index.columns()
    assert index.is_loaded
    other.columns()
    assert other.is_loaded
    assert not index.is_loaded


def test_an_index_that_is_written_to_is_not_released(tmp_path: Path) -> None:
    cache = ResourceCache(index_bytes_max=100)
    written, *others = indexes_of(tmp_path, cache, 4)
    written.resize(1000)
    written.append(100, 100)
    for other in others:
        other.columns()
    assert written.lookup(100) == (100, 100)
    assert written.is_loaded


def test_closing_lets_go_of_everything(tmp_path: Path, owners: list[Owner]) -> None:
    cache = ResourceCache()
    (index,) = indexes_of(tmp_path, cache, 1)
    index.columns()
    cache.file(owners[0])
    cache.close()
    assert cache.files_open == 0
    assert cache.index_bytes == 0
    assert not index.is_loaded
    assert index.lookup(5) == (5, 5)
