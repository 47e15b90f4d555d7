"""Files that are copied while a broker and its cleaner change the directory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.archiving.copied_files import (
    ChangedSegmentError,
    FileCopier,
    RateLimit,
    WantedFile,
)
from cordwood.model.uuids import uuid_text
from cordwood.storage.archives.manifest import ArchivedLogId
from cordwood.storage.filesystem import File
from cordwood.storage.objects.object_store import ObjectStore
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.log_builder import TOPIC_ID

LOG = ArchivedLogId("t", 0, TOPIC_ID)
DIRECTORY = Path("/data/t-0")
BASE = "00000000000000000000"
SUFFIXES = (".log", ".index", ".timeindex")


class CleanedFiles(SimulatedFileSystem):
    """A file system in which something happens when a file is opened."""

    def __init__(self, on_open: Callable[[CleanedFiles, Path], None]) -> None:
        super().__init__()
        self.make_directory(DIRECTORY)
        self._on_open = on_open
        self.opened: list[Path] = []

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file; then something happens."""
        file = super().open(path, write=write)
        self.opened.append(path)
        self._on_open(self, path)
        return file


def put_generation(fs: CleanedFiles, number: int, *, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Has a segment's files replaced by those of another cleaning."""
    for suffix in suffixes:
        path = DIRECTORY / f"{BASE}{suffix}"
        fs.write_file(path.with_suffix(suffix + ".cleaned"), generation(number, suffix))
        fs.rename(path.with_suffix(suffix + ".cleaned"), path)
        fs.set_modified(path, number * 1_000_000)


def generation(number: int, suffix: str) -> bytes:
    return f"{suffix} of cleaning {number};".encode() * 5


def wanted(*suffixes: str) -> list[WantedFile]:
    return [
        WantedFile(DIRECTORY / f"{BASE}{suffix}", is_needed=suffix == ".log") for suffix in suffixes
    ]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}")


def copier(store: ObjectStore, fs: SimulatedFileSystem, **options: object) -> FileCopier:
    limit = RateLimit(None, ManualClock())
    return FileCopier(store, "run1", fs=fs, limit=limit, **options)  # type: ignore[arg-type]


def test_files_are_copied_with_their_digests_sizes_and_times(store: ObjectStore) -> None:
    fs = CleanedFiles(lambda *_: None)
    put_generation(fs, 3)
    read: list[int] = []
    found = copier(store, fs, on_bytes=read.append).copy(LOG, wanted(*SUFFIXES, ".txnindex"))
    assert [each.name for each in found] == [f"{BASE}{suffix}" for suffix in SUFFIXES]
    for each, suffix in zip(found, SUFFIXES, strict=True):
        content = generation(3, suffix)
        assert each.key == f"data/t-{uuid_text(TOPIC_ID)}/0/{BASE}-run1{suffix}"
        assert store.get(each.key) == content
        assert each.size_bytes == len(content)
        assert each.sha256 == hashlib.sha256(content).hexdigest()
        assert each.modified_ns == 3_000_000
    assert sum(read) == sum(each.size_bytes for each in found)


def test_the_first_bytes_of_a_file_that_grows_are_copied(store: ObjectStore) -> None:
    fs = CleanedFiles(lambda *_: None)
    fs.write_file(DIRECTORY / f"{BASE}.log", b"0123456789")
    (found,) = copier(store, fs).copy(LOG, [WantedFile(DIRECTORY / f"{BASE}.log", 4)])
    assert store.get(found.key) == b"0123"
    assert (found.size_bytes, found.sha256) == (4, hashlib.sha256(b"0123").hexdigest())


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("parts", [SUFFIXES, (".log",), (".index", ".timeindex")])
def test_files_that_are_replaced_while_they_are_opened_are_never_mixed(
    store: ObjectStore, at: int, parts: tuple[str, ...]
) -> None:
    def clean(fs: CleanedFiles, _: Path) -> None:
        if len(fs.opened) == at:
            put_generation(fs, 2, suffixes=parts)

    fs = CleanedFiles(clean)
    put_generation(fs, 1)
    found = copier(store, fs).copy(LOG, wanted(*SUFFIXES))
    contents = {each.name.removeprefix(BASE): store.get(each.key) for each in found}
    assert contents == {
        suffix: generation(2 if suffix in parts else 1, suffix) for suffix in SUFFIXES
    }
    for each in found:
        suffix = each.name.removeprefix(BASE)
        assert each.modified_ns == (2_000_000 if suffix in parts else 1_000_000)


def test_a_segment_that_is_replaced_again_and_again_is_given_up(store: ObjectStore) -> None:
    fs = CleanedFiles(lambda fs, _: put_generation(fs, 1 + len(fs.opened)))
    put_generation(fs, 1)
    with pytest.raises(ChangedSegmentError, match=r"0\.log: it was replaced each time"):
        copier(store, fs).copy(LOG, wanted(*SUFFIXES))
    assert list(store.list()) == []


def test_what_is_removed_while_it_is_opened_is_missing_or_was_not_needed(
    store: ObjectStore,
) -> None:
    def remove(fs: CleanedFiles, path: Path) -> None:
        fs.remove(DIRECTORY / f"{BASE}.timeindex")

    fs = CleanedFiles(remove)
    put_generation(fs, 1)
    found = copier(store, fs).copy(LOG, wanted(*SUFFIXES))
    assert [each.name for each in found] == [f"{BASE}.log", f"{BASE}.index"]

    fs = CleanedFiles(lambda fs, path: fs.remove(DIRECTORY / f"{BASE}.log"))
    put_generation(fs, 1)
    with pytest.raises(ChangedSegmentError, match="there is no such file any more"):
        copier(store, fs).copy(LOG, wanted(*SUFFIXES))


def test_a_file_that_is_removed_when_it_is_open_is_copied(store: ObjectStore) -> None:
    fs = CleanedFiles(lambda *_: None)
    put_generation(fs, 1)

    def remove(_: int) -> None:
        for suffix in SUFFIXES:
            fs.remove(DIRECTORY / f"{BASE}{suffix}")

    found = copier(store, fs, on_bytes=remove).copy(LOG, wanted(*SUFFIXES))
    contents = {each.name.removeprefix(BASE): store.get(each.key) for each in found}
    assert contents == {suffix: generation(1, suffix) for suffix in SUFFIXES}


def test_a_segment_that_was_replaced_since_it_was_planned_is_refused(store: ObjectStore) -> None:
    fs = CleanedFiles(lambda *_: None)
    put_generation(fs, 1)
    path, size_bytes = DIRECTORY / f"{BASE}.log", len(generation(1, ".log"))
    planned = WantedFile(path, size_bytes, modified_ns=1_000_000, is_needed=True)
    assert copier(store, fs).copy(LOG, [planned])[0].size_bytes == size_bytes
    put_generation(fs, 2)
    with pytest.raises(ChangedSegmentError, match="it was replaced since the run began"):
        copier(store, fs).copy(LOG, [planned])
    # A merged segment may have the time of the last one of its group, and more bytes.
    fs.write_file(path, generation(1, ".log") * 2)
    fs.set_modified(path, 1_000_000)
    with pytest.raises(ChangedSegmentError, match="it was replaced since the run began"):
        copier(store, fs).copy(LOG, [planned])


@pytest.mark.parametrize("size_bytes", [20, 3 << 20])
def test_a_log_that_is_cut_off_while_it_is_copied_is_an_error(
    store: ObjectStore, size_bytes: int
) -> None:
    fs = CleanedFiles(lambda *_: None)
    path = DIRECTORY / f"{BASE}.log"
    fs.write_file(path, bytes(size_bytes - 1))
    with pytest.raises(ChangedSegmentError, match=f"had {size_bytes} bytes: it was cut off"):
        copier(store, fs).copy(LOG, [WantedFile(path, size_bytes)])
    assert list(store.list()) == []


# ---- the rate


class Waits:
    """Lets the time of a clock pass that is waited for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(round(seconds * 1000))


def test_bytes_wait_until_the_rate_allows_them() -> None:
    wait = Waits()
    limit = RateLimit(1000, wait.clock, wait)
    for _ in range(5):
        limit.take(500)
    assert wait.waited == [0.5] * 4
    wait.clock.advance(10_000)
    limit.take(500)  # what was not used is not saved up
    limit.take(500)
    assert wait.waited == [0.5] * 5


@pytest.mark.parametrize("rate", [None, 0])
def test_without_a_rate_nothing_waits(rate: int | None) -> None:
    wait = Waits()
    limit = RateLimit(rate, wait.clock, wait)
    for _ in range(5):
        limit.take(1 << 40)
    assert wait.waited == []


def test_a_copy_takes_as_long_as_the_rate_says(store: ObjectStore) -> None:
    wait = Waits()
    fs = CleanedFiles(lambda *_: None)
    fs.write_file(DIRECTORY / f"{BASE}.log", bytes(5 << 20))
    limited = FileCopier(store, "run1", fs=fs, limit=RateLimit(1 << 20, wait.clock, wait))
    (found,) = limited.copy(LOG, wanted(".log"))
    assert store.get(found.key) == bytes(5 << 20)
    assert sum(wait.waited) == 4.0
