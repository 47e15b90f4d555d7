"""Requests that commit and fetch offsets, and the records of a commit.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.offsets import NO_OFFSET, CommittedOffset, offset_key
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID

# Of OffsetCommit (KIP-848), and of TxnOffsetCommit (KIP-1319).
_MEMBER_EPOCHS_SINCE: Final = 9
_MEMBER_EPOCHS_SINCE_OF_TXN: Final = 6


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

    `generation_id` is the epoch of a member of the consumer protocol. `retention_ms` is -1 unless
    the client sets it.
    """

    group_id: str
    topics: Sequence[CommitTopic]
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    retention_ms: int = -1
    api_version: int = 10
    producer: TransactionalProducer | None = None

    @property
    def knows_member_epochs(self) -> bool:
        """Whether the version of the request has GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""
        since = _MEMBER_EPOCHS_SINCE if self.producer is None else _MEMBER_EPOCHS_SINCE_OF_TXN
        return self.api_version >= since


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


def records_of_commit(
    request: CommitRequest, *, now_ms: int, metadata_bytes_max: int
) -> list[OffsetRecord]:
    """The records of a commit, without offsets whose metadata is too long."""
    group_id = request.group_id
    expire_ms = -1 if request.retention_ms == -1 else now_ms + request.retention_ms
    records: list[OffsetRecord] = []
    for topic in request.topics:
        name, topic_id = topic.name, topic.topic_id
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
