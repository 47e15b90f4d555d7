"""The events of groups of any kind: offsets, deletion, expiry, the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.events import CoordinatorEvent
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.offset_requests import CommitRequest
from cordwood.model.audit import Requester
from cordwood.model.kafka_errors import KafkaError


class DeletedOffsets(NamedTuple):
    """An answer to OffsetDelete: an error for all, or a code for each partition in order."""

    error_code: int
    partitions: tuple[int, ...] = ()


class GroupEvent(CoordinatorEvent):
    """An event of a group."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(GroupEvent):
    """OffsetCommit; the answer is an error code. `records` are of offsets that may be committed."""

    is_long = True
    request: CommitRequest
    records: Sequence[OffsetRecord]
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(GroupEvent):
    """An OffsetDelete request."""

    is_long = True
    group_id: str
    partitions: tuple[tuple[str, int], ...]
    requester: Requester
    reply_to: ReplyTo[DeletedOffsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(GroupEvent):
    """DeleteGroups, of one group; the answer is an error code."""

    is_long = True
    group_id: str
    requester: Requester
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted(GroupEvent):
    """Topics were deleted; `recreated` has the ids of new topics of the same names."""

    is_long = True
    names: frozenset[str]
    recreated: Mapping[str, UUID]
    reply_to: ReplyTo[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBackOffsets(GroupEvent):
    """A topic is restored: its offsets count again, unless the group has committed since.

    The answer is how many do.
    """

    is_long = True
    records: Sequence[OffsetRecord]
    reply_to: ReplyTo[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets(GroupEvent):
    """Timer event: looks for expired offsets of these groups."""

    group_ids: tuple[str, ...]
    reply_to: ReplyTo[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoaded(GroupEvent):
    """The groups were read from the log: the sessions of their members begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNotWritten(GroupEvent):
    """The offsets of a commit are not in the log."""

    request: CommitRequest
    error: KafkaError
    reply_to: ReplyTo[int]
