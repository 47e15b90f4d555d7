"""Commits, look-ups and deletions of offsets: which are refused, and which offsets they concern.

Nothing here changes the state.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager, ClassicGroup.validateOffsetCommit,
ConsumerGroup.validateOffsetCommit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.offsets import NO_OFFSET, CommittedOffset, OffsetKey, offset_key
from cordwood.coordinator.group.records import OffsetRecord
from cordwood.coordinator.group.shard import Group, GroupShard
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID

_GROUP_NOT_FOUND_SINCE = 9
_MEMBER_EPOCHS_SINCE = 9


class CommitPartition:
    """An offset to be committed; a plain class for the reason of `CommittedOffset`."""

    __slots__ = ("leader_epoch", "metadata", "offset", "partition")

    def __init__(
        self, partition: int, offset: int, leader_epoch: int = -1, metadata: str | None = None
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata


class CommitTopic(NamedTuple):
    """Offsets to be committed for a topic, and the id it has at present."""

    name: str
    partitions: Sequence[CommitPartition]
    topic_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """An OffsetCommit request, or a TxnOffsetCommit request, which has a producer.

    `retention_ms` is -1 unless the client sets it.
    """

    group_id: str
    topics: Sequence[CommitTopic]
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    retention_ms: int = -1
    api_version: int = 10
    producer: TransactionalProducer | None = None


class FetchTopic(NamedTuple):
    """Partitions of a topic whose committed offsets are requested."""

    name: str
    partitions: tuple[int, ...]
    topic_id: UUID = ZERO_UUID


class FetchingMember(NamedTuple):
    """The member that fetches offsets, and its epoch; the fields of a request without one."""

    member_id: str | None = None
    epoch: int = -1


NO_MEMBER: Final = FetchingMember()


class FetchedOffset(NamedTuple):
    """A committed offset as OffsetFetch answers it, -1 for none."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """The committed offsets of a topic."""

    name: str
    topic_id: UUID
    partitions: tuple[FetchedOffset, ...]


def require_commit(
    shard: GroupShard, request: CommitRequest, *, metadata_bytes_max: int
) -> Group | None:
    """The group of a commit; None for a share or streams group, or one that does not exist yet.

    A partition whose metadata is too long is not committed, and not compared with what the member
    is assigned.

    Raises:
        CoordinatorRequestError: the client may not commit now, or not to this group.
    """
    group_id, generation_id = request.group_id, request.generation_id
    if group_id in shard.other_groups:
        if generation_id >= 0:
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return None
    group = shard.groups.get(group_id)
    in_transaction = request.producer is not None
    if isinstance(group, ConsumerGroup):
        _validate_consumer_commit(group, request, metadata_bytes_max)
    elif group is not None:
        _validate_commit(group, request)
    elif generation_id >= 0:
        if request.api_version >= _GROUP_NOT_FOUND_SINCE and not in_transaction:
            raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise CoordinatorRequestError(ErrorCode.ILLEGAL_GENERATION)
    return group


def _validate_commit(group: ClassicGroup, request: CommitRequest) -> None:
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
        group.require_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise CoordinatorRequestError(ErrorCode.ILLEGAL_GENERATION)
    elif request.producer is not None:
        return  # clients of old versions do not name the member
    elif group.state is not GroupState.EMPTY:
        # Who commits on their own must not disturb a group with members.
        raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.COMPLETING_REBALANCE and request.producer is None:
        raise CoordinatorRequestError(ErrorCode.REBALANCE_IN_PROGRESS)


def _validate_consumer_commit(
    group: ConsumerGroup, request: CommitRequest, metadata_bytes_max: int
) -> None:
    """Source: ConsumerGroup.validateOffsetCommit, createAssignmentEpochValidator."""
    epoch = request.generation_id
    if epoch < 0 and group.is_empty:
        return
    in_transaction = request.producer is not None
    is_nameless = not request.member_id and request.group_instance_id is None
    if in_transaction and epoch == -1 and is_nameless:
        return
    member = group.member(request.member_id)
    if member is None:
        raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    is_classic = member.uses_classic_protocol
    if not is_classic and not in_transaction and request.api_version < _MEMBER_EPOCHS_SINCE:
        raise CoordinatorRequestError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.member_epoch:
        return
    # TxnOffsetCommit has no error of its own for an epoch of the consumer protocol.
    is_generation = is_classic or in_transaction
    stale = ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH
    if epoch > member.member_epoch:
        raise CoordinatorRequestError(stale)
    for topic in request.topics:
        for partition in topic.partitions:
            if is_too_long(partition.metadata, metadata_bytes_max):
                continue
            since = member.assignment_epoch(topic.topic_id, partition.partition)
            if since is None or epoch < since:
                raise CoordinatorRequestError(stale)


def records_of_commit(
    request: CommitRequest, *, now_ms: int, metadata_bytes_max: int
) -> list[OffsetRecord]:
    """The records of a commit, without offsets whose metadata is too long.

    The offsets of a transaction are stored without the topic's id.
    """
    group_id = request.group_id
    expire_ms = -1 if request.retention_ms == -1 else now_ms + request.retention_ms
    records: list[OffsetRecord] = []
    for topic in request.topics:
        name = topic.name
        topic_id = topic.topic_id if request.producer is None else ZERO_UUID
        for each in in_steps(topic.partitions, every=16):
            metadata = each.metadata or ""
            if metadata and is_too_long(metadata, metadata_bytes_max):
                continue
            offset = CommittedOffset(
                each.offset, each.leader_epoch, metadata, now_ms, expire_ms, topic_id
            )
            records.append(OffsetRecord(offset_key(group_id, name, each.partition), offset))
    return records


def is_too_long(metadata: str | None, limit: int) -> bool:
    """Whether metadata has more than `limit` UTF-16 code units, as Java counts them."""
    if not metadata or len(metadata) * 2 <= limit:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


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
    if isinstance(group, ConsumerGroup) and member != NO_MEMBER:
        _require_fetching_member(group, member)
    # Read at once: an offset that is not pending now is stable now, or newer after a pause.
    pending = frozenset(shard.offsets.pending_of_group(group_id, at) if require_stable else ())
    if topics is None:
        return fetch_all_offsets(shard, group_id, at=at, pending=pending)
    return fetch_offsets(shard, group_id, topics, at=at, pending=pending)


def _require_fetching_member(group: ConsumerGroup, asking: FetchingMember) -> None:
    """Source: ConsumerGroup.validateOffsetFetch."""
    if asking.member_id is None and asking.epoch < 0:
        return
    member = group.member(asking.member_id or "")
    if member is None:
        raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    if asking.epoch != member.member_epoch:
        raise CoordinatorRequestError(
            ErrorCode.ILLEGAL_GENERATION
            if member.uses_classic_protocol
            else ErrorCode.STALE_MEMBER_EPOCH
        )


def fetch_offsets(
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


def fetch_all_offsets(
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


def require_offset_delete(shard: GroupShard, group_id: str) -> Group | None:
    """The group whose offsets may be deleted; None for a share or streams group.

    Raises:
        CoordinatorRequestError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if group_id in shard.other_groups:
        return None
    group = shard.groups.get(group_id)
    if group is None:
        raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    is_consumers = isinstance(group, ConsumerGroup) or group.uses_consumer_protocol
    if not group.is_empty and not is_consumers:
        raise CoordinatorRequestError(ErrorCode.NON_EMPTY_GROUP)
    return group


def require_group_delete(shard: GroupShard, group_id: str) -> Group:
    """The group that may be deleted.

    Raises:
        CoordinatorRequestError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; UNSUPPORTED_VERSION for a
            share or streams group.
    """
    if group_id in shard.other_groups:
        raise CoordinatorRequestError(ErrorCode.UNSUPPORTED_VERSION)
    group = shard.groups.get(group_id)
    if group is None:
        raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise CoordinatorRequestError(ErrorCode.NON_EMPTY_GROUP)
    return group


def all_offsets(shard: GroupShard, group_id: str) -> list[OffsetKey]:
    """The offsets to delete with a group, pending transactional ones included."""
    committed = [key for key, _ in shard.offsets.of_group(group_id)]
    return list(dict.fromkeys([*committed, *shard.offsets.pending_of_group(group_id)]))
