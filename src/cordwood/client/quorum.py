"""The metadata quorum of a cluster: its voters, and the nodes that follow them.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.describeMetadataQuorum, QuorumInfo (4.3.0).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError, require
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.protocol.data import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)


class QuorumReplica(NamedTuple):
    """A node with a copy of the metadata log; times in ms since the epoch, -1 if not known."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumFacts(NamedTuple):
    """The quorum as its leader knows it; `endpoints` are those of voters, by id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: dict[int, tuple[str, ...]]

    @property
    def leader(self) -> QuorumReplica:
        """The leader among the voters.

        Raises:
            ClientError: it is none of them.
        """
        for each in self.voters:
            if each.replica_id == self.leader_id:
                return each
        raise ClientError("No value present")


def describe_quorum(cluster: ClusterClient, *, node_id: int | None = None) -> QuorumFacts:
    """The metadata quorum.

    Args:
        cluster: the brokers, which ask the active controller, or the controllers.
        node_id: of the active controller, if controllers are asked.

    Raises:
        ClientError: it is refused, or answered for another partition.
    """
    topic = DescribeQuorumRequest.TopicData(
        topic_name=CLUSTER_METADATA_TOPIC,
        partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
    )
    answer = cluster.call(
        DescribeQuorumRequest(topics=[topic]), node_id=node_id, name="describeMetadataQuorum"
    )
    require(answer.error_code, answer.error_message or None)
    partitions = [each for topic in answer.topics for each in topic.partitions]
    if len(partitions) != 1:
        raise ClientError(
            f"DescribeMetadataQuorum response contains {len(partitions)} partitions when it should "
            "contain exactly one"
        )
    partition = partitions[0]
    require(partition.error_code, partition.error_message or None)
    return QuorumFacts(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(_replica, partition.current_voters)),
        tuple(map(_replica, partition.observers)),
        {node.node_id: tuple(map(_endpoint, node.listeners)) for node in answer.nodes},
    )


def _replica(state: DescribeQuorumResponse.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _endpoint(listener: DescribeQuorumResponse.Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
