"""A map that yields its entries in the order in which Kafka's TimelineHashMap does.

The order decides in which order members are assigned and described, where Java's own maps leave it
to the order of insertion.

Source: org.apache.kafka.timeline.BaseHashTable, SnapshottableHashTable (4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from cordwood.format.java_map import string_hash

V = TypeVar("V")

_SLOTS_MIN: Final = 2
_FIBONACCI: Final = -7046029254386353131


class SlotMap(Mapping[str, V]):
    """A map of strings that yields slot by slot, and in a slot the newest entry first."""

    __slots__ = ("_slots", "_values")

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        # Invariant: a power of two of lists, whose number never falls.
        self._slots: list[list[str]] = [[] for _ in range(_SLOTS_MIN)]

    def copy(self) -> SlotMap[V]:
        """A map of the same entries in the same order, also after the same changes."""
        other: SlotMap[V] = SlotMap()
        other._values = self._values.copy()
        other._slots = [slot.copy() for slot in self._slots]
        return other

    def __getitem__(self, key: str) -> V:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        """The keys, in Kafka's order."""
        return iter([key for slot in self._slots for key in reversed(slot)])

    def put(self, key: str, value: V) -> None:
        """Sets the value of a key; one that is known keeps its place."""
        # The table grows before it looks whether the key is known.
        if (len(self._values) + 1) * 3 > len(self._slots) * 4:
            self._grow()
        if key not in self._values:
            self._slots[slot_of(key, len(self._slots))].append(key)
        self._values[key] = value

    def remove(self, key: str) -> V | None:
        """Removes a key and returns its value, or None if it is not there."""
        if key in self._values:
            self._slots[slot_of(key, len(self._slots))].remove(key)
        return self._values.pop(key, None)

    def _grow(self) -> None:
        keys = [key for slot in self._slots for key in slot]
        self._slots = [[] for _ in range(2 * len(self._slots))]
        for key in keys:
            self._slots[slot_of(key, len(self._slots))].append(key)


def slot_of(key: str, slot_count: int) -> int:
    """The slot of a String in a table of a power of two of slots.

    Source: BaseHashTable.findSlot.
    """
    hash_code = string_hash(key)
    signed = hash_code - (1 << 32) if hash_code >= 1 << 31 else hash_code
    return (signed * _FIBONACCI & 0xFFFFFFFFFFFFFFFF) >> (65 - slot_count.bit_length())
