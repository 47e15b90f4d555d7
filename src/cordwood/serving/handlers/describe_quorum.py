"""DescribeQuorum (55), versions 0 to 2: the only voter of the metadata log, and who follows it.

Versions: 1 times of fetches; 2 directory ids, endpoints, texts of errors.

Source: org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest; KIP-595, KIP-836,
KIP-853.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from cordwood.metadata.controller_requests import QuorumInfo, QuorumReplica
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.protocol.data import DescribeQuorumRequest, DescribeQuorumResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: DescribeQuorumRequest) -> Response:
    """Answers for partition 0 of the metadata log, and knows no other."""
    asked = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    if asked != [(CLUSTER_METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            error_message="", topics=[_unknown(name, numbers) for name, numbers in asked]
        )
    return _described(context.admin.describe_quorum())


async def _described(asked: Awaitable[QuorumInfo]) -> DescribeQuorumResponse:
    quorum = await asked
    partition = DescribeQuorumResponse.DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=_replicas(quorum.voters),
        observers=_replicas(quorum.observers),
    )
    listeners = [
        DescribeQuorumResponse.Listener(name=each.name, host=each.host, port=each.port)
        for each in quorum.endpoints
    ]
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            DescribeQuorumResponse.DescribeQuorumResponseTopicData(
                topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition]
            )
        ],
        nodes=[DescribeQuorumResponse.Node(node_id=quorum.leader_id, listeners=listeners)],
    )


def _replicas(replicas: Iterable[QuorumReplica]) -> list[DescribeQuorumResponse.ReplicaState]:
    return [
        DescribeQuorumResponse.ReplicaState(
            replica_id=each.replica_id,
            replica_directory_id=each.directory_id,
            log_end_offset=each.log_end_offset,
            last_fetch_timestamp=each.last_fetch_ms,
            last_caught_up_timestamp=each.last_caught_up_ms,
        )
        for each in replicas
    ]


def _unknown(
    topic: str, partitions: list[int]
) -> DescribeQuorumResponse.DescribeQuorumResponseTopicData:
    return DescribeQuorumResponse.DescribeQuorumResponseTopicData(
        topic_name=topic,
        partitions=[
            DescribeQuorumResponse.DescribeQuorumResponsePartitionData(
                partition_index=number,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message="This server does not host this topic-partition.",
            )
            for number in partitions
        ],
    )


API = Api(55, "DescribeQuorum", 0, 2, handle, needs=(on_cluster(AclOperation.DESCRIBE),))
