"""A map that yields its entries in the order in which java.util.HashMap does.

Kafka's tool keeps what it finds wrong by file name in HashMaps, and prints these as they come.

Source: java.util.HashMap.computeIfAbsent, resize (JDK 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

_TABLE_SIZE_MIN = 16


class JavaHashMap(Generic[V]):
    """String keys to values, filled by `compute_if_absent` alone.

    Differs: a bucket of eight keys or more is no tree here, which such few keys hardly ever need.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        # Invariant: a power of two of buckets, every key in that of its hash, the newest first.
        self._table: list[list[str]] = [[] for _ in range(_TABLE_SIZE_MIN)]

    def __len__(self) -> int:
        return len(self._values)

    def compute_if_absent(self, key: str, create: Callable[[], V]) -> V:
        """The value of `key`, made by `create` where there is none yet."""
        if len(self._values) > len(self._table) * 3 // 4:
            self._double()
        if key not in self._values:
            self._values[key] = create()
            self._bucket(key).insert(0, key)
        return self._values[key]

    def items(self) -> Iterator[tuple[str, V]]:
        """Every key with its value, bucket by bucket."""
        for bucket in self._table:
            for key in bucket:
                yield key, self._values[key]

    def _bucket(self, key: str) -> list[str]:
        return self._table[_spread_hash(key) & (len(self._table) - 1)]

    def _double(self) -> None:
        old = self._table
        self._table = [[] for _ in range(2 * len(old))]
        for bucket in old:
            for key in bucket:
                self._bucket(key).append(key)


def _spread_hash(key: str) -> int:
    """`HashMap.hash` of a String."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value ^ (value >> 16)
