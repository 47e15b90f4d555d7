"""Objects as files: any sequence of reads gives the object's bytes, in few requests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.storage.archives.object_file import AHEAD_BYTES, BLOCK_BYTES, ObjectFile
from cordwood.storage.filesystem import File
from cordwood.storage.objects.object_store import ObjectStore

CONTENT = random.Random(1).randbytes(3 * BLOCK_BYTES + 17)  # data, no secret


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(f"file://{tmp_path}")
    store.put("one", CONTENT)
    return store


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    store = ObjectStore(f"file://{tmp_path_factory.mktemp('objects')}")
    store.put("one", CONTENT)
    return store


@given(
    st.lists(
        st.tuples(st.integers(0, 2 * BLOCK_BYTES), st.integers(0, len(CONTENT) + 5)), max_size=8
    ),
    st.booleans(),
)
def test_any_reads_give_what_a_file_gives(
    shared: ObjectStore, reads: list[tuple[int, int]], is_ahead: bool
) -> None:
    file: File = ObjectFile(shared, "one", len(CONTENT))
    if is_ahead:
        file.read_ahead()
    for size, position in reads:
        assert file.read_at(size, position) == CONTENT[position : position + size]
        view = memoryview(bytearray(size))
        came = file.read_into(view, position)
        assert view[:came] == CONTENT[position : position + size]
    assert file.size() == len(CONTENT)


def test_small_reads_fetch_blocks_which_are_kept(store: ObjectStore) -> None:
    file = ObjectFile(store, "one", len(CONTENT))
    for position in (0, 10, BLOCK_BYTES - 4, 5, BLOCK_BYTES + 9):
        file.read_at(8, position)
    assert store.usage.requests["get"] == 2
    assert store.usage.bytes_read == 2 * BLOCK_BYTES
    file.close()
    file.read_at(8, 0)
    assert store.usage.requests["get"] == 3


def test_a_large_read_fetches_what_it_was_asked_for(store: ObjectStore) -> None:
    file = ObjectFile(store, "one", len(CONTENT))
    file.read_at(BLOCK_BYTES + 1, 3)
    assert store.usage.bytes_read == BLOCK_BYTES + 1


def test_a_file_that_is_read_from_start_to_end_is_fetched_in_few_requests(
    tmp_path: Path,
) -> None:
    content = random.Random(2).randbytes(AHEAD_BYTES + AHEAD_BYTES // 2)  # data, no secret
    store = ObjectStore(f"file://{tmp_path}")
    store.put("large", content)
    file = ObjectFile(store, "large", len(content))
    file.read_ahead()
    step = 300_001  # a read reaches over the end of what was fetched
    for position in range(0, len(content), step):
        assert file.read_at(step, position) == content[position : position + step]
    assert store.usage.requests["get"] == 2
    assert store.usage.bytes_read == len(content)


def test_an_object_that_is_gone_is_a_missing_file(store: ObjectStore) -> None:
    file = ObjectFile(store, "two", 5)
    with pytest.raises(FileNotFoundError) as raised:
        file.read_at(1, 0)
    assert raised.value.filename == f"{store.url}/two"


def test_an_object_that_is_shorter_than_its_manifest_says_is_an_error(store: ObjectStore) -> None:
    store.put("short", b"0123")
    file = ObjectFile(store, "short", 5)
    with pytest.raises(OSError, match="the object ends before its 5 bytes") as raised:
        file.read_at(5, 0)
    assert raised.value.filename == f"{store.url}/short"


@pytest.mark.parametrize("name", ["write_at", "truncate", "sync", "fileno"])
def test_it_can_only_be_read(store: ObjectStore, name: str) -> None:
    file = ObjectFile(store, "one", len(CONTENT))
    arguments = {"write_at": ([b"x"], 0), "truncate": (0,)}.get(name, ())
    with pytest.raises(OSError, match="one"):
        getattr(file, name)(*arguments)
    assert store.get("one") == CONTENT
