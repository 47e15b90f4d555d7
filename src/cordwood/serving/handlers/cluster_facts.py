"""Fields about brokers, topics and partitions in several APIs.

Source: org.apache.kafka.metadata.KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, TypeVar
from uuid import UUID

from cordwood.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import INTERNAL_TOPICS
from cordwood.serving.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from cordwood.serving.request_context import RequestContext

P = TypeVar("P")

NOT_ASKED = -(2**31)
"""For operations that the client did not ask about."""


def is_internal(topic: str) -> bool:
    """Whether a topic is one of Kafka's own.

    Source: org.apache.kafka.common.internals.Topic.isInternal.
    """
    return topic in INTERNAL_TOPICS


def cluster_operations(context: RequestContext, *, is_asked: bool) -> int:
    """The operations that a client may perform on the cluster, as bits; 0 if it may not know.

    Source: AuthHelper.computeDescribeClusterResponse; KIP-430.
    """
    if not is_asked:
        return NOT_ASKED
    if not context.authorize_cluster(AclOperation.DESCRIBE):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def endpoint_for(context: RequestContext, broker: BrokerImage) -> Endpoint | None:
    """The address of a broker for clients of this listener; None if it has no such listener.

    Differs: a lone broker with `cordwood.advertise.reached.address` names to each client the
    address that this client has reached.
    """
    endpoint = broker.endpoint(context.listener)
    reached = context.session.reached
    if endpoint is None or reached is None:
        return endpoint
    return replace(endpoint, host=reached.host, port=reached.port)


class BrokerPlace(NamedTuple):
    """Address at which clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


def brokers_of(context: RequestContext, *, with_fenced: bool = False) -> list[BrokerPlace]:
    """The brokers that are alive and have a listener of the client's name, and where it is."""
    found = []
    for broker in context.node.metadata.image.brokers.values():
        endpoint = endpoint_for(context, broker)
        if endpoint is None or (broker.fenced and not with_fenced):
            continue
        found.append(
            BrokerPlace(broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
        )
    return found


def current_leader(image: MetadataImage, topic: str, index: int) -> tuple[int, int]:
    """A partition's leader and leader epoch; -1 for both if there is no such partition.

    Source: KafkaApis.getCurrentLeader; KIP-951.
    """
    partition = image.partition(topic, index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def endpoints_of(context: RequestContext, leaders: Iterable[int]) -> list[BrokerPlace]:
    """The addresses of the leaders that are alive, each once."""
    wanted = set(leaders)
    return [each for each in brokers_of(context) if each.broker_id in wanted]


class PartitionPlaces:
    """The leaders and replicas of an image's partitions, for clients of one listener.

    Lookups that partitions have in common are done once.
    """

    def __init__(self, image: MetadataImage, listener: str) -> None:
        """`listener` is the name of the clients' listener."""
        self.image = image
        alive = [each for each in image.brokers.values() if not each.fenced]
        self._alive = {each.broker_id for each in alive}
        self._reachable = {
            each.broker_id: each for each in alive if each.endpoint(listener) is not None
        }
        self._has_replica: dict[tuple[int, UUID | None], bool] = {}

    def described(self, make: Callable[..., P], index: int, partition: PartitionImage) -> P:
        """A partition in an answer of Metadata or DescribeTopicPartitions, made by `make`."""
        code: int = ErrorCode.NONE
        leader = partition.leader
        if leader == NO_LEADER or leader not in self._alive:
            code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        elif leader not in self._reachable:
            code, leader = ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
        return make(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=self._offline(partition),
        )

    def _offline(self, partition: PartitionImage) -> list[int]:
        """The replicas whose broker or log directory is offline.

        Source: KRaftMetadataCache.isReplicaOffline.
        """
        places = zip_longest(partition.replicas, partition.directories[: len(partition.replicas)])
        return [each[0] for each in places if not self._is_online(each)]

    def _is_online(self, replica: tuple[int, UUID | None]) -> bool:
        known = self._has_replica.get(replica)
        if known is None:
            broker = self._reachable.get(replica[0])
            known = broker is not None and broker.has_online_directory(replica[1])
            self._has_replica[replica] = known
        return known
