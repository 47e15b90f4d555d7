"""The state machine of groups: an event, the groups of a partition and the time give effects.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cordwood.coordinator.effects import Answer, Effects
from cordwood.coordinator.group import events
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic.events import Heartbeat, Join, Leave, Sync
from cordwood.coordinator.group.classic.kind import ClassicKind
from cordwood.coordinator.group.classic.member import MemberIds
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.counters import Counts
from cordwood.coordinator.group.kind import GroupKind, Handler, KindContext
from cordwood.coordinator.group.kinds import KINDS
from cordwood.coordinator.group.offset_changes import OffsetChanges
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.timeline import Timeline


class GroupStateMachine:
    """The transitions of the groups and offsets of one partition.

    Each event has one handler: of its kind of groups, or of offsets. Requests of the classic
    protocol go to the kind of the group that they name.
    """

    def __init__(
        self, settings: GroupSettings, metadata: CoordinatorMetadata, member_ids: MemberIds
    ) -> None:
        """`member_ids` makes the ids of members that have none."""
        self.counts: Counts = Counts()
        self._context = KindContext(settings, metadata, member_ids)
        self._kinds = {kind.name: kind(self._context) for kind in KINDS}
        self._handlers: dict[type[events.GroupEvent], Handler] = {
            Join: self._join,
            Sync: self._sync,
            Heartbeat: self._heartbeat,
            Leave: self._leave,
            events.GroupsLoaded: self._groups_loaded,
        }
        self._add(OffsetChanges(self._context, self._kinds).handlers())
        for kind in self._kinds.values():
            self._add(kind.handlers())

    def _add(self, handlers: Mapping[type[events.GroupEvent], Handler]) -> None:
        assert self._handlers.keys().isdisjoint(handlers), list(handlers)
        self._handlers.update(handlers)

    @property
    def settings(self) -> GroupSettings:
        """The settings of the broker, at present."""
        return self._context.settings

    @settings.setter
    def settings(self, settings: GroupSettings) -> None:
        """Replaces the settings; changes that need no restart take effect at the next event."""
        self._context.settings = settings

    # ---- as cordwood.coordinator.runtime.StateMachine

    def new_state(self, partition: int, timeline: Timeline) -> GroupShard:
        """The state of a partition without groups."""
        return GroupShard(partition, timeline)

    def handle(
        self, state: GroupShard, event: events.GroupEvent, now_ms: int
    ) -> Effects[CoordinatorRecord]:
        """Changes the groups, and returns what follows."""
        change = Change(state, now_ms, self.counts)
        self._handlers[type(event)](change, event)
        return change.effects()

    def replay(
        self,
        state: GroupShard,
        records: Sequence[CoordinatorRecord],
        first_offset: int,
        producer_id: int,
    ) -> None:
        """Applies records that follow each other in the log."""
        offset = first_offset
        for record in records:
            state.replay(record, offset, producer_id)
            offset += 1

    def end_transaction(self, state: GroupShard, producer_id: int, *, commit: bool) -> None:
        """Commits the offsets of a transaction, or drops them.

        Source: GroupCoordinatorShard.replayEndTransactionMarker.
        """
        state.offsets.end_transaction(producer_id, commit=commit)

    def on_loaded(self, _state: GroupShard, _now_ms: int) -> Sequence[events.GroupEvent]:
        """The sessions of all members begin.

        Source: GroupMetadataManager.onLoaded.
        """
        return [events.GroupsLoaded()]

    def on_unloaded(self, state: GroupShard) -> Sequence[Answer]:
        """The members that wait have to look for their coordinator."""
        return [answer for group in state.groups.values() for answer in group.answers_at_unload()]

    # ---- groups of all kinds

    def _kind_of(self, change: Change, group_id: str) -> GroupKind:
        """The kind of a group; a group that does not exist is a classic one."""
        group = change.shard.groups.get(group_id)
        return self._kinds[ClassicKind.name if group is None else group.kind]

    def _join(self, change: Change, event: Join) -> None:
        self._kind_of(change, event.request.group_id).join(change, event)

    def _sync(self, change: Change, event: Sync) -> None:
        self._kind_of(change, event.request.group_id).sync(change, event)

    def _heartbeat(self, change: Change, event: Heartbeat) -> None:
        self._kind_of(change, event.group_id).heartbeat(change, event)

    def _leave(self, change: Change, event: Leave) -> None:
        self._kind_of(change, event.group_id).leave(change, event)

    def _groups_loaded(self, change: Change, _event: events.GroupsLoaded) -> None:
        for group in change.shard.groups.values():
            self._kinds[group.kind].on_loaded(change, group.group_id)
