"""A map and a set that yield what they contain in the order in which java.util.HashMap does.

Kafka writes producer snapshots and the assignments of groups, and its tools print results, in the
order of a HashMap's entries: the order of the buckets, and within a bucket the order of insertion.
The number of buckets never shrinks, so the order depends on all entries that the map ever
contained, and on the capacity that it was created with.

Source: java.util.HashMap.putVal, computeIfAbsent, removeNode, resize, treeifyBin, tableSizeFor;
HashSet (JDK 17: from JDK 19 on, a copy of 12, 24, 48 ... keys has half as many buckets).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar, overload
from uuid import UUID

from cordwood.model.topic_partition import TopicPartition

K = TypeVar("K", int, str, UUID, TopicPartition)
V = TypeVar("V")
D = TypeVar("D")

_BUCKETS_FIRST = 16
# A bucket of more keys than this becomes a tree, in a table of fewer buckets than that a reason
# to double it.
_TREEIFY_KEYS = 8
_TREEIFY_BUCKETS_MIN = 64


class JavaHashMap(Mapping[K, V]):
    """Keys that are Longs (an int of 64 bits), Strings, or Kafka's Uuids or partitions, to values.

    An Integer that is not negative has the hash of the Long.

    Differs: in a table of 64 buckets or more, a bucket of nine keys is no tree here, and keeps the
    order in which keys were put; Java moves a tree's root to the front.
    """

    __slots__ = ("_bucket_count", "_first_rank", "_last_rank", "_ranks", "_values")

    def __init__(self, initial_capacity: int | None = None) -> None:
        """An empty map, as `new HashMap()` or `new HashMap(initial_capacity)` creates it."""
        self._values: dict[K, V] = {}
        # Of two keys in a bucket, the one of lower rank comes first.
        self._ranks: dict[K, int] = {}
        self._first_rank = 0
        self._last_rank = 0
        # Invariant: 0 before the first key if no capacity was given, otherwise a power of two that
        # never falls.
        self._bucket_count = 0 if initial_capacity is None else _table_size(initial_capacity)

    def copy(self) -> JavaHashMap[K, V]:
        """A map of the same entries in the same order, also after the same changes."""
        other: JavaHashMap[K, V] = JavaHashMap()
        other._values = self._values.copy()
        other._ranks = self._ranks.copy()
        other._first_rank = self._first_rank
        other._last_rank = self._last_rank
        other._bucket_count = self._bucket_count
        return other

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        """The keys, in Java's order."""
        mask = self._bucket_count - 1
        ranks = self._ranks
        return iter(sorted(self._values, key=lambda key: (spread_hash(key) & mask, ranks[key])))

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """The value of `key`, or `default`."""
        return self._values.get(key, default)

    def put(self, key: K, value: V) -> None:
        """Sets the value of `key`; a new key goes behind those of its bucket.

        Source: HashMap.put.
        """
        if key in self._values:
            self._values[key] = value
            return
        if not self._bucket_count:
            self._bucket_count = _BUCKETS_FIRST
        crowded = self._is_crowded(key, _TREEIFY_KEYS)
        self._values[key] = value
        self._last_rank += 1
        self._ranks[key] = self._last_rank
        if crowded:
            self._bucket_count *= 2
        if self._is_full():
            self._bucket_count *= 2

    def compute_if_absent(self, key: K, create: Callable[[], V]) -> V:
        """The value of `key`, created by `create` if absent; new keys go first in their bucket.

        Source: HashMap.computeIfAbsent, which checks whether the table has to grow before
        it looks up the key.
        """
        if not self._bucket_count:
            self._bucket_count = _BUCKETS_FIRST
        elif self._is_full():
            self._bucket_count *= 2
        if key in self._values:
            return self._values[key]
        crowded = self._is_crowded(key, _TREEIFY_KEYS - 1)
        self._values[key] = create()
        self._first_rank -= 1
        self._ranks[key] = self._first_rank
        if crowded:
            self._bucket_count *= 2
        return self._values[key]

    def remove(self, key: K) -> V | None:
        """Removes a key and returns its value, or None if absent. The table does not shrink."""
        self._ranks.pop(key, None)
        return self._values.pop(key, None)

    def clear(self) -> None:
        """Removes all keys. The table does not shrink."""
        self._values.clear()
        self._ranks.clear()

    def _is_full(self) -> bool:
        return len(self._values) > self._bucket_count * 3 // 4

    def _is_crowded(self, key: K, keys_max: int) -> bool:
        """Whether a small table has to grow because one bucket has too many keys."""
        if len(self._values) < keys_max or self._bucket_count >= _TREEIFY_BUCKETS_MIN:
            return False
        mask = self._bucket_count - 1
        bucket = spread_hash(key) & mask
        return sum(spread_hash(other) & mask == bucket for other in self._values) >= keys_max


class JavaHashSet(Collection[K]):
    """Keys in the order of java.util.HashSet, with the difference that `JavaHashMap` has."""

    __slots__ = ("_bucket_count", "_hashes")

    def __init__(self, initial_capacity: int = _BUCKETS_FIRST) -> None:
        """An empty set, as `new HashSet(initial_capacity)` creates it."""
        # The spread hash of each key. A key is never put before others of its bucket, so the order
        # of insertion is the order in each bucket.
        self._hashes: dict[K, int] = {}
        self._bucket_count = _table_size(initial_capacity)

    @classmethod
    def of(cls, keys: Iterable[K], size: int) -> JavaHashSet[K]:
        """The set that `new HashSet(collection)` creates of a collection that says it has `size`.

        Source: HashSet(Collection) of JDK 17.
        """
        found = cls(max(capacity_for(size), _BUCKETS_FIRST))
        for key in keys:
            found.add(key)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[K]:
        """The keys, in Java's order."""
        mask = self._bucket_count - 1
        hashes = self._hashes
        return iter(sorted(hashes, key=lambda key: hashes[key] & mask))

    def add(self, key: K) -> None:
        """Adds a key, behind those of its bucket.

        Source: HashMap.put.
        """
        hashes = self._hashes
        if key in hashes:
            return
        spread = spread_hash(key)
        crowded = False
        if len(hashes) >= _TREEIFY_KEYS and self._bucket_count < _TREEIFY_BUCKETS_MIN:
            mask = self._bucket_count - 1
            bucket = spread & mask
            crowded = sum(each & mask == bucket for each in hashes.values()) >= _TREEIFY_KEYS
        hashes[key] = spread
        if crowded:
            self._bucket_count *= 2
        if len(hashes) > self._bucket_count * 3 // 4:
            self._bucket_count *= 2

    def discard(self, key: K) -> None:
        """Removes a key if it is there. The table does not shrink."""
        self._hashes.pop(key, None)


def capacity_for(size: int) -> int:
    """The initial capacity with which Java code creates a table for so many keys.

    Source: the expression `(int) (size / 0.75f + 1)`; HashMap.putMapEntries has it too.
    """
    return size * 4 // 3 + 1


def _table_size(capacity: int) -> int:
    """The number of buckets of a table of this initial capacity: a power of two."""
    return 1 << max(capacity - 1, 0).bit_length()


class ConcurrentHashMapKeys(Collection[K]):
    """Keys in the order of java.util.concurrent.ConcurrentHashMap.

    Differs: a bucket of nine keys is no tree here, and no reason to double a small table.

    Source: ConcurrentHashMap.putVal, computeIfAbsent, replaceNode, addCount, transfer (JDK 17).
    """

    __slots__ = ("_buckets", "_keys")

    def __init__(self) -> None:
        self._buckets: list[list[tuple[int, K]]] = [[] for _ in range(_BUCKETS_FIRST)]
        self._keys: set[K] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[K]:
        """The keys, in Java's order."""
        return (key for bucket in self._buckets for _, key in bucket)

    def add(self, key: K) -> None:
        """Adds a key, behind those of its bucket."""
        if key in self._keys:
            return
        self._keys.add(key)
        count = len(self._buckets)
        spread = spread_hash(key)
        self._buckets[spread & (count - 1)].append((spread, key))
        if len(self._keys) >= count * 3 // 4:
            halves = [_transferred(bucket, count) for bucket in self._buckets]
            self._buckets = [low for low, _ in halves] + [high for _, high in halves]

    def discard(self, key: K) -> None:
        """Removes a key if it is there. The table does not shrink."""
        if key in self._keys:
            self._keys.remove(key)
            spread = spread_hash(key)
            self._buckets[spread & (len(self._buckets) - 1)].remove((spread, key))


def concurrent_hash_map_order(keys: Iterable[K]) -> list[K]:
    """The order in which a `ConcurrentHashMap` yields keys that are put in this order."""
    found: ConcurrentHashMapKeys[K] = ConcurrentHashMapKeys()
    for key in keys:
        found.add(key)
    return list(found)


def _transferred(
    bucket: list[tuple[int, K]], bit: int
) -> tuple[list[tuple[int, K]], list[tuple[int, K]]]:
    """A bucket as the two of a table of twice the size.

    The last keys that go to one of them stay in their order; each key before them is put first.
    """
    last_run = len(bucket)
    while last_run and bucket[last_run - 1][0] & bit == bucket[-1][0] & bit:
        last_run -= 1
    low: list[tuple[int, K]] = []
    high: list[tuple[int, K]] = []
    if bucket:
        (high if bucket[-1][0] & bit else low).extend(bucket[last_run:])
    for each in bucket[:last_run]:
        (high if each[0] & bit else low).insert(0, each)
    return low, high


def spread_hash(key: int | str | UUID | TopicPartition) -> int:
    """`HashMap.hash` of a key as `JavaHashMap` has them, as an unsigned number of 32 bits."""
    if isinstance(key, int):
        return spread_bits((key ^ (key >> 32)) & 0xFFFFFFFF)
    if isinstance(key, str):
        return spread_bits(string_hash(key))
    return spread_bits(partition_hash(key) if isinstance(key, TopicPartition) else uuid_hash(key))


def spread_bits(hash_code: int) -> int:
    """A hash code (unsigned, 32 bits) with its upper half mixed into the lower, as maps use it."""
    return hash_code ^ (hash_code >> 16)


def string_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number of 32 bits."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return string_hash(topic)


def partition_hash(partition: TopicPartition) -> int:
    """`hashCode` of Kafka's TopicPartition, as an unsigned number of 32 bits.

    Source: org.apache.kafka.common.TopicPartition.hashCode.
    """
    return (31 * (31 + partition.partition) + _topic_hash(partition.topic)) & 0xFFFFFFFF


def uuid_hash(uuid: UUID) -> int:
    """`hashCode` of Kafka's Uuid, as an unsigned number of 32 bits.

    Source: org.apache.kafka.common.Uuid.hashCode.
    """
    halves = uuid.int ^ (uuid.int >> 64)
    return (halves ^ (halves >> 32)) & 0xFFFFFFFF


def absolute_hash(text: str) -> int:
    """`Math.abs` of `String.hashCode`, and 0 for the smallest int, which has none.

    Source: org.apache.kafka.common.utils.Utils.abs.
    """
    value = string_hash(text)
    return value if value < 1 << 31 else -value & 0x7FFFFFFF
