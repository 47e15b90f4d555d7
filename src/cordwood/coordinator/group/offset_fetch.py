"""Look-ups of committed offsets; nothing here changes the state.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from cordwood.coordinator.group.offset_requests import (
    NO_MEMBER,
    FetchedOffset,
    FetchedTopic,
    FetchingMember,
    FetchTopic,
)
from cordwood.coordinator.group.offsets import OffsetKey
from cordwood.coordinator.group.shard import GroupShard
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID


def found_offsets(
    shard: GroupShard,
    group_id: str,
    topics: Iterable[FetchTopic] | None,
    *,
    at: int,
    require_stable: bool,
    member: FetchingMember = NO_MEMBER,
) -> list[FetchedTopic]:
    """The offsets of a group for these partitions, or for all if None, as of an offset of the log.

    With `require_stable` an offset that an open transaction may change has an error instead.

    Raises:
        CoordinatorRequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION; a group
            of classic members takes any member.
    """
    group = shard.groups.get(group_id, at)
    if group is not None and member != NO_MEMBER:
        group.require_fetch(member)
    # Read at once: an offset that is not pending now is stable now, or newer after a pause.
    pending = frozenset(shard.offsets.pending_of_group(group_id, at) if require_stable else ())
    if topics is None:
        return _fetch_all(shard, group_id, at=at, pending=pending)
    return _fetch_some(shard, group_id, topics, at=at, pending=pending)


def _fetch_some(
    shard: GroupShard,
    group_id: str,
    topics: Iterable[FetchTopic],
    *,
    at: int,
    pending: Collection[OffsetKey],
) -> list[FetchedTopic]:
    """The committed offsets of a group for these partitions, as of an offset of the log."""
    return [
        FetchedTopic(
            topic.name,
            topic.topic_id,
            tuple(
                _fetched(
                    shard,
                    OffsetKey(group_id, topic.name, partition),
                    topic.topic_id,
                    at=at,
                    pending=pending,
                )
                for partition in in_steps(topic.partitions, every=16)
            ),
        )
        for topic in in_steps(topics)
    ]


def _fetch_all(
    shard: GroupShard, group_id: str, *, at: int, pending: Collection[OffsetKey]
) -> list[FetchedTopic]:
    """All that a group has committed, at an offset of the log."""
    found: dict[str, list[FetchedOffset]] = {}
    for key, _ in in_steps(shard.offsets.of_group(group_id, at), every=16):
        found.setdefault(key.topic, []).append(
            _fetched(shard, key, ZERO_UUID, at=at, pending=pending)
        )
    return [FetchedTopic(topic, ZERO_UUID, tuple(offsets)) for topic, offsets in found.items()]


def _fetched(
    shard: GroupShard, key: OffsetKey, topic_id: UUID, *, at: int, pending: Collection[OffsetKey]
) -> FetchedOffset:
    if key in pending:
        return FetchedOffset(key.partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    found = shard.offsets.get(key, at)
    if found is None or not found.is_of(topic_id):
        return FetchedOffset(key.partition)
    return FetchedOffset(key.partition, found.offset, found.leader_epoch, found.metadata)
