"""A kind of groups: its records, its events, and its answers to the classic protocol.

Kinds are registered in `cordwood.coordinator.group.kinds`. A group says itself who may commit, what
expires and how it is listed (`Group`); a kind says what happens to its groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic.events import Heartbeat, Join, Leave, Sync
from cordwood.coordinator.group.classic.member import (
    JoinAnswer,
    LeaveAnswer,
    LeaveReply,
    MemberIds,
    SyncAnswer,
)
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.events import GroupEvent
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.group.shard import KindRecord
from cordwood.model.error_codes import ErrorCode

Handler = Callable[[Change, Any], None]
"""Changes groups by an event of one class."""


class KindContext:
    """The settings, metadata and member ids that all kinds use."""

    def __init__(
        self, settings: GroupSettings, metadata: CoordinatorMetadata, member_ids: MemberIds
    ) -> None:
        """Takes the settings as they are now; they are replaced when the broker's change."""
        self.settings = settings
        self.metadata = metadata
        self.member_ids = member_ids


class GroupKind(ABC):
    """Handles the events of the groups of a kind. By default it refuses the classic protocol."""

    name: ClassVar[str]
    """`Group.kind` of its groups."""
    record_types: ClassVar[frozenset[int]]
    """Types of keys in `__consumer_offsets`."""

    def __init__(self, context: KindContext) -> None:
        self._context = context

    @classmethod
    @abstractmethod
    def record_of(cls, record_type: int, key: Mapping[str, Any], value: bytes | None) -> KindRecord:
        """The record of a key's fields and a value; None is a tombstone.

        Raises:
            CorruptError: the value is malformed, or of an unknown version.
        """

    def handlers(self) -> Mapping[type[GroupEvent], Handler]:
        """The handlers of the events that only this kind has."""
        return {}

    # ---- requests of the classic protocol

    def join(self, change: Change, event: Join) -> None:
        """Answers INCONSISTENT_GROUP_PROTOCOL."""
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        change.answer(event.reply_to, JoinAnswer(error_code=error))

    def sync(self, change: Change, event: Sync) -> None:
        """Answers UNKNOWN_MEMBER_ID."""
        change.answer(event.reply_to, SyncAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, change: Change, event: Heartbeat) -> None:
        """Answers UNKNOWN_MEMBER_ID."""
        change.answer(event.reply_to, ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(self, change: Change, event: Leave) -> None:
        """Answers UNKNOWN_MEMBER_ID for each member."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        answers = [
            LeaveAnswer(each.member_id, each.group_instance_id, unknown) for each in event.members
        ]
        change.answer(event.reply_to, LeaveReply(members=tuple(answers)))

    # ---- groups

    def on_commit(self, change: Change, group_id: str, member_id: str) -> None:
        """Takes note of a member that commits offsets outside of transactions."""

    def on_loaded(self, change: Change, group_id: str) -> None:
        """Sets the timers of a group that was read from the log."""

    def end(self, change: Change, group_id: str) -> None:
        """Writes the tombstones of an empty group, and cancels its timers."""
        raise AssertionError(f"a {self.name} group cannot be deleted: {group_id}")
