"""The groups and offsets of one partition of `__consumer_offsets`.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.replay,
GroupMetadataManager.replay, OffsetMetadataManager.replay.
"""

from __future__ import annotations

from typing import Protocol

from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.ids import GroupIds
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey, OffsetStore
from cordwood.coordinator.log import EncodedRecord
from cordwood.coordinator.timeline import LATEST, Timeline, TimelineMap


class KindRecord(Protocol):
    """A record of a group, as the kind of the group makes and replays it."""

    @property
    def group_id(self) -> str:
        """The group."""

    def __hash__(self) -> int:
        """The hash of a value."""

    def encoded(self) -> EncodedRecord:
        """Its key and value; raises EncodingError for one that does not fit."""

    def replay(self, shard: GroupShard, /) -> None:
        """Applies the record, which is in the log.

        Raises:
            CorruptError: it contradicts the records before it.
        """


CoordinatorRecord = OffsetRecord | KindRecord


class GroupShard:
    """The coordinator's state of one partition.

    Invariant: `ids` has the keys of `groups`; each group with committed offsets is in `groups`.
    """

    def __init__(self, partition: int, timeline: Timeline) -> None:
        self.partition = partition
        self.groups: TimelineMap[str, Group] = TimelineMap(timeline)
        self.ids = GroupIds(timeline)
        self.offsets = OffsetStore(timeline)
        self._timeline = timeline

    @property
    def change_id(self) -> int:
        """The change of the state that has begun last; 0 while the partition is loaded."""
        return self._timeline.change_id

    def classic_group(self, group_id: str, at: int = LATEST) -> ClassicGroup | None:
        """A group of the classic protocol; None if there is none of that name."""
        group = self.groups.get(group_id, at)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str, at: int = LATEST) -> ConsumerGroup | None:
        """A group of the consumer protocol; None if there is none of that name."""
        group = self.groups.get(group_id, at)
        return group if isinstance(group, ConsumerGroup) else None

    def check_invariants(self) -> None:
        """Checks that groups, their ids and their offsets agree."""
        group_ids = {group_id for group_id, _ in self.groups.items()}
        assert group_ids == set(self.ids.listed()), (self.partition, group_ids, self.ids.listed())
        without_group = set(self.offsets.group_ids()) - group_ids
        assert not without_group, (self.partition, without_group)
        self.offsets.check_invariants()
        for group_id, group in self.groups.items():
            assert group.group_id == group_id, (group.group_id, group_id)
            group.check_invariants()

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int = -1) -> None:
        """Applies a record that is in the log, of a transaction if `producer_id` is not -1.

        Raises:
            CorruptError: it contradicts the records before it.
        """
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, producer_id)
        else:
            record.replay(self)

    def _replay_offset(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        key, offset = record.key, record.offset
        if offset is None:
            self.offsets.remove(key)
            return
        placed = offset.placed(record_offset)
        if producer_id == -1:
            self.commit(key, placed)
            return
        self.require_group(key.group_id)
        self.offsets.put_pending(producer_id, key, placed)

    def commit(self, key: OffsetKey, offset: CommittedOffset) -> None:
        """Applies the commit of an offset outside of transactions."""
        self.require_group(key.group_id)
        self.offsets.put(key, offset)

    def require_group(self, group_id: str) -> None:
        """Creates a group that is not there; one that has offsets only is a classic one."""
        if group_id not in self.groups:
            self.put(ClassicGroup(group_id))

    def put(self, group: Group) -> None:
        """Adds a group, or replaces the state of the one of its id."""
        if group.group_id not in self.groups:
            self.ids.put(group.group_id)
        self.groups.put(group.group_id, group)

    def add(self, group: Group) -> None:
        """Puts a group into Kafka's table, also in place of one that is there."""
        self.ids.put(group.group_id)
        self.groups.put(group.group_id, group)

    def remove(self, group_id: str) -> None:
        """Removes a group; its offsets have records of their own."""
        self.groups.remove(group_id)
        self.ids.remove(group_id)
