"""The order in which Kafka's tools print what they keep in hash maps.

Source: java.util.HashMap (JDK 17): buckets in order, and within one the order of putting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cordwood.format.java_map import spread_hash
from cordwood.model.topic_partition import TopicPartition

T = TypeVar("T")

_BUCKETS_FIRST = 16


def java_order(
    items: Iterable[T], key: Callable[[T], str | int], *, capacity: int | None = None
) -> list[T]:
    """The items in the iteration order of a HashMap after inserting them in order.

    `key` returns the hash key of an item: a String, or the hash code itself. `capacity` is the
    initial capacity of the map.
    """
    given = list(items)
    buckets = _BUCKETS_FIRST
    if capacity is not None:
        buckets = 1 << max(0, (capacity - 1).bit_length()) if capacity > 1 else 1
    while len(given) > int(buckets * 0.75):
        buckets *= 2
    return sorted(given, key=lambda item: _spread(key(item)) & (buckets - 1))


def partition_hash(partition: TopicPartition) -> int:
    """The value of TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + text_hash(partition.topic)) & 0xFFFFFFFF


def text_hash(text: str) -> int:
    """The value of String.hashCode, without a sign."""
    spread = spread_hash(text)
    return spread ^ (spread >> 16)


def _spread(key: str | int) -> int:
    return spread_hash(key) if isinstance(key, str) else key ^ (key >> 16)
