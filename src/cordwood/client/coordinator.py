"""The offsets of a group: fetching what it has committed, and the topics of a commit.

Source: org.apache.kafka.clients.admin.internals.ListConsumerGroupOffsetsHandler;
OffsetFetchRequest, OffsetCommitRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from cordwood.client.admin import by_topic
from cordwood.client.cluster_client import GROUP, ClusterClient, Coordinator
from cordwood.client.errors import require
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import OffsetCommitRequest, OffsetFetchRequest


class Committed(NamedTuple):
    """An offset that a group has committed."""

    offset: int
    leader_epoch: int
    metadata: str


def fetch_committed(
    cluster: ClusterClient, group_id: str, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, of those partitions or of all."""
    numbers = None if partitions is None else by_topic(partitions)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None
        if numbers is None
        else [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in numbers.items()
        ],
    )
    older = (
        None
        if numbers is None
        else [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in numbers.items()
        ]
    )
    answer = cluster.call(
        OffsetFetchRequest(group_id=group_id, topics=older, groups=[group]),
        coordinator=Coordinator(GROUP, group_id),
        # Later versions name topics by id alone, which a deleted topic no longer has.
        version_max=9,
    )
    (found,) = answer.groups or (answer,)
    require(found.error_code)
    return {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset, p.committed_leader_epoch, p.metadata or ""
        )
        for topic in found.topics
        for p in topic.partitions
        if not p.error_code and p.committed_offset >= 0
    }


def committed_offsets(
    cluster: ClusterClient, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that a group has committed, without those that it has not."""
    if not partitions:
        return {}
    found = fetch_committed(cluster, group_id, partitions)
    return {tp: committed.offset for tp, committed in found.items()}


def offset_commit_topics(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, UUID | None] | None = None
) -> list[OffsetCommitRequest.OffsetCommitRequestTopic]:
    """The topics of an OffsetCommit request; `ids` by topic, which versions from 10 on need."""
    return [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            topic_id=(ids or {}).get(topic) or ZERO_UUID,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)],
                    committed_metadata="",
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
