"""The groups and offsets of one partition of `__consumer_offsets`.

Groups of other protocols (consumer, share and streams groups) are known by name only: their records
stay in the log as they are.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.replay,
GroupMetadataManager.replay, OffsetMetadataManager.replay.
"""

from __future__ import annotations

from cordwood.coordinator.group.group import ClassicGroup
from cordwood.coordinator.group.offsets import OffsetStore
from cordwood.coordinator.group.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    OtherGroupRecord,
)
from cordwood.coordinator.timeline import Timeline, TimelineMap


class GroupShard:
    """The coordinator's state of one partition."""

    def __init__(self, partition: int, timeline: Timeline) -> None:
        self.partition = partition
        self.groups: TimelineMap[str, ClassicGroup] = TimelineMap(timeline)
        self.other_groups: TimelineMap[str, str] = TimelineMap(timeline)
        self.offsets = OffsetStore(timeline)

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int) -> None:
        """Applies a record that is in the log, of a transaction if `producer_id` is not -1."""
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, producer_id)
        elif isinstance(record, GroupRecord):
            self._replay_group(record)
        else:
            self._replay_other(record)

    def _replay_offset(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        key, offset = record
        if offset is None:
            self.offsets.remove(key)
            return
        if key.group_id not in self.other_groups and key.group_id not in self.groups:
            self.groups.put(key.group_id, ClassicGroup(key.group_id))
        placed = offset._replace(record_offset=record_offset)
        if producer_id == -1:
            self.offsets.put(key, placed)
        else:
            self.offsets.put_pending(producer_id, key, placed)

    def _replay_group(self, record: GroupRecord) -> None:
        if record.group is None:
            self.groups.remove(record.group_id)
            return
        self.other_groups.remove(record.group_id)
        self.groups.put(record.group_id, record.group)

    def _replay_other(self, record: OtherGroupRecord) -> None:
        if record.protocol is None:
            self.other_groups.remove(record.group_id)
            return
        group = self.groups.get(record.group_id)
        if group is not None and group.is_simple:
            self.groups.remove(record.group_id)
        self.other_groups.put(record.group_id, record.protocol)
