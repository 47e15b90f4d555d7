"""The S3 server of the tests as judge: two writers, and what obstore says of each fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import S3Store

from support.object_storage.faults import Fault, FaultKind, FaultScript
from support.object_storage.proxy import FaultProxy
from support.object_storage.server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ObjectStorageServer,
    server_or_skip,
)

if TYPE_CHECKING:
    from pathlib import Path

    from obstore import PutMode

BUCKET = "tests"


def store_at(url: str, *, retries: int = 0) -> S3Store:
    soon = timedelta(milliseconds=1)
    return S3Store(
        BUCKET,
        endpoint=url,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region=REGION,
        client_options={"allow_http": True},
        retry_config={
            "max_retries": retries,
            "backoff": {"init_backoff": soon, "max_backoff": soon},
        },
    )


@pytest.fixture(scope="module")
def storage(object_storage: ObjectStorageServer) -> ObjectStorageServer:
    object_storage.make_bucket(BUCKET)
    return object_storage


@pytest.fixture(scope="module")
def store(storage: ObjectStorageServer) -> S3Store:
    return store_at(storage.url)


@pytest.fixture
def proxy(storage: ObjectStorageServer) -> Iterator[FaultProxy]:
    with FaultProxy(storage.port) as proxy:
        yield proxy


def read(store: S3Store, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


@pytest.mark.parametrize("is_new", [True, False], ids=["If-None-Match", "If-Match"])
def test_of_two_writers_at_once_one_wins(storage: ObjectStorageServer, *, is_new: bool) -> None:
    stores = [store_at(storage.url) for _ in range(2)]
    both = threading.Barrier(2)
    for number in range(50):
        key = f"manifest-{number}" if is_new else "manifest"
        mode: PutMode = "create"
        if not is_new:
            e_tag = obstore.put(stores[0], key, b"base of %d" % number)["e_tag"]
            mode = {"e_tag": e_tag}
        won: list[bytes] = []
        lost: list[BaseError] = []

        def write(writer: int, key: str = key, mode: PutMode = mode) -> None:
            body = b"%d in %s" % (writer, key.encode())
            both.wait()
            try:
                obstore.put(stores[writer], key, body, mode=mode)
            except BaseError as error:
                lost.append(error)  # noqa: B023  # read after the threads have ended
            else:
                won.append(body)  # noqa: B023

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [read(stores[0], key)]
        (error,) = lost
        assert type(error) is (AlreadyExistsError if is_new else PreconditionError)
        assert "412 Precondition Failed" in str(error)


def test_ranges_listing_and_deletes(store: S3Store) -> None:
    for number in range(3):
        obstore.put(store, f"listed/{number}/segment.log", b"0123456789" * number)
    assert bytes(obstore.get_range(store, "listed/2/segment.log", start=8, end=12)) == b"8901"
    found = obstore.list(store, "listed").collect()
    assert sorted((each["path"], each["size"]) for each in found) == [
        (f"listed/{number}/segment.log", 10 * number) for number in range(3)
    ]
    obstore.delete(store, [each["path"] for each in found])
    assert obstore.list(store, "listed").collect() == []


def test_an_object_of_several_parts_is_whole(store: S3Store) -> None:
    body = bytes(range(256)) * (11 << 12)
    obstore.put(store, "parts", body, chunk_size=5 << 20)
    assert read(store, "parts") == body
    e_tag = obstore.head(store, "parts")["e_tag"]
    assert e_tag is not None
    assert e_tag.strip('"').endswith("-3")


def test_a_conflict_of_a_put_that_creates_is_named_as_an_object_that_exists(
    store: S3Store, proxy: FaultProxy
) -> None:
    proxy.follow(FaultScript(Fault(FaultKind.CONFLICT)))
    with pytest.raises(AlreadyExistsError, match="409 Conflict"):
        obstore.put(store_at(proxy.url, retries=3), "conflict/object", b"", mode="create")
    assert obstore.list(store, "conflict").collect() == []


def test_a_conflict_of_a_put_that_replaces_is_tried_again(
    store: S3Store, proxy: FaultProxy
) -> None:
    e_tag = obstore.put(store, "replaced", b"old")["e_tag"]
    proxy.follow(FaultScript(Fault(FaultKind.CONFLICT)))
    obstore.put(store_at(proxy.url, retries=3), "replaced", b"new", mode={"e_tag": e_tag})
    assert read(store, "replaced") == b"new"
    assert [each.statuses for each in proxy.exchanges] == [(), (200,)]


@pytest.mark.parametrize("kind", [FaultKind.ANSWER_LOST, FaultKind.INTERNAL_ERROR])
def test_a_retry_after_a_lost_answer_is_refused_though_the_put_was_done(
    kind: FaultKind, store: S3Store, proxy: FaultProxy
) -> None:
    proxy.follow(FaultScript(Fault(kind)))
    with pytest.raises(AlreadyExistsError, match="412 Precondition Failed"):
        obstore.put(store_at(proxy.url, retries=3), f"lost-{kind}", b"mine", mode="create")
    assert read(store, f"lost-{kind}") == b"mine"


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.SLOW_DOWN,
        FaultKind.INTERNAL_ERROR,
        FaultKind.NOT_SENT,
        FaultKind.ANSWER_LOST,
        FaultKind.ANSWER_HALVED,
    ],
)
def test_without_retries_a_put_whose_outcome_is_unknown_says_neither(
    kind: FaultKind, store: S3Store, proxy: FaultProxy, *, is_reset: bool
) -> None:
    folder = f"unknown-{kind}-{is_reset}"
    proxy.follow(FaultScript(Fault(kind, is_reset=is_reset)))
    with pytest.raises(GenericError):
        obstore.put(store_at(proxy.url), f"{folder}/object", b"mine", mode="create")
    (exchange,) = proxy.exchanges
    assert len(obstore.list(store, folder).collect()) == len(exchange.statuses)


def test_a_read_that_breaks_off_is_continued(store: S3Store, proxy: FaultProxy) -> None:
    body = bytes(range(256)) * 4096
    obstore.put(store, "long", body)
    proxy.follow(FaultScript(Fault(FaultKind.ANSWER_HALVED)))
    assert read(store_at(proxy.url, retries=3), "long") == body
    assert "range" in proxy.exchanges[1].request.headers


def test_a_server_that_is_killed_keeps_what_it_has_answered(tmp_path: Path) -> None:
    with server_or_skip(tmp_path) as server:
        server.make_bucket(BUCKET)
        store = store_at(server.url, retries=3)
        e_tag = obstore.put(store, "kept", b"before")["e_tag"]
        server.kill()
        assert not server.is_running
        server.start()
        assert read(store, "kept") == b"before"
        obstore.put(store, "kept", b"after", mode={"e_tag": e_tag})
        server.stop()
        server.start()
        assert read(store, "kept") == b"after"
