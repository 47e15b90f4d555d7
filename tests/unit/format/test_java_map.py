from __future__ import annotations

import hashlib
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.java_map import (
    ConcurrentHashMapKeys,
    JavaHashMap,
    JavaHashSet,
    capacity_for,
    concurrent_hash_map_order,
    partition_hash,
    uuid_hash,
)
from cordwood.model.topic_partition import TopicPartition

# The orders expected of Longs, Integers and Uuids are those that java.util.HashMap and HashSet of
# JDK 17 gave.


def order(keys: list[str]) -> list[str]:
    found: JavaHashMap[str, list[int]] = JavaHashMap()
    for key in keys:
        found.compute_if_absent(key, list)
    return [key for key, _ in found.items()]


def put(keys: Iterable[int]) -> JavaHashMap[int, int]:
    found: JavaHashMap[int, int] = JavaHashMap()
    for key in keys:
        found.put(key, -key)
    return found


def test_single_letters_come_by_their_code() -> None:
    # "a".hashCode() is 97, and 97 & 15 is 1.
    assert order(["c", "p", "a", "b"]) == ["p", "a", "b", "c"]


def test_the_newest_of_a_bucket_comes_first_when_it_was_computed() -> None:
    # "Aa" and "BB" have the same hash in Java.
    assert order(["Aa", "BB"]) == ["BB", "Aa"]


def test_the_newest_of_a_bucket_comes_last_when_it_was_put() -> None:
    assert list(put([65, 1, 33, 17])) == [65, 1, 33, 17]


def test_the_table_doubles_at_the_call_after_three_quarters_are_passed() -> None:
    thirteen = list("defghijklmnop")
    assert order(thirteen) != order([*thirteen, "d"])
    assert order([*thirteen, "d"]) == sorted(thirteen)


def test_a_put_doubles_the_table_as_it_passes_three_quarters() -> None:
    assert list(put(range(14, 26))) == [*range(16, 26), 14, 15]
    assert list(put(range(14, 27))) == list(range(14, 27))


def test_values_are_kept() -> None:
    found: JavaHashMap[str, list[int]] = JavaHashMap()
    for index in range(100):
        found.compute_if_absent(f"key {index % 30}", list).append(index)
    assert len(found) == 30
    assert dict(found.items())["key 7"] == [7, 37, 67, 97]


def test_a_table_never_shrinks() -> None:
    found = put(range(14, 27))
    for key in range(16, 27):
        assert found.remove(key) == -key
    assert list(found) == [14, 15]
    found.put(16, 0)
    assert list(found) == [14, 15, 16]
    found.clear()
    assert len(found) == 0
    for key in (16, 14):
        found.put(key, 0)
    assert list(found) == [14, 16], "a new map gives 16 first"
    assert list(put([16, 14])) == [16, 14]


def test_a_key_that_was_removed_comes_back_behind_the_others() -> None:
    found = put(range(1, 41))
    for key in range(1, 41):
        found.remove(key)
    for key in (65, 1, 33, 17):
        found.put(key, 0)
    assert list(found) == [65, 1, 17, 33]
    assert found.remove(65) == 0
    assert found.remove(65) is None
    found.put(65, 0)
    assert list(found) == [1, 65, 17, 33]


def test_a_new_value_leaves_a_key_where_it_is() -> None:
    found = put([65, 1, 33, 17])
    found.put(65, 7)
    assert list(found.items()) == [(65, 7), (1, -1), (33, -33), (17, -17)]
    assert found.get(65) == 7
    assert found.get(2) is None
    assert 2 not in found


def test_put_and_computed_keys_in_one_bucket() -> None:
    found = put([16, 32])
    found.compute_if_absent(48, lambda: 0)
    found.put(64, 0)
    found.compute_if_absent(80, lambda: 0)
    assert list(found) == [80, 48, 16, 32, 64]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            [5_000_000_000, -7, 2**63 - 1, -(2**63), 1 << 32, 0, -1],
            [2**63 - 1, -(2**63), 0, -1, 1 << 32, 5_000_000_000, -7],
        ),
        ([65536, 131073, 65537, 16, 0], [65537, 16, 0, 65536, 131073]),
    ],
)
def test_both_halves_of_a_long_count(keys: list[int], expected: list[int]) -> None:
    assert list(put(keys)) == expected


def test_a_ninth_key_in_a_bucket_doubles_a_small_table() -> None:
    keys = [1000 + 16 * i for i in (7, 3, 5, 1, 6, 2, 4, 0)]
    assert list(put(keys)) == keys
    expected = [1096, 1032, 1064, 1000, 1128, 1112, 1048, 1080, 1016]
    assert list(put([*keys, 1128])) == expected


def test_an_eighth_key_computed_in_a_bucket_doubles_a_small_table() -> None:
    found: JavaHashMap[int, int] = JavaHashMap()
    for i in (7, 3, 5, 1, 6, 2, 4, 0):
        found.compute_if_absent(1000 + 16 * i, lambda: 0)
    assert list(found) == [1000, 1064, 1032, 1096, 1016, 1080, 1048, 1112]


UUIDS = [
    UUID(int=most << 64 | least)
    for most, least in [
        *((1, 0), (0, 1), (0x1234567800000000, 0), (0, 2**64 - 1)),
        *((2**64 - 1, 5), (1 << 63, 17), (33, 0), (7, 16)),
    ]
]


def test_a_uuid_has_the_hash_of_kafkas() -> None:
    assert list(map(uuid_hash, UUIDS)) == [1, 1, 305419896, 0, 5, 2147483665, 33, 23]


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        *((each, [3, 0, 1, 5, 6, 4, 7, 2]) for each in (None, 0, 1, 2, 3, 8, 11)),
        (64, [3, 0, 1, 4, 2, 5, 7, 6]),
    ],
)
def test_a_map_may_have_more_buckets_from_the_start(
    capacity: int | None, expected: list[int]
) -> None:
    found: JavaHashMap[UUID, int] = JavaHashMap(capacity)
    for number, uuid in enumerate(UUIDS):
        found.put(uuid, number)
    assert list(found.values()) == expected
    assert list(found.copy().values()) == expected


def test_keys_are_computed_in_the_smallest_map() -> None:
    found: JavaHashMap[int, int] = JavaHashMap(0)
    for key in (0, 16, 32, 48):
        found.compute_if_absent(key, lambda: 0)
    assert list(found) == [48, 32, 16, 0]


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        *((each, [64, 32, 1, 34, 2, 3]) for each in (0, 1, 2, 3, 4, 5, 8, 16)),
        (33, [64, 1, 2, 3, 32, 34]),
    ],
)
def test_a_set_may_have_more_buckets_from_the_start(capacity: int, expected: list[int]) -> None:
    found: JavaHashSet[int] = JavaHashSet(capacity)
    for key in (64, 3, 34, 2, 1, 32, 3):
        found.add(key)
    assert list(found) == expected
    assert len(found) == 6
    assert 34 in found
    assert 4 not in found


@pytest.mark.parametrize(
    ("size", "expected"), [(12, list(range(20, 32))), (13, [32, *range(20, 32)])]
)
def test_the_copy_of_a_set_has_buckets_for_its_size(size: int, expected: list[int]) -> None:
    assert list(JavaHashSet.of(range(20, 20 + size), size)) == expected


def test_a_copy_has_the_buckets_that_the_size_asks_for() -> None:
    assert list(JavaHashSet.of([17, 2], 2)) == [17, 2]
    assert list(JavaHashSet.of([17, 2], 12)) == [2, 17]
    assert [capacity_for(size) for size in (0, 1, 2, 3, 12, 100)] == [1, 2, 3, 5, 17, 134]


def test_a_ninth_key_in_a_bucket_doubles_a_small_table_of_a_set() -> None:
    found: JavaHashSet[int] = JavaHashSet()
    for key in range(128, -1, -16):
        found.add(key)
    assert list(found) == [128, 96, 64, 32, 0, 112, 80, 48, 16]
    found.discard(32)
    found.discard(33)
    found.add(32)
    assert list(found) == [128, 96, 64, 0, 32, 112, 80, 48, 16]


KEYS = st.one_of(
    st.integers(0, 60), st.integers(0, 12).map(lambda n: 16 * n), st.integers(-(2**63), 2**63 - 1)
)


class PlainHashMap:
    """The same, bucket by bucket."""

    def __init__(self) -> None:
        self.table: list[list[int]] = [[] for _ in range(16)]

    def bucket(self, key: int) -> list[int]:
        value = (key ^ (key >> 32)) & 0xFFFFFFFF
        return self.table[(value ^ (value >> 16)) & (len(self.table) - 1)]

    def double(self) -> None:
        old = self.table
        self.table = [[] for _ in range(2 * len(old))]
        for bucket in old:
            for key in bucket:
                self.bucket(key).append(key)

    def put(self, key: int) -> None:
        bucket = self.bucket(key)
        if key not in bucket:
            bucket.append(key)
            if len(bucket) > 8 and len(self.table) < 64:
                self.double()
            if sum(map(len, self.table)) > len(self.table) * 3 / 4:
                self.double()

    def remove(self, key: int) -> None:
        if key in self.bucket(key):
            self.bucket(key).remove(key)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=120))
def test_the_order_is_that_of_a_plain_table(steps: list[tuple[bool, int]]) -> None:
    found: JavaHashMap[int, int] = JavaHashMap()
    keys: JavaHashSet[int] = JavaHashSet()
    plain = PlainHashMap()
    for is_put, key in steps:
        if is_put:
            found.put(key, 0)
            keys.add(key)
            plain.put(key)
        else:
            found.remove(key)
            keys.discard(key)
            plain.remove(key)
    expected = [key for bucket in plain.table for key in bucket]
    assert list(found) == expected
    assert list(keys) == expected


# The orders of ConcurrentHashMap are those of JDK 17 for id-0, id-37, id-74 ... modulo 1,000.


def ids(count: int) -> list[str]:
    return [f"id-{number * 37 % 1000}" for number in range(count)]


def test_concurrent_map_yields_keys_by_bucket() -> None:
    assert concurrent_hash_map_order(ids(5)) == ["id-148", "id-37", "id-74", "id-111", "id-0"]
    numbers = [
        *(148, 962, 444, 740, 222, 888, 666, 629, 925, 407, 703, 0, 370, 111, 296, 592, 555),
        *(36, 851, 333, 37, 999, 777, 259, 518, 814, 481, 74, 73, 185),
    ]
    assert concurrent_hash_map_order(ids(30)) == [f"id-{number}" for number in numbers]


def test_buckets_of_a_concurrent_map_are_turned_round_when_it_grows() -> None:
    found = ",".join(concurrent_hash_map_order(ids(200)))
    assert hashlib.sha256(found.encode()).hexdigest() == (
        "85a9eca9a089a920648bf443b66c4e92d3b2848b8d01371eb5b63de5927be88e"
    )


def test_a_concurrent_map_does_not_shrink() -> None:
    keys: ConcurrentHashMapKeys[str] = ConcurrentHashMapKeys()
    for key in (*ids(30), *ids(3)):
        keys.add(key)
    few = set(ids(30)[10:])
    for key in few:
        keys.discard(key)
        keys.discard(key)
    assert list(keys) == [key for key in concurrent_hash_map_order(ids(30)) if key not in few]
    assert list(keys) != concurrent_hash_map_order(ids(10))
    assert len(keys) == 10
    assert ids(1)[0] in keys


def test_hash_of_a_partition_is_that_of_kafka() -> None:
    # new TopicPartition("t", 0).hashCode() of Kafka 4.3.0
    assert partition_hash(TopicPartition("t", 0)) == 1_077
    assert partition_hash(TopicPartition("größe", 3)) == 98_763_311
