"""Groups of a cluster, what they have consumed, and what was done to some.

These are the answers of `cordwood groups` and `cordwood consumer-groups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.coordinator import Committed, fetch_committed
from cordwood.client.errors import RefusedError
from cordwood.client.groups import Group, Member
from cordwood.client.offsets import LATEST, Offsets
from cordwood.model.documents import CamelCase
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.cluster import BrokerAddress, address_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group with its protocol type; `type` is empty for one that Kafka's tools do not know."""

    group: str
    type: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConsumerGroup:
    """A group of consumers with its type and state."""

    group: str
    type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember(CamelCase):
    """A member of a group with the partitions that are assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset(CamelCase):
    """A partition that a group consumes.

    `current_offset` is None if none is committed, `log_end_offset` if its leader refuses, `lag` if
    one of these is; `member_id` if the partition is assigned to no member.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group with its members and offsets, and the broker that coordinates it."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: BrokerAddress
    members: Sequence[GroupMember]
    offsets: Sequence[GroupOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedGroups:
    """Groups that were deleted; `failed` has the reason by group."""

    deleted: Sequence[str]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset(CamelCase):
    """The offset that a group has, or would have, committed for a partition."""

    group: str
    topic: str
    partition: int
    new_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedOffset:
    """A partition whose committed offset was deleted, or not; -1 for a topic that is not there."""

    topic: str
    partition: int
    status: str


class ConsumedPartition(NamedTuple):
    """A partition with the member that it is assigned to, and its offsets; None as far as not."""

    tp: TopicPartition
    committed: Committed | None
    end_offset: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed one to the end of the log."""
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset


def consumed_partitions(group: Group, cluster: ClusterClient) -> list[ConsumedPartition]:
    """The partitions of a group by member, most partitions first; then those of no member."""
    committed = fetch_committed(cluster, group.group_id, None)
    members = sorted(
        (member for member in group.members if member.partitions),
        key=lambda member: -len(member.partitions),
    )
    taken = {tp for member in members for tp in member.partitions}
    wanted = [*taken, *(tp for tp in committed if tp not in taken)]
    ends: dict[TopicPartition, int | RefusedError] = {}
    if wanted:
        ends = Offsets(cluster).list_offsets(dict.fromkeys(wanted, LATEST))
    found = []
    for member in [*members, None]:
        mine = [tp for tp in committed if tp not in taken] if member is None else member.partitions
        for tp in sorted(mine):
            end = ends.get(tp)
            offset = None if isinstance(end, RefusedError) else end
            found.append(ConsumedPartition(tp, committed.get(tp), offset, member))
    return found


def described_group(group: Group, consumed: Iterable[ConsumedPartition]) -> DescribedGroup:
    """A group as a document describes it."""
    return DescribedGroup(
        group=group.group_id,
        type=group.kind,
        state=group.state,
        assignor=group.assignor,
        coordinator=address_of(group.coordinator),
        members=[
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.host,
                partitions=[str(tp) for tp in member.partitions],
            )
            for member in group.members
        ],
        offsets=[
            GroupOffset(
                topic=each.tp.topic,
                partition=each.tp.partition,
                current_offset=None if each.committed is None else each.committed.offset,
                log_end_offset=each.end_offset,
                lag=each.lag,
                member_id=None if each.member is None else each.member.member_id,
            )
            for each in consumed
        ],
    )
