"""What several APIs say alike of brokers, topics and partitions.

Source: org.apache.kafka.metadata.KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cordwood.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from cordwood.broker.request_context import NodeContext
from cordwood.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import INTERNAL_TOPICS

NOT_ASKED = -(2**31)
"""For operations that the client did not ask about."""


def is_internal(topic: str) -> bool:
    """Whether a topic is one of Kafka's own.

    Source: org.apache.kafka.common.internals.Topic.isInternal.
    """
    return topic in INTERNAL_TOPICS


def cluster_operations(context: NodeContext, *, is_asked: bool) -> int:
    """The operations that a client may perform on the cluster, as bits; 0 if it may not know.

    Source: AuthHelper.computeDescribeClusterResponse; KIP-430.
    """
    if not is_asked:
        return NOT_ASKED
    if not context.authorize_cluster(Operation.DESCRIBE):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def brokers_of(
    image: MetadataImage, listener: str, id_field: str, *, with_fenced: bool = False
) -> list[dict[str, Any]]:
    """The brokers that are alive and have a listener of that name, and where it is."""
    found = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is None or (broker.fenced and not with_fenced):
            continue
        found.append(
            {
                id_field: broker.broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.rack,
                "is_fenced": broker.fenced,
            }
        )
    return found


def current_leader(image: MetadataImage, topic: str, index: int) -> tuple[int, int]:
    """A partition's leader and leader epoch; -1 for both if there is no such partition.

    Source: KafkaApis.getCurrentLeader; KIP-951.
    """
    partition = image.partition(topic, index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def endpoints_of(
    image: MetadataImage, leaders: Iterable[int], listener: str
) -> list[dict[str, Any]]:
    """Where leaders are that are alive, each once."""
    wanted = set(leaders)
    return [each for each in brokers_of(image, listener, "node_id") if each["node_id"] in wanted]


def partition_fields(
    image: MetadataImage, index: int, partition: PartitionImage, listener: str
) -> dict[str, Any]:
    """A partition's place: leader, replicas, those in sync and those that are not there."""
    alive = {each.broker_id for each in image.brokers.values() if not each.fenced}
    code = 0
    leader = partition.leader
    if leader == NO_LEADER or leader not in alive:
        code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif image.brokers[leader].endpoint(listener) is None:
        code, leader = ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    return {
        "error_code": code,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "eligible_leader_replicas": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "offline_replicas": _offline(image, partition, listener),
    }


def _offline(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    """The replicas whose broker, or whose log directory, is not there.

    Source: KRaftMetadataCache.isReplicaOffline.
    """
    directories = dict(zip(partition.replicas, partition.directories, strict=False))
    found = []
    for each in partition.replicas:
        broker = image.brokers.get(each)
        if (
            broker is None
            or broker.fenced
            or broker.endpoint(listener) is None
            or not broker.has_online_directory(directories.get(each))
        ):
            found.append(each)
    return found
