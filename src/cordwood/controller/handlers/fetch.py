"""Fetch (1), versions 4 to 18, at a controller: the metadata log, for the nodes that follow it.

Versions: 12 the epoch of the last record, divergence and snapshots; 13 topic ids; 17 the directory
of the copy; 18 the high watermark that the node knows (KIP-1166).

Source: kafka.server.ControllerApis.handleFetch, KafkaRaftClient.handleFetchRequest,
tryCompleteFetchRequest; KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from typing import Final

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.metadata_log import TOPIC_ID, TOPIC_PARTITION
from cordwood.metadata.quorum.leader import ReplicaKey
from cordwood.metadata.quorum.observer import FetchAnswer, LogEnd
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import FetchRequest, FetchResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.fetch_kinds import fetch_kind

_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15


def handle(context: ControllerContext, request: FetchRequest) -> Response:
    """Answers at once with records, an error or what differs; waits for records otherwise."""
    if request.cluster_id not in {None, context.controller.cluster_id}:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = _partition(context, request)
    if partition is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = _fetch(context, request, partition)
    is_final = (
        answer.error is not ErrorCode.NONE
        or answer.records
        or answer.diverging is not None
        or answer.snapshot_id is not None
        or answer.high_watermark > partition.high_watermark
        or request.max_wait_ms <= 0
    )
    if is_final:
        return _fields(context, answer)
    return _later(context, request, partition)


def _partition(
    context: ControllerContext, request: FetchRequest
) -> FetchRequest.FetchPartition | None:
    """The only partition; None if it is not that of the metadata log."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_known = (
        topic.topic_id == TOPIC_ID
        if context.api_version >= _TOPIC_IDS_SINCE
        else topic.topic == TOPIC_PARTITION.topic
    )
    partition = topic.partitions[0]
    return partition if is_known and partition.partition == TOPIC_PARTITION.partition else None


def _fetch(
    context: ControllerContext, request: FetchRequest, partition: FetchRequest.FetchPartition
) -> FetchAnswer:
    has_state = context.api_version >= _REPLICA_STATE_SINCE
    node_id = request.replica_state.replica_id if has_state else request.replica_id
    answer = context.controller.quorum.fetch(
        ReplicaKey(node_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        LogEnd(
            offset=partition.fetch_offset,
            epoch=partition.last_fetched_epoch,
            high_watermark=partition.high_watermark,
        ),
        request.max_bytes,
    )
    if request.max_wait_ms < 0:
        return FetchAnswer(error=ErrorCode.INVALID_REQUEST, leader=answer.leader)
    return answer


async def _later(
    context: ControllerContext, request: FetchRequest, partition: FetchRequest.FetchPartition
) -> FetchResponse:
    await context.controller.commits.beyond(partition.fetch_offset, request.max_wait_ms)
    return _fields(context, _fetch(context, request, partition))


def _fields(context: ControllerContext, answer: FetchAnswer) -> FetchResponse:
    diverging, snapshot = answer.diverging, answer.snapshot_id
    partition = FetchResponse.PartitionData(
        partition_index=TOPIC_PARTITION.partition,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=-1,
        log_start_offset=context.controller.quorum.start_offset,
        current_leader=FetchResponse.LeaderIdAndEpoch(
            leader_id=answer.leader.leader_id,
            leader_epoch=answer.leader.epoch,
        ),
        aborted_transactions=None,
        records=answer.records,
    )
    if diverging is not None:
        partition.diverging_epoch = FetchResponse.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot is not None:
        partition.snapshot_id = FetchResponse.SnapshotId(
            epoch=snapshot.epoch, end_offset=snapshot.offset
        )
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=TOPIC_PARTITION.topic,
                topic_id=TOPIC_ID,
                partitions=[partition],
            )
        ],
        node_endpoints=[
            FetchResponse.NodeEndpoint(
                node_id=context.controller.node_id, host=each.host, port=each.port
            )
            for each in context.leader_endpoints
        ],
    )


API = Api(
    1,
    "Fetch",
    4,
    18,
    handle,
    needs=(on_cluster(AclOperation.CLUSTER_ACTION),),
    parks=True,
    counted_as=fetch_kind,
)
