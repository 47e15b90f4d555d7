"""Calls about consumer groups: what there are, who is in them, and what they have committed.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3.0), DescribeConsumerGroupsHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.client.admin import by_topic
from cordwood.client.cluster_client import GROUP, BrokerEndpoint, ClusterClient, Coordinator
from cordwood.client.consumer_protocol import parse_assignment
from cordwood.client.coordinator import offset_commit_topics
from cordwood.client.errors import NotSupportedError, RefusedError, require
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
)

_CONSUMER = "consumer"


class Member(NamedTuple):
    """A member of a group; epochs are None for a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    is_upgraded: bool | None = None


class Group(NamedTuple):
    """A group as its coordinator describes it; epochs are None for a classic group."""

    group_id: str
    kind: str
    state: str
    assignor: str
    coordinator: BrokerEndpoint
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Groups:
    """Calls about groups, on a cluster that the caller closes."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(self, group_id: str) -> Group:
        """A group, whichever protocol it uses.

        Raises:
            RefusedError: there is no such group.
        """
        coordinator = Coordinator(GROUP, group_id)
        deadline = self._cluster.deadline()
        try:
            answer = self._cluster.call(
                ConsumerGroupDescribeRequest(group_ids=[group_id]),
                coordinator=coordinator,
                deadline=deadline,
            )
        except NotSupportedError:
            return self._describe_classic(group_id, deadline)
        (found,) = answer.groups
        if found.error_code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
            return self._describe_classic(group_id, deadline)
        require(found.error_code, found.error_message)
        return Group(
            group_id,
            "Consumer",
            found.group_state,
            found.assignor_name,
            self._cluster.find_coordinator(coordinator, deadline=deadline),
            tuple(_member(member) for member in found.members),
            found.group_epoch,
            found.assignment_epoch,
        )

    def _describe_classic(self, group_id: str, deadline: float) -> Group:
        coordinator = Coordinator(GROUP, group_id)
        answer = self._cluster.call(
            DescribeGroupsRequest(groups=[group_id]),
            coordinator=coordinator,
            deadline=deadline,
        )
        (found,) = answer.groups
        require(found.error_code, found.error_message)
        if found.group_state == "Dead" and not found.protocol_type:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if found.protocol_type not in {"", _CONSUMER}:
            raise RefusedError(
                -1,
                f"GroupId {group_id} is not a consumer group ({found.protocol_type}).",
            )
        return Group(
            group_id,
            "Classic",
            found.group_state,
            found.protocol_data,
            self._cluster.find_coordinator(coordinator, deadline=deadline),
            tuple(
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    tuple(parse_assignment(member.member_assignment)),
                )
                for member in found.members
            ),
        )

    def delete(self, group_id: str) -> None:
        """Deletes a group that has no members."""
        answer = self._cluster.call(
            DeleteGroupsRequest(groups_names=[group_id]),
            coordinator=Coordinator(GROUP, group_id),
        )
        for result in answer.results:
            require(result.error_code)

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets in the name of a group without members."""
        if not offsets:
            return
        answer = self._cluster.call(
            OffsetCommitRequest(
                group_id=group_id,
                topics=offset_commit_topics(offsets),
            ),
            coordinator=Coordinator(GROUP, group_id),
            version_max=9,
        )
        for topic in answer.topics:
            for partition in topic.partitions:
                require(partition.error_code)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[RefusedError | None, dict[TopicPartition, RefusedError | None]]:
        """Forgets committed offsets: the error of the whole request, and those of partitions."""
        answer = self._cluster.call(
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequest.OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=number)
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
            ),
            coordinator=Coordinator(GROUP, group_id),
        )
        if answer.error_code:
            error = RefusedError(int(answer.error_code))
            return error, dict.fromkeys(partitions, error)
        found = {
            TopicPartition(topic.name, p.partition_index): (
                RefusedError(int(p.error_code)) if p.error_code else None
            )
            for topic in answer.topics
            for p in topic.partitions
        }
        return next((error for error in found.values() if error is not None), None), found


def _member(member: ConsumerGroupDescribeResponse.Member) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        member.member_epoch,
        _is_upgraded(member.member_type),
    )


def _is_upgraded(member_type: int) -> bool | None:
    return None if member_type < 0 else member_type == 1


def _partitions(
    assigned: ConsumerGroupDescribeResponse.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assigned.topic_partitions
        for number in topic.partitions
    )
