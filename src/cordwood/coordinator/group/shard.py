"""The groups and offsets of one partition of `__consumer_offsets`.

Share and streams groups are known by name only: their records stay in the log as they are.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.replay,
GroupMetadataManager.replay, OffsetMetadataManager.replay.
"""

from __future__ import annotations

from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.coordinator.group.consumer import records as consumer_records
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.records import ConsumerRecord, RecordType
from cordwood.coordinator.group.ids import GroupIds
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey, OffsetStore
from cordwood.coordinator.group.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    OtherGroupRecord,
)
from cordwood.coordinator.timeline import LATEST, Timeline, TimelineMap
from cordwood.model.errors import CorruptError

Group = ClassicGroup | ConsumerGroup


class GroupShard:
    """The coordinator's state of one partition."""

    def __init__(self, partition: int, timeline: Timeline) -> None:
        self.partition = partition
        self.groups: TimelineMap[str, Group] = TimelineMap(timeline)
        self.other_groups: TimelineMap[str, str] = TimelineMap(timeline)
        self.ids = GroupIds(timeline)
        self.offsets = OffsetStore(timeline)
        self._timeline = timeline

    def classic_group(self, group_id: str, at: int = LATEST) -> ClassicGroup | None:
        """A group of the classic protocol; None if there is none of that name."""
        group = self.groups.get(group_id, at)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str, at: int = LATEST) -> ConsumerGroup | None:
        """A group of the consumer protocol; None if there is none of that name."""
        group = self.groups.get(group_id, at)
        return group if isinstance(group, ConsumerGroup) else None

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int = -1) -> None:
        """Applies a record that is in the log, of a transaction if `producer_id` is not -1.

        Raises:
            CorruptError: it contradicts the records before it.
        """
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, producer_id)
        elif isinstance(record, ConsumerRecord):
            self._replay_consumer(record)
        elif isinstance(record, GroupRecord):
            self._replay_group(record)
        else:
            self._replay_other(record)

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
        if group_id not in self.groups and group_id not in self.other_groups:
            self.put(ClassicGroup(group_id))

    def put(self, group: ClassicGroup) -> None:
        """Adds a group of the classic protocol, or takes it for the one of its id."""
        if group.group_id not in self.groups:
            self.ids.put(group.group_id)
        self.groups.put(group.group_id, group)

    def _remove(self, group_id: str) -> None:
        self.groups.remove(group_id)
        if group_id not in self.other_groups:
            self.ids.remove(group_id)

    def _replay_group(self, record: GroupRecord) -> None:
        if record.group is None:
            self._remove(record.group_id)
            return
        self.other_groups.remove(record.group_id)
        # Kafka replays these records only when it loads them, and then puts each into its table.
        is_loading = not self._timeline.change_id
        if is_loading or record.group_id not in self.groups:
            self.ids.put(record.group_id)
        self.groups.put(record.group_id, record.group)

    def _replay_other(self, record: OtherGroupRecord) -> None:
        group_id = record.group_id
        if record.protocol is None:
            self.other_groups.remove(group_id)
            if group_id not in self.groups:
                self.ids.remove(group_id)
            return
        group = self.classic_group(group_id)
        if group is not None and group.is_simple:
            self.groups.remove(group_id)
        if group_id not in self.other_groups:
            self.ids.put(group_id)
        self.other_groups.put(group_id, record.protocol)

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group = self._consumer_group_for(record)
        if group is None:
            return
        if record.record_type is RecordType.EPOCH and record.value is None:
            consumer_records.require_removable(group)
            self._remove(record.group_id)
        else:
            consumer_records.replay(group, record)

    def _consumer_group_for(self, record: ConsumerRecord) -> ConsumerGroup | None:
        """The group of a record, to be changed; None if a tombstone has none.

        A group is copied once in a change of the state: readers of what is committed have the old
        one.

        Source: GroupMetadataManager.getOrMaybeCreatePersistedConsumerGroup.
        """
        group_id, change_id = record.group_id, self._timeline.change_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if group.change_id == change_id:
                return group
            found = group.copy(change_id)
        elif record.value is None:
            # The group is gone, or a classic one has taken its place.
            return None
        elif group is None or group.is_simple:
            self.other_groups.remove(group_id)
            self.ids.put(group_id)
            found = ConsumerGroup(group_id, change_id)
        else:
            raise CorruptError(f"a record of a consumer group is of the classic group {group_id}")
        self.groups.put(group_id, found)
        return found
