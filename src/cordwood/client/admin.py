"""Calls that look after a cluster: its brokers, log directories and topics.

Each asks the broker and turns its answer into plain values; error codes become errors.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.errors import NotSupportedError, RefusedError, require
from cordwood.client.retry import action
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ListGroupsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataResponse,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)

_BROKERS, _CONTROLLERS = 1, 2
"""The endpoint types of DescribeCluster (EndpointType)."""


_TopicResult = (
    CreateTopicsResponse.CreatableTopicResult
    | CreatePartitionsResponse.CreatePartitionsTopicResult
    | DeleteTopicsResponse.DeletableTopicResult
)
"""A topic in the answer to a request that changes some."""


class PartitionFacts(NamedTuple):
    """A partition and its replicas; no leader is -1. `elr` is None if the broker returns none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class TopicFacts(NamedTuple):
    """A topic and its partitions, in order."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionFacts, ...]

    def leader_of(self, partition: int) -> int | None:
        """The broker that leads a partition; None without one, or without such a partition."""
        leaders = (p.leader for p in self.partitions if p.partition == partition and p.leader >= 0)
        return next(leaders, None)


class ClusterFacts(NamedTuple):
    """The brokers, by id; `fenced` are the ids of those that serve nobody."""

    cluster_id: str | None
    controller: int
    nodes: tuple[BrokerEndpoint, ...]
    fenced: frozenset[int] = frozenset()


class ReplicaFacts(NamedTuple):
    """A replica in a log directory; sizes in bytes."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFacts:
    """A broker's log directory; `error_code` 0 for one that works."""

    path: str
    error_code: int
    replicas: Mapping[TopicPartition, ReplicaFacts] = field(default_factory=dict)


class GroupFacts(NamedTuple):
    """A group in a list of groups."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class Reassignment(NamedTuple):
    """Replicas on their way in and out."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Admin:
    """The administrator's calls, on a cluster that the caller closes."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    # ---- the cluster

    def describe_cluster(
        self, *, include_fenced: bool = False, of_controllers: bool = False
    ) -> ClusterFacts:
        """Its id and its brokers, which calls to one of them need.

        Args:
            include_fenced: whether brokers that are fenced are there, too.
            of_controllers: whether controllers are asked, which return themselves.
        """
        request = DescribeClusterRequest(
            include_fenced_brokers=include_fenced,
            endpoint_type=_CONTROLLERS if of_controllers else _BROKERS,
        )
        if include_fenced and not self._cluster.supports(DescribeClusterRequest, 2):
            raise NotSupportedError(
                "Including fenced broker endpoints is not supported with version 1"
            )
        answer = self._cluster.call(request, name="listNodes")
        require(answer.error_code, answer.error_message)
        nodes = tuple(
            BrokerEndpoint(int(b.broker_id), b.host, b.port, b.rack) for b in answer.brokers
        )
        self._cluster.learn(list(nodes), answer.cluster_id)
        fenced = {int(b.broker_id) for b in answer.brokers if b.is_fenced}
        return ClusterFacts(answer.cluster_id, int(answer.controller_id), nodes, frozenset(fenced))

    def groups(self) -> list[GroupFacts]:
        """All groups of all brokers."""
        found = []
        for node in self.describe_cluster().nodes:
            answer = self._cluster.call(ListGroupsRequest(), node_id=node.id)
            require(answer.error_code)
            found += [
                GroupFacts(
                    group.group_id,
                    group.protocol_type,
                    group.group_state,
                    group.group_type,
                )
                for group in answer.groups
            ]
        return found

    def unregister_broker(self, broker_id: int) -> None:
        """Makes the cluster forget a broker."""
        answer = self._cluster.call(UnregisterBrokerRequest(broker_id=broker_id))
        require(answer.error_code, answer.error_message)

    def unregister_controller(self, controller_id: int) -> None:
        """Makes the cluster forget a controller."""
        answer = self._cluster.call(UnregisterControllerRequest(controller_id=controller_id))
        require(answer.error_code, answer.error_message)

    def describe_log_dirs(self, broker_id: int) -> list[LogDirFacts]:
        """The log directories of a broker and what is in them."""
        answer = self._cluster.call(DescribeLogDirsRequest(topics=None), node_id=broker_id)
        require(answer.error_code)
        return [
            LogDirFacts(
                path=result.log_dir,
                error_code=int(result.error_code),
                replicas={
                    TopicPartition(topic.name, p.partition_index): ReplicaFacts(
                        p.partition_size, p.offset_lag, p.is_future_key
                    )
                    for topic in result.topics
                    for p in topic.partitions
                },
            )
            for result in answer.results
        ]

    # ---- topics

    def topics(
        self,
        names: Sequence[str] | None = None,
        *,
        create: bool = False,
        is_single: bool = False,
    ) -> list[TopicFacts]:
        """All topics, or those named; brokers and leaders are learnt on the way.

        `create` allows a broker that does so to create those that are not there. With `is_single`,
        brokers are tried once.

        Raises:
            RefusedError: a topic that was named is not there.
            DisconnectedError: no broker answered, with `is_single`.
        """
        found = []
        for topic in self._metadata(names, create=create, is_single=is_single):
            if names is not None:
                require(topic.error_code)
            found.append(_topic_facts(topic))
        return found

    def find_topics(
        self, names: Iterable[str], *, is_single: bool = False, deadline: float | None = None
    ) -> dict[str, TopicFacts | RefusedError]:
        """The topics of those names, found or refused; `deadline` as with `ClusterClient.call`.

        Raises:
            DisconnectedError: no broker answered, with `is_single`.
        """
        topics = self._metadata(sorted(set(names)), is_single=is_single, deadline=deadline)
        return {
            topic.name or "": (
                RefusedError(topic.error_code) if topic.error_code else _topic_facts(topic)
            )
            for topic in topics
        }

    def _metadata(
        self,
        names: Sequence[str] | None,
        *,
        create: bool = False,
        is_single: bool,
        deadline: float | None = None,
    ) -> Sequence[MetadataResponse.MetadataResponseTopic]:
        """The topics of a Metadata answer; the client knows its brokers from then on."""
        wanted = (
            None
            if names is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        )
        answer = self._cluster.call(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create),
            name="listTopics",
            is_single=is_single,
            deadline=deadline,
        )
        self._cluster.learn(
            [BrokerEndpoint(b.node_id, b.host, b.port, b.rack) for b in answer.brokers],
            answer.cluster_id,
        )
        return answer.topics

    def topics_by_id(self, ids: Sequence[UUID]) -> list[TopicFacts]:
        """The topics of those ids."""
        answer = self._cluster.call(
            MetadataRequest(
                topics=[
                    MetadataRequest.MetadataRequestTopic(topic_id=one, name=None) for one in ids
                ]
            ),
            name="describeTopics",
        )
        for topic in answer.topics:
            require(topic.error_code)
        return [_topic_facts(topic) for topic in answer.topics]

    def describe_topics(
        self, names: Sequence[str], *, partitions_max: int = 2000
    ) -> list[TopicFacts]:
        """The topics named, with eligible leader replicas if the broker returns them.

        `partitions_max` is how many partitions an answer may hold; more than one is asked for then.

        Raises:
            RefusedError: a topic is not there.
        """
        if not self._cluster.supports(DescribeTopicPartitionsRequest):
            return self.topics(names)
        found: dict[str, TopicFacts] = {}
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None
        while True:
            answer = self._cluster.call(
                DescribeTopicPartitionsRequest(
                    topics=[
                        DescribeTopicPartitionsRequest.TopicRequest(name=name)
                        for name in sorted(names)
                    ],
                    response_partition_limit=partitions_max,
                    cursor=cursor,
                ),
                name="describeTopicPartitions",
            )
            for topic in answer.topics:
                require(topic.error_code)
                facts = _topic_facts(topic)
                earlier = found.get(facts.name)
                if earlier is not None:
                    facts = facts._replace(partitions=earlier.partitions + facts.partitions)
                found[facts.name] = facts
            if answer.next_cursor is None:
                return list(found.values())
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic; what is None the cluster decides."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignment or partitions is None else partitions,
            replication_factor=(
                -1 if assignment or replication_factor is None else replication_factor
            ),
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=partition, broker_ids=list(brokers)
                )
                for partition, brokers in (assignment or {}).items()
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=k, value=v)
                for k, v in (configs or {}).items()
            ],
        )
        self._change_topics(
            "create_topics",
            [name],
            lambda _, deadline: (
                self._cluster.call(
                    CreateTopicsRequest(topics=[topic], timeout_ms=30_000), deadline=deadline
                ).topics
            ),
        )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics."""

        def delete(wanted: Sequence[str], deadline: float) -> Sequence[_TopicResult]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in wanted],
                topic_names=list(wanted),
                timeout_ms=30_000,
            )
            return self._cluster.call(request, deadline=deadline).responses

        self._change_topics("delete_topics", names, delete)

    def create_partitions(
        self, counts: Mapping[str, int], assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Raises the number of partitions of each topic to the one given."""
        wanted = (
            None
            if assignments is None
            else [
                CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(brokers))
                for brokers in assignments
            ]
        )

        def create(names: Sequence[str], deadline: float) -> Sequence[_TopicResult]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(
                        name=name, count=counts[name], assignments=wanted
                    )
                    for name in names
                ],
                timeout_ms=30_000,
            )
            return self._cluster.call(request, deadline=deadline).results

        self._change_topics("create_partitions", list(counts), create)

    def _change_topics(
        self,
        api: str,
        names: Sequence[str],
        ask: Callable[[Sequence[str], float], Sequence[_TopicResult]],
    ) -> None:
        """Changes topics, and repeats the request for those that are refused only for now.

        `ask` sends the request for some of them, with a deadline, and gives their results.

        Raises:
            RefusedError: one was refused, the first in the order of the answers.
        """
        retries = self._cluster.retries()
        refused: list[_TopicResult] = []
        while True:
            failed = [result for result in ask(names, retries.deadline) if result.error_code]
            early = [result for result in failed if action(api, result.error_code)]
            refused += [result for result in failed if result not in early]
            if not early or not retries.wait():
                refused += early
                break
            names = [result.name or "" for result in early]
        for result in refused:
            require(result.error_code, result.error_message)

    def reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress among those partitions."""
        wanted = by_topic(partitions)
        if not wanted:
            return {}
        request = ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                    name=t, partition_indexes=p
                )
                for t, p in wanted.items()
            ],
            timeout_ms=30_000,
        )
        try:
            answer = self._cluster.call(request)
        except NotSupportedError:
            return {}
        require(answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, p.partition_index): Reassignment(
                tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for topic in answer.topics
            for p in topic.partitions
        }


def _topic_facts(
    topic: MetadataResponse.MetadataResponseTopic
    | DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic,
) -> TopicFacts:
    facts = [
        PartitionFacts(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            _ids(getattr(p, "eligible_leader_replicas", None)),
            _ids(getattr(p, "last_known_elr", None)),
        )
        for p in topic.partitions
    ]
    return TopicFacts(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(sorted(facts, key=lambda p: p.partition)),
    )


def _ids(given: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if given is None else tuple(given)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, as requests hold them."""
    found: dict[str, list[int]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp.partition)
    return found
