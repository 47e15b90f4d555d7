"""When the committed offsets of a group expire.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.cleanupExpiredOffsets,
OffsetExpirationConditionImpl, ClassicGroup.offsetExpirationCondition,
ConsumerGroup.offsetExpirationCondition; KIP-211.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.shard import Group, GroupShard

_Base = Callable[[CommittedOffset], int]


class Reason(enum.Enum):
    """Why an offset expires at a time, or does not expire while things stay as they are."""

    EXPIRY_TIMESTAMP = "the commit has an expiry timestamp"
    COMMIT_AGE = "the age of the commit"
    EMPTY_GROUP_AGE = "the time since the group became empty"
    ACTIVE_GROUP = "the group has members"
    SUBSCRIBED_TOPIC = "a member subscribes to the topic"
    OPEN_TRANSACTION = "an open transaction may change it"
    NO_RETENTION = "the retention time of the group is unlimited"


class Expiry(NamedTuple):
    """An offset, and when it expires: at the first check at or after that time, None for never."""

    key: OffsetKey
    offset: CommittedOffset
    expires_at_ms: int | None
    reason: Reason


class _Rule(NamedTuple):
    base: _Base
    reason: Reason


def forecast(shard: GroupShard, group: Group, *, retention_ms: int | None) -> list[Expiry]:
    """When each committed offset of a group expires, if nothing changes until then.

    A `retention_ms` of None has no limit. Offsets with an expiry timestamp expire nevertheless.
    """
    rule = _rule_of(group)
    return [
        _expiry(shard, group, rule, key, offset, retention_ms)
        for key, offset in shard.offsets.of_group(group.group_id)
    ]


def expired(expiries: Sequence[Expiry], now_ms: int) -> list[OffsetKey]:
    """The offsets whose time has come."""
    return [
        each.key
        for each in expiries
        if each.expires_at_ms is not None and now_ms >= each.expires_at_ms
    ]


def _expiry(
    shard: GroupShard,
    group: Group,
    rule: _Rule | None,
    key: OffsetKey,
    offset: CommittedOffset,
    retention_ms: int | None,
) -> Expiry:
    if rule is None:
        return Expiry(key, offset, None, Reason.ACTIVE_GROUP)
    if group.is_subscribed_to(key.topic):
        return Expiry(key, offset, None, Reason.SUBSCRIBED_TOPIC)
    if shard.offsets.is_pending(key):
        return Expiry(key, offset, None, Reason.OPEN_TRANSACTION)
    if offset.expire_timestamp_ms != -1:
        return Expiry(key, offset, offset.expire_timestamp_ms, Reason.EXPIRY_TIMESTAMP)
    if retention_ms is None:
        return Expiry(key, offset, None, Reason.NO_RETENTION)
    return Expiry(key, offset, rule.base(offset) + retention_ms, rule.reason)


def _rule_of(group: Group) -> _Rule | None:
    """From when on the offsets of a group age; None if they do not expire now.

    In a group with members, offsets of subscribed topics do not expire. For an empty group the
    retention begins when it became empty; for a group that never had members, at each commit.
    """
    by_commit = _Rule(_commit_timestamp, Reason.COMMIT_AGE)
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return by_commit
    if group.state is GroupState.EMPTY:
        since = group.state_timestamp_ms
        return by_commit if since is None else _Rule(lambda _: since, Reason.EMPTY_GROUP_AGE)
    if (
        group.uses_consumer_protocol
        and group.subscribed_topics is not None
        and group.state is GroupState.STABLE
    ):
        return by_commit
    return None


def _commit_timestamp(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms
