"""Classic groups as a kind: joins, syncs, heartbeats, timers and failed writes.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the classic part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic import events
from cordwood.coordinator.group.classic.answers import refused
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.joining import Joining
from cordwood.coordinator.group.classic.member import UNKNOWN_MEMBER_ID
from cordwood.coordinator.group.classic.rebalance import ClassicRebalance
from cordwood.coordinator.group.classic.records import (
    GroupMetadataRecord,
    group_metadata_record,
    group_tombstone,
    new_group_metadata,
)
from cordwood.coordinator.group.events import GroupEvent
from cordwood.coordinator.group.kind import GroupKind, Handler
from cordwood.coordinator.group.shard import KindRecord
from cordwood.format.group_metadata import GROUP_METADATA_TYPE
from cordwood.model.error_codes import ErrorCode


class ClassicKind(GroupKind):
    """Groups of the classic protocol, and those that only have offsets."""

    name = ClassicGroup.kind
    record_types = frozenset({GROUP_METADATA_TYPE})

    @classmethod
    def record_of(
        cls, _record_type: int, key: Mapping[str, Any], value: bytes | None
    ) -> GroupMetadataRecord:
        """The GroupMetadata of a key's fields and a value in any version."""
        return group_metadata_record(key["group"], value)

    def handlers(self) -> Mapping[type[GroupEvent], Handler]:
        """The handlers of timers and of records that could not be written."""
        return {
            events.InitialDelayEnded: self._initial_delay_ended,
            events.JoinsExpired: self._joins_expired,
            events.SyncsExpired: self._syncs_expired,
            events.SessionExpired: self._session_expired,
            events.AssignmentNotWritten: self._assignment_not_written,
            events.StaticMemberNotWritten: self._static_member_not_written,
        }

    def rebalance(self, change: Change) -> ClassicRebalance:
        """The transitions of a group by one event."""
        return ClassicRebalance(self._context.settings, change)

    def _joining(self, change: Change) -> Joining:
        context = self._context
        return Joining(
            context.settings, self.rebalance(change), context.member_ids.of_classic, change
        )

    # ---- requests

    def join(self, change: Change, event: events.Join) -> None:
        """Adds a member to a group, which is made if there is none."""
        group = change.group(event.request.group_id)
        if group is None:
            self.join_new(change, event, ())
        else:
            self._joining(change).join(group, event.request, event.reply_to)

    def join_new(
        self, change: Change, event: events.Join, tombstones: Sequence[KindRecord]
    ) -> None:
        """Makes the group of a member without an id, after tombstones of one of another kind."""
        request = event.request
        if request.member_id != UNKNOWN_MEMBER_ID:
            change.answer(event.reply_to, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
            return
        change.write_all(tombstones)
        # The next load of this partition must find the group.
        group = change.new_group(request.group_id)
        change.write(new_group_metadata(group))
        self._joining(change).join(group, request, event.reply_to)

    def sync(self, change: Change, event: events.Sync) -> None:
        """Answers with a member's assignment, once the leader has sent it."""
        group = change.group(event.request.group_id)
        if group is None:
            super().sync(change, event)
        else:
            self.rebalance(change).sync(group, event.request, event.reply_to)

    def heartbeat(self, change: Change, event: events.Heartbeat) -> None:
        """Resets the session timeout of a member. Its group does not change, and is not copied."""
        group = change.shard.classic_group(event.group_id)
        if group is None:
            super().heartbeat(change, event)
            return
        error = self.rebalance(change).heartbeat(
            group, event.member_id, event.group_instance_id, event.generation_id
        )
        change.answer(event.reply_to, error)

    def leave(self, change: Change, event: events.Leave) -> None:
        """Removes members from their group."""
        group = change.group(event.group_id)
        if group is None:
            super().leave(change, event)
        else:
            self.rebalance(change).leave(group, event.members, event.reply_to)

    # ---- groups

    def on_commit(self, change: Change, group_id: str, member_id: str) -> None:
        """Resets the session timeout: the request shows that the member is alive."""
        group = change.shard.classic_group(group_id)
        if group is not None and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.rebalance(change).keep_alive(group, member_id)

    def on_loaded(self, change: Change, group_id: str) -> None:
        """Begins the sessions of all members; rebalances a group that has too many."""
        group = change.shard.classic_group(group_id)
        assert group is not None, group_id
        rebalance = self.rebalance(change)
        rebalance.resume(group)
        if len(group) > self._context.settings.max_size:
            changed = change.group(group_id)
            assert changed is not None, group_id
            rebalance.shrink(changed)

    def end(self, change: Change, group_id: str) -> None:
        """Writes the tombstone of an empty group, and cancels its timers."""
        group = change.shard.classic_group(group_id)
        assert group is not None, group_id
        change.write(group_tombstone(group_id))
        self.rebalance(change).end(group)

    # ---- timers; a group may have been deleted since they were set

    def _initial_delay_ended(self, change: Change, event: events.InitialDelayEnded) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self.rebalance(change).end_initial_delay(group, event.delay_ms, event.remaining_ms)

    def _joins_expired(self, change: Change, event: events.JoinsExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self.rebalance(change).complete_join(group)

    def _syncs_expired(self, change: Change, event: events.SyncsExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self.rebalance(change).expire_syncs(group, event.generation_id)

    def _session_expired(self, change: Change, event: events.SessionExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self.rebalance(change).expire_session(group, event.member_id)

    # ---- records that could not be written

    def _assignment_not_written(self, change: Change, event: events.AssignmentNotWritten) -> None:
        group = change.group(event.group_id)
        assert group is not None, event.group_id
        self.rebalance(change).refuse_assignment(
            group, event.member_id, event.error, event.reply_to
        )

    def _static_member_not_written(
        self, change: Change, event: events.StaticMemberNotWritten
    ) -> None:
        group = change.group(event.group_id)
        assert group is not None, event.group_id
        self._joining(change).refuse_static(group, event.member_id, event.error, event.reply_to)
