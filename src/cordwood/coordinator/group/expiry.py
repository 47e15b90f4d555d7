"""Expiry of the committed offsets of a group.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.cleanupExpiredOffsets,
OffsetExpirationConditionImpl; KIP-211.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.coordinator.group.group import ExpiryBase, Group
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.shard import GroupShard


class Reason(enum.StrEnum):
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


def forecast(shard: GroupShard, group: Group, *, retention_ms: int | None) -> list[Expiry]:
    """The time at which each committed offset of a group expires, if nothing changes until then.

    A `retention_ms` of None has no limit. Offsets with an expiry timestamp expire nevertheless.
    """
    base = group.expiry_base
    return [
        _expiry(shard, group, base, key, offset, retention_ms)
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
    base: ExpiryBase | None,
    key: OffsetKey,
    offset: CommittedOffset,
    retention_ms: int | None,
) -> Expiry:
    if base is None:
        return Expiry(key, offset, None, Reason.ACTIVE_GROUP)
    if group.is_subscribed_to(key.topic):
        return Expiry(key, offset, None, Reason.SUBSCRIBED_TOPIC)
    if shard.offsets.is_pending(key):
        return Expiry(key, offset, None, Reason.OPEN_TRANSACTION)
    if offset.expire_timestamp_ms != -1:
        return Expiry(key, offset, offset.expire_timestamp_ms, Reason.EXPIRY_TIMESTAMP)
    if retention_ms is None:
        return Expiry(key, offset, None, Reason.NO_RETENTION)
    if base.since_ms is None:
        expires_at_ms = offset.commit_timestamp_ms + retention_ms
        return Expiry(key, offset, expires_at_ms, Reason.COMMIT_AGE)
    return Expiry(key, offset, base.since_ms + retention_ms, Reason.EMPTY_GROUP_AGE)
