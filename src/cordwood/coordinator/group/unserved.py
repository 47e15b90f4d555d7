"""Groups of kinds that are not served: share and streams groups.

They are known by name. Their records stay in the log as they are; they are listed, accept offsets
like an empty group, and can be neither joined nor deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.kind import GroupKind
from cordwood.coordinator.group.offset_requests import CommitRequest
from cordwood.coordinator.group.shard import GroupShard
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError


class UnservedGroup(Group):
    """A group of which only the name is known. Its members are gone: their sessions are over."""

    expires = False
    is_empty = True
    gives_way = True
    expiry_base = None
    state_name = GroupState.EMPTY.value

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.protocol_type = self.kind

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns False: its subscriptions are not known."""
        return False

    def require_commit(self, request: CommitRequest, *, metadata_bytes_max: int) -> None:
        """Refuses members with UNKNOWN_MEMBER_ID."""
        if request.generation_id >= 0:
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)

    def require_delete(self) -> NoReturn:
        """Raises CoordinatorRequestError: UNSUPPORTED_VERSION."""
        raise CoordinatorRequestError(ErrorCode.UNSUPPORTED_VERSION)


class ShareGroup(UnservedGroup):
    """A share group (KIP-932)."""

    kind = "share"


class StreamsGroup(UnservedGroup):
    """A streams group (KIP-1071)."""

    kind = "streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedRecord:
    """The first record of a group, or the tombstone that is its last one."""

    group_id: str
    made_by: type[UnservedGroup]
    is_tombstone: bool

    def encoded(self) -> NoReturn:
        """Fails: groups that are not served are not changed."""
        raise AssertionError(f"a record of {self.group_id} is not written here")

    def replay(self, shard: GroupShard) -> None:
        """Adds or removes the group.

        Raises:
            CorruptError: there is a group of another kind that has records of its own.
        """
        known, kind = shard.groups.get(self.group_id), self.made_by.kind
        if known is not None and known.kind == kind:
            if self.is_tombstone:
                shard.remove(self.group_id)
        elif self.is_tombstone:
            return
        elif known is None or known.gives_way:
            shard.add(self.made_by(self.group_id))
        else:
            raise CorruptError(
                f"a record of a {kind} group is of the {known.kind} group {self.group_id}"
            )


class _UnservedKind(GroupKind):
    group: ClassVar[type[UnservedGroup]]

    @classmethod
    def record_of(
        cls, _record_type: int, key: Mapping[str, Any], value: bytes | None
    ) -> UnservedRecord:
        """The record of a key; the value is left alone."""
        return UnservedRecord(
            group_id=key["groupId"], made_by=cls.group, is_tombstone=value is None
        )


class ShareKind(_UnservedKind):
    """Share groups, by their ShareGroupMetadata."""

    name = ShareGroup.kind
    record_types = frozenset({11})
    group = ShareGroup


class StreamsKind(_UnservedKind):
    """Streams groups, by their StreamsGroupMetadata."""

    name = StreamsGroup.kind
    record_types = frozenset({17})
    group = StreamsGroup
