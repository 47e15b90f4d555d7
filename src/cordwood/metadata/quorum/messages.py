"""An observer's requests and the answers to them, in Kafka's protocol.

Source: org.apache.kafka.raft.RaftUtil, KafkaRaftClient.buildFetchRequest (4.3.0); KIP-595, KIP-630,
KIP-853, KIP-1166.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cordwood.client.node_connection import NodeAddress
from cordwood.metadata.metadata_log import TOPIC_ID, TOPIC_PARTITION
from cordwood.metadata.quorum.observer import (
    FetchAnswer,
    FetchAsk,
    LeaderAndEpoch,
    OffsetAndEpoch,
    SnapshotAnswer,
    SnapshotAsk,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.protocol.data import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from cordwood.protocol.messages import records_of

_MAX_WAIT_MS: Final = 500
_FETCH_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The sender of requests: the cluster, this node, and the directory of its metadata log."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


def fetch_request(ask: FetchAsk, identity: Identity) -> FetchRequest:
    """The Fetch that an observer asks for."""
    partition = FetchRequest.FetchPartition(
        partition=TOPIC_PARTITION.partition,
        current_leader_epoch=ask.epoch,
        fetch_offset=ask.end.offset,
        last_fetched_epoch=ask.end.epoch,
        replica_directory_id=identity.directory_id,
        # A leader that has a higher one answers at once.
        high_watermark=ask.end.high_watermark,
    )
    topic = FetchRequest.FetchTopic(
        topic=TOPIC_PARTITION.topic,
        topic_id=TOPIC_ID,
        partitions=[partition],
    )
    return FetchRequest(
        cluster_id=identity.cluster_id,
        replica_id=identity.node_id,
        replica_state=FetchRequest.ReplicaState(replica_id=identity.node_id, replica_epoch=-1),
        max_wait_ms=_MAX_WAIT_MS,
        max_bytes=_FETCH_BYTES_MAX,
        topics=[topic],
        forgotten_topics_data=[],
    )


def snapshot_request(ask: SnapshotAsk, identity: Identity) -> FetchSnapshotRequest:
    """The FetchSnapshot that an observer asks for."""
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=TOPIC_PARTITION.partition,
        current_leader_epoch=ask.epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(
            end_offset=ask.snapshot_id.offset, epoch=ask.snapshot_id.epoch
        ),
        position=ask.position,
        replica_directory_id=identity.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=identity.cluster_id,
        replica_id=identity.node_id,
        max_bytes=_FETCH_BYTES_MAX,
        topics=[
            FetchSnapshotRequest.TopicSnapshot(name=TOPIC_PARTITION.topic, partitions=[partition])
        ],
    )


def fetch_answer(response: FetchResponse, protocol: SecurityProtocol) -> FetchAnswer | None:
    """The answer to a Fetch; None if it is an error as a whole, or of another partition.

    `protocol` is that of the listener that was asked: the addresses in answers are of the same one.
    """
    if response.error_code or len(response.responses) != 1:
        return None
    topic = response.responses[0]
    if len(topic.partitions) != 1 or topic.partitions[0].partition_index:
        return None
    partition = topic.partitions[0]
    leader = _leader(partition.current_leader)
    return FetchAnswer(
        error=ErrorCode.of(partition.error_code),
        leader=leader,
        leader_address=_address_of(leader.leader_id, response.node_endpoints, protocol),
        high_watermark=partition.high_watermark,
        diverging=_offset_and_epoch(partition.diverging_epoch),
        snapshot_id=_offset_and_epoch(partition.snapshot_id),
        records=records_of(partition.records),
    )


def snapshot_answer(
    response: FetchSnapshotResponse, protocol: SecurityProtocol
) -> SnapshotAnswer | None:
    """The answer to a FetchSnapshot; arguments and None as in `fetch_answer`."""
    if response.error_code or len(response.topics) != 1:
        return None
    topic = response.topics[0]
    if len(topic.partitions) != 1 or topic.partitions[0].index:
        return None
    partition = topic.partitions[0]
    leader = _leader(partition.current_leader)
    return SnapshotAnswer(
        error=ErrorCode.of(partition.error_code),
        leader=leader,
        leader_address=_address_of(leader.leader_id, response.node_endpoints, protocol),
        snapshot_id=_offset_and_epoch(partition.snapshot_id),
        size_bytes=partition.size,
        position=partition.position,
        data=records_of(partition.unaligned_records),
    )


def _leader(
    current: FetchResponse.LeaderIdAndEpoch | FetchSnapshotResponse.LeaderIdAndEpoch,
) -> LeaderAndEpoch:
    return LeaderAndEpoch(current.leader_id, current.leader_epoch)


def _offset_and_epoch(
    found: FetchResponse.EpochEndOffset
    | FetchResponse.SnapshotId
    | FetchSnapshotResponse.SnapshotId,
) -> OffsetAndEpoch | None:
    if found.epoch < 0 or found.end_offset < 0:
        return None
    return OffsetAndEpoch(found.end_offset, found.epoch)


def _address_of(
    node_id: int,
    endpoints: Iterable[FetchResponse.NodeEndpoint | FetchSnapshotResponse.NodeEndpoint],
    protocol: SecurityProtocol,
) -> NodeAddress | None:
    for each in endpoints:
        if each.node_id == node_id:
            return NodeAddress(each.host, each.port, protocol)
    return None
