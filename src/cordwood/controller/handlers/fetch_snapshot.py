"""FetchSnapshot (59), versions 0 and 1: a part of a snapshot of the metadata log.

Versions: 1 the directory of the copy, addresses (KIP-853).

Source: kafka.server.ControllerApis.handleFetchSnapshot,
KafkaRaftClient.handleFetchSnapshotRequest; KIP-630.
"""

from __future__ import annotations

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.metadata_log import TOPIC_PARTITION
from cordwood.metadata.quorum.observer import OffsetAndEpoch, SnapshotAnswer
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import FetchSnapshotRequest, FetchSnapshotResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster

_Partition = FetchSnapshotResponse.FetchSnapshotResponsePartitionSnapshot


def handle(context: ControllerContext, request: FetchSnapshotRequest) -> Response:
    """Answers with the part, or why there is none."""
    if request.cluster_id not in {None, context.controller.cluster_id}:
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic = request.topics[0]
    partition = topic.partitions[0]
    if TopicPartition(topic.name, partition.partition) != TOPIC_PARTITION:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = _Partition(index=partition.partition, error_code=error, unaligned_records=b"")
        return _fields(context, topic.name, unknown)
    answer = context.controller.quorum.fetch_snapshot(
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        request.max_bytes,
    )
    return _fields(context, topic.name, _partition(answer))


def _partition(answer: SnapshotAnswer) -> _Partition:
    partition = _Partition(
        index=TOPIC_PARTITION.partition,
        error_code=answer.error,
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(
            leader_id=answer.leader.leader_id,
            leader_epoch=answer.leader.epoch,
        ),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=answer.data,
    )
    if answer.snapshot_id is not None:
        partition.snapshot_id = FetchSnapshotResponse.SnapshotId(
            end_offset=answer.snapshot_id.offset,
            epoch=answer.snapshot_id.epoch,
        )
    return partition


def _fields(context: ControllerContext, topic: str, partition: _Partition) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        topics=[
            FetchSnapshotResponse.FetchSnapshotResponseTopicSnapshot(
                name=topic, partitions=[partition]
            )
        ],
        node_endpoints=[
            FetchSnapshotResponse.NodeEndpoint(
                node_id=context.controller.node_id, host=each.host, port=each.port
            )
            for each in context.leader_endpoints
        ],
    )


API = Api(59, "FetchSnapshot", 0, 1, handle, needs=(on_cluster(AclOperation.CLUSTER_ACTION),))
