"""Objects below a URL, in a directory that takes the place of object storage."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.exceptions import BaseError

from cordwood.model.errors import ConfigError
from cordwood.storage.objects.object_store import (
    PART_BYTES,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
    _reason,
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path / 'a lake'}")


def test_what_was_put_is_read_whole_by_ranges_and_listed(store: ObjectStore) -> None:
    store.put("logs/one", b"0123456789")
    store.put("logs/two", b"")
    store.put("other", b"x")
    assert store.get("logs/one") == b"0123456789"
    assert store.get_range("logs/one", 3, 4) == b"3456"
    assert store.get_range("logs/one", 8, 100) == b"89"
    assert store.get_range("logs/one", 3, 0) == b""
    found = sorted((each.key, each.size_bytes) for each in store.list("logs/"))
    assert found == [("logs/one", 10), ("logs/two", 0)]
    assert {each.key for each in store.list()} == {"logs/one", "logs/two", "other"}
    assert all(each.modified_ms > 1_700_000_000_000 for each in store.list())


def test_a_large_object_is_put_in_parts(store: ObjectStore) -> None:
    chunks = [bytes([number]) * (PART_BYTES // 2 + number) for number in range(5)]
    store.put("large", iter(chunks))
    assert store.get("large") == b"".join(chunks)
    assert store.usage.bytes_written == sum(map(len, chunks))


def test_of_many_that_put_one_new_object_one_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            contents = [b"%d of %d" % (writer, number) for writer in range(8)]
            key = f"manifests/{number}"
            won = list(pool.map(lambda content, key=key: store.put_new(key, content), contents))
            assert sum(won) == 1
            assert store.get(key) == contents[won.index(True)]


def test_an_object_is_replaced_and_deleted(store: ObjectStore) -> None:
    store.put("one", b"before")
    store.put("one", b"after")
    assert store.get("one") == b"after"
    store.delete(["one", "never there"])
    assert list(store.list()) == []
    with pytest.raises(ObjectMissingError, match=f"{store.url}/one: there is no such object"):
        store.get("one")
    with pytest.raises(ObjectMissingError):
        store.get_range("one", 0, 1)


def test_requests_and_bytes_are_counted(store: ObjectStore) -> None:
    store.put("one", b"12345")
    store.get("one")
    store.get_range("one", 1, 2)
    assert not store.put_new("one", b"1")
    store.delete(["one"])
    assert store.usage.requests == {"put": 2, "get": 3, "delete": 1}
    assert (store.usage.bytes_read, store.usage.bytes_written) == (12, 6)


def test_a_store_can_be_pickled(store: ObjectStore) -> None:
    store.put("one", b"1")
    other = pickle.loads(pickle.dumps(store))  # just made
    assert other.get("one") == b"1"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/var/lib/kafka", "not a URL of object storage"),
        ("http://host/path", "not a URL of object storage; one begins with s3://"),
        ("s3://", "it names no bucket"),
    ],
)
def test_what_is_no_url_of_object_storage_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ObjectStore(url)


def test_a_store_that_refuses_is_a_typed_error(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "a lake").write_text("a file")
    with pytest.raises((ObjectStoreError, ConfigError), match="a lake"):
        store.put("one", b"1")


def test_missing_credentials_are_named() -> None:
    asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1 ms"
    assert "No credentials are set, as AWS_ACCESS_KEY_ID" in _reason(BaseError(asked))
    assert _reason(BaseError("Error performing GET http://127.0.0.1:9/")).endswith("9/")
