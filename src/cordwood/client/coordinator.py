"""Where a group's coordinator is, and what offsets the group has committed.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator; OffsetFetchRequest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cordwood.client.admin import Admin, by_topic
from cordwood.client.cluster import Cluster
from cordwood.client.errors import RefusedError, require
from cordwood.model.clock import pause
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have a coordinator."""

NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a coordinator that is not made, loaded or found yet."""

RETRY_S = 0.1
"""The time between two attempts, in seconds."""


class Committed(NamedTuple):
    """An offset that a group has committed."""

    offset: int
    leader_epoch: int
    metadata: str


def find_coordinator(cluster: Cluster, key: str, *, kind: int = GROUP) -> int:
    """The node that looks after a group or transactional id, waiting until there is one."""
    deadline = cluster.deadline()
    while True:
        answer = cluster.call(
            "find_coordinator", {"key": key, "key_type": kind, "coordinator_keys": [key]}
        )
        found: Any = answer
        if getattr(answer, "coordinators", None):
            (found,) = answer.coordinators
        if not found.error_code:
            # The node may be missing in all lists of brokers received so far.
            Admin(cluster).describe_cluster()
            return int(found.node_id)
        if found.error_code not in NOT_YET or cluster.is_past(deadline):
            raise RefusedError(int(found.error_code), getattr(found, "error_message", None))
        pause(RETRY_S)


def fetch_committed(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Committed]:
    """What a group has committed for those partitions, or for all it ever committed for."""
    deadline = cluster.deadline()
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in by_topic(partitions).items()
        ]
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    while True:
        answer = cluster.call(
            "offset_fetch",
            {"group_id": group_id, "topics": topics, "groups": [group], "require_stable": False},
            node_id=find_coordinator(cluster, group_id),
            # Later versions name topics by id alone, which a deleted topic no longer has.
            version_max=9,
        )
        found: Any = answer
        if getattr(answer, "groups", None):
            (found,) = answer.groups
        if found.error_code in NOT_YET and not cluster.is_past(deadline):
            pause(RETRY_S)
            continue
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
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that a group has committed, without those that it has not."""
    if not partitions:
        return {}
    found = fetch_committed(cluster, group_id, partitions)
    return {tp: committed.offset for tp, committed in found.items()}
