"""The timers of the members of consumer groups: one that is not heard of in time is removed.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager
(scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeoutIfNeeded,
scheduleConsumerGroupJoinTimeoutIfNeeded, scheduleConsumerGroupSyncTimeout).
"""

from __future__ import annotations

from typing import Final

from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.consumer import events
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import ConsumerMember, MemberState
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.settings import ConsumerGroupSettings

#: A member whose removal cannot be written is removed later.
_FENCE_RETRY_MS: Final = 500

_SESSION: Final = "session"
_REVOCATION: Final = "revocation"
#: Of members of the classic protocol, until they send JoinGroup and SyncGroup.
_REJOIN: Final = "rejoin"
_ASSIGNMENT: Final = "assignment"


class MemberTimers:
    """Sets and cancels the timers of members for one change of the state."""

    def __init__(
        self, settings: ConsumerGroupSettings, metadata: CoordinatorMetadata, change: Change
    ) -> None:
        """`change` collects the timers."""
        self._settings = settings
        self._metadata = metadata
        self._change = change

    def begin_session(
        self, group_id: str, member_id: str, session_timeout_ms: int | None = None
    ) -> None:
        """Begins the session of a member again; without a timeout, with that of the group."""
        if session_timeout_ms is None:
            session_timeout_ms = self._metadata.group_setting(
                group_id, "consumer.session.timeout.ms", self._settings.session_timeout_ms
            )
        self._set(_SESSION, group_id, member_id, session_timeout_ms)

    def resume(self, group: ConsumerGroup) -> None:
        """Begins the sessions of all members of a group that was loaded."""
        for member in group.members():
            self.begin_session(group.group_id, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.await_revocation(group.group_id, member)

    def await_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """Awaits that a member gives up partitions, if it has to."""
        key = _REVOCATION, group_id, member.member_id
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._change.cancel_timer(key)
            return
        event = events.RevocationExpired(
            group_id=group_id, member_id=member.member_id, member_epoch=member.member_epoch
        )
        self._change.set_timer(key, member.rebalance_timeout_ms, event, retry_ms=_FENCE_RETRY_MS)

    def await_join(self, group_id: str, member: ConsumerMember) -> None:
        """Awaits that a member of the classic protocol joins again, unless that is awaited."""
        timeout_ms = member.rebalance_timeout_ms
        self._set(_REJOIN, group_id, member.member_id, timeout_ms, if_absent=True)

    def joined(self, group_id: str, member_id: str) -> None:
        """A member of the classic protocol has joined."""
        self._change.cancel_timer((_REJOIN, group_id, member_id))

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Awaits that a member of the classic protocol sends SyncGroup."""
        self._set(_ASSIGNMENT, group_id, member_id, timeout_ms)

    def synced(self, group_id: str, member_id: str) -> None:
        """A member of the classic protocol has sent SyncGroup."""
        self._change.cancel_timer((_ASSIGNMENT, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """Cancels the timers of a member that is removed."""
        for name in (_SESSION, _REVOCATION, _REJOIN, _ASSIGNMENT):
            self._change.cancel_timer((name, group_id, member_id))

    def _set(
        self, name: str, group_id: str, member_id: str, delay_ms: int, *, if_absent: bool = False
    ) -> None:
        """Has a member be removed after `delay_ms`, and again if that cannot be written."""
        event = events.ConsumerSessionExpired(group_id=group_id, member_id=member_id)
        key = name, group_id, member_id
        self._change.set_timer(key, delay_ms, event, if_absent=if_absent, retry_ms=_FENCE_RETRY_MS)
