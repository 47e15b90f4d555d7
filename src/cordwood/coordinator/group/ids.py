"""The ids of the groups of a partition, in the order in which Kafka lists them.

Kafka has the groups in a hash table with chains, which is twice as large as soon as it has 4/3 as
many entries as slots, and never shrinks. It lists the slots in their order, and in each slot the
newest group first. So the order follows from the ids, but for groups of one slot.

Source: org.apache.kafka.timeline.BaseHashTable.findSlot, baseAddOrReplace, rehash;
SnapshottableHashTable.HistoricalIterator; GroupMetadataManager.listGroups.
"""

from __future__ import annotations

from cordwood.coordinator.timeline import LATEST, Timeline, TimelineMap
from cordwood.format.java_map import string_hash

_MULTIPLIER = -7046029254386353131
_LONG_BITS = 64
_LONG_MASK = (1 << _LONG_BITS) - 1


class GroupIds:
    """The ids, each once, as the timeline has them."""

    __slots__ = ("_ids", "_slot_bits")

    def __init__(self, timeline: Timeline) -> None:
        self._ids: TimelineMap[str, bool] = TimelineMap(timeline)
        self._slot_bits = 1

    def put(self, group_id: str) -> None:
        """Adds a group, or takes another in its place, which it keeps in its slot.

        Kafka makes the table larger also if it then adds nothing.
        """
        if 3 * (len(self._ids) + 1) > 4 << self._slot_bits:
            self._slot_bits += 1
        if group_id not in self._ids:
            self._ids.put(group_id, True)

    def remove(self, group_id: str) -> None:
        """Removes a group, if it is there."""
        self._ids.remove(group_id)

    def listed(self, at: int = LATEST) -> list[str]:
        """The ids as of an offset, in Kafka's order."""
        # Growing leaves groups that stay in one slot in the order in which they were added.
        newest_first = [group_id for group_id, _ in self._ids.items(at)][::-1]
        return sorted(newest_first, key=self._slot)

    def _slot(self, group_id: str) -> int:
        hash_code = string_hash(group_id)
        signed = hash_code - (hash_code >> 31 << 32)
        return (signed * _MULTIPLIER & _LONG_MASK) >> (_LONG_BITS - self._slot_bits)
