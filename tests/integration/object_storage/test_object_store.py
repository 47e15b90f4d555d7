"""Objects below a URL of a real S3 server, and through connections that break and repeat."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordwood.storage.objects.object_store import ObjectMissingError, ObjectStore
from support.object_storage.faults import Fault, FaultKind, FaultScript, RandomFaults
from support.object_storage.proxy import FaultProxy
from support.object_storage.server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ObjectStorageServer,
)

BUCKET = "objects"


@pytest.fixture(scope="module")
def storage(object_storage: ObjectStorageServer) -> ObjectStorageServer:
    object_storage.make_bucket(BUCKET)
    return object_storage


def store_at(endpoint: str, prefix: str) -> ObjectStore:
    return ObjectStore(
        f"s3://{BUCKET}/{prefix}",
        {
            "endpoint": endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": REGION,
        },
    )


def test_objects_are_put_listed_read_and_deleted(storage: ObjectStorageServer) -> None:
    store = store_at(storage.url, "plain")
    large = random.Random(1).randbytes(40 << 20)  # data, no secret
    store.put("logs/large", (large[at : at + 1_000_000] for at in range(0, len(large), 1_000_000)))
    store.put("logs/small", b"0123456789")
    assert store.get("logs/large") == large
    assert store.get_range("logs/large", 20 << 20, 1000) == large[20 << 20 : (20 << 20) + 1000]
    assert store.get_range("logs/small", 8, 100) == b"89"
    found = sorted((each.key, each.size_bytes) for each in store.list("logs/"))
    assert found == [("logs/large", len(large)), ("logs/small", 10)]
    store.delete(["logs/large", "never there"])
    assert [each.key for each in store.list()] == ["logs/small"]
    with pytest.raises(ObjectMissingError, match="there is no such object"):
        store.get("logs/large")


def test_of_many_that_put_one_new_object_one_wins(storage: ObjectStorageServer) -> None:
    stores = [store_at(storage.url, "race") for _ in range(4)]
    with ThreadPoolExecutor(len(stores)) as pool:
        for number in range(25):
            key = f"manifests/{number}"
            won = list(
                pool.map(
                    lambda writer, key=key: stores[writer].put_new(key, b"of %d" % writer),
                    range(len(stores)),
                )
            )
            assert sum(won) == 1
            assert stores[0].get(key) == b"of %d" % won.index(True)


@pytest.mark.parametrize(
    "kind", [kind for kind in FaultKind if kind not in {FaultKind.PASS, FaultKind.DELAYED}]
)
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_new_object_is_known_for_ones_own_whatever_becomes_of_the_answer(
    storage: ObjectStorageServer, kind: FaultKind, is_reset: bool
) -> None:
    faults = FaultScript(Fault(kind, is_reset=is_reset))
    prefix = f"fault-{kind}-{is_reset}"
    with FaultProxy(storage.port, faults) as proxy:
        store = store_at(proxy.url, prefix)
        assert store.put_new("one", b"mine")
        assert store.get("one") == b"mine"
    with FaultProxy(storage.port, FaultScript(Fault(kind, is_reset=is_reset))) as proxy:
        other = store_at(proxy.url, prefix)
        assert not other.put_new("one", b"theirs")
        assert other.get("one") == b"mine"


@pytest.mark.parametrize("kind", [FaultKind.ANSWER_HALVED, FaultKind.ANSWER_LOST])
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_list_whose_answer_breaks_off_is_asked_for_again(
    storage: ObjectStorageServer, kind: FaultKind, is_reset: bool
) -> None:
    place = f"list-{kind}-{is_reset}"
    for number in range(20):
        store_at(storage.url, place).put(f"data/{number:02d}", b"x")
    with FaultProxy(storage.port, FaultScript(Fault(kind, is_reset=is_reset))) as proxy:
        found = [each.key for each in store_at(proxy.url, place).list("data/")]
    assert found == [f"data/{number:02d}" for number in range(20)]


def test_an_object_that_arrives_late_replaces_no_other(storage: ObjectStorageServer) -> None:
    late = FaultScript(Fault(FaultKind.DELAYED, later_requests=4))
    with FaultProxy(storage.port, late) as proxy:
        store = store_at(proxy.url, "late")
        assert store.put_new("one", b"mine")
        for _ in range(8):
            assert store.get("one") == b"mine"


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 20))]
)
def test_with_random_faults_one_writer_wins_and_knows_it(
    storage: ObjectStorageServer, seed: int
) -> None:
    with FaultProxy(storage.port, RandomFaults(seed)) as proxy:
        stores = [store_at(proxy.url, f"random-{seed}") for _ in range(3)]
        for number in range(20):
            won = [
                writer
                for writer, store in enumerate(stores)
                if store.put_new(f"{number}", b"%d" % writer)
            ]
            (winner,) = won
            assert store_at(storage.url, f"random-{seed}").get(f"{number}") == b"%d" % winner
