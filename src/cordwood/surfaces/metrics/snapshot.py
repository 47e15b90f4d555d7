"""Snapshots of a node's counters that other threads may read.

A node's state belongs to the event loop's thread: `take` and `take_controller` run there, and copy
only references and small dicts. The reader computes everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cordwood.broker.broker import Broker
from cordwood.broker.delayed_operations import PartitionName, WaitKey
from cordwood.broker.metrics import TopicCounters
from cordwood.broker.partition import Partition
from cordwood.cleanup.schedule.cleaner_gauges import Gauge
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.coordinator.group.service import GroupCounts
from cordwood.coordinator.led_partitions import LoadTime
from cordwood.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from cordwood.model.clock import Clock
from cordwood.model.topic_partition import TopicPartition
from cordwood.purgatory.purgatory import Purgatory
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.serving.server import ListenerCounters
from cordwood.serving.session import Session
from cordwood.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from cordwood.node.controller_node import ControllerNode
    from cordwood.node.node import Node

_LOADS_SHOWN_S = 30
"""Source: org.apache.kafka.coordinator.transaction.TransactionStateManagerConfig."""


class Requests(NamedTuple):
    """Requests of one API; times in seconds."""

    answered: int
    seconds: float
    recent: Sequence[float]
    versions: Mapping[int, int]


class PartitionCounts(NamedTuple):
    """Counts over all partitions of the cluster."""

    partitions: int
    offline: int
    not_preferred: int


class ReplicaCounts(NamedTuple):
    """Counts over the replicas on this broker."""

    here: int
    offline_here: int
    led_here: int
    reassigning: int


class DelayedCounts(NamedTuple):
    """Requests that wait: how many, each for each partition, and how many have timed out."""

    delayed: int
    watched: int
    expired: int

    @classmethod
    def of(cls, purgatory: Purgatory[WaitKey] | Purgatory[PartitionName]) -> DelayedCounts:
        """The counts of one kind of request."""
        return cls(purgatory.delayed_count, purgatory.watched_count, purgatory.expired_count)


class Transactions(NamedTuple):
    """Statistics of transactions; times in ms."""

    waiting_for_partitions: int
    unwritten_ends: int
    verification_failures: int
    verifications: int
    verification_ms: float
    recent_verification_ms: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class NodeSnapshot:
    """A node of any kind at one moment."""

    node_id: int
    cluster_id: str
    is_controller: bool
    controller_id: int
    voter_count: int
    now_ms: int
    image: MetadataImage
    requests: Mapping[str, Requests]
    long_turns: int
    longest_turn_s: float
    requests_in_slices: int
    sessions: Sequence[Session]
    listeners: Mapping[str, ListenerCounters]

    @cached_property
    def connections(self) -> Counter[str]:
        """Open connections by listener."""
        return Counter(each.listener for each in self.sessions)

    @cached_property
    def partition_counts(self) -> PartitionCounts:
        """The result of one pass over all partitions."""
        counts: Counter[str] = Counter()
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                counts["partitions"] += 1
                counts["offline"] += partition.leader == NO_LEADER
                counts["not_preferred"] += partition.leader != partition.replicas[0]
        return PartitionCounts(*(counts[name] for name in PartitionCounts._fields))


@dataclass(frozen=True, kw_only=True)
class Snapshot(NodeSnapshot):
    """A broker at one moment."""

    broker: Broker
    cleaner: LogCleaner
    all_topics: TopicCounters
    topics: Mapping[str, TopicCounters]
    fetches: DelayedCounts
    produces: DelayedCounts
    fetch_sessions: int
    fetch_session_partitions: int
    fetch_session_evictions: int
    partitions: Sequence[Partition]
    groups: GroupCounts
    transactional_ids: Mapping[int, str]
    transactions: Transactions
    load_ms: Mapping[str, Sequence[float]]

    @cached_property
    def logs(self) -> list[tuple[PartitionLog, bool]]:
        """Every log, and whether it is the future one of a move."""
        return list(self.broker.replicas.logs_with_futures())

    @cached_property
    def gauges(self) -> Mapping[tuple[str, str], list[Gauge]]:
        """The cleaner's, by type and name."""
        found: dict[tuple[str, str], list[Gauge]] = {}
        for gauge in self.cleaner.gauges.all():
            found.setdefault((gauge.type, gauge.name), []).append(gauge)
        return found

    @cached_property
    def replica_counts(self) -> ReplicaCounts:
        """The result of one pass over all partitions."""
        node_id, logs = self.node_id, self.broker.replicas.logs
        counts: Counter[str] = Counter()
        for topic in self.image.topics.values():
            for index, partition in topic.partitions.items():
                if node_id not in partition.replicas:
                    continue
                is_online = logs.get(TopicPartition(topic.name, index)) is not None
                counts["here"] += 1
                counts["offline_here"] += not is_online
                if is_online and partition.leader == node_id:
                    counts["led_here"] += 1
                    counts["reassigning"] += partition.is_reassigning
        return ReplicaCounts(*(counts[name] for name in ReplicaCounts._fields))

    @cached_property
    def led(self) -> list[tuple[Partition, PartitionImage]]:
        """Partitions that are led here, as the broker and as the cluster know them."""
        found = []
        for partition in self.partitions:
            image = self.image.partition(partition.topic, partition.index)
            if image is not None:
                found.append((partition, image))
        return found


def take(node: Node) -> Snapshot:
    """A snapshot; to be called on the event loop's thread.

    `load_ms` has how long the loads of coordinators' partitions took that have ended of late.
    """
    broker = node.broker
    metrics, sessions = broker.metrics, broker.replicas.fetch_sessions
    return Snapshot(
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        is_controller=broker.admin is not None,
        controller_id=broker.controller_id(),
        voter_count=broker.voter_count(),
        broker=broker,
        cleaner=node.cleaner,
        now_ms=node.clock.now_ms(),
        image=broker.metadata.image,
        all_topics=metrics.all_topics,
        topics=dict(metrics.topics),
        requests=_requests(metrics.requests),
        fetches=DelayedCounts.of(broker.replicas.delayed.fetch),
        produces=DelayedCounts.of(broker.replicas.delayed.produce),
        long_turns=broker.thread.iterations.long_count,
        longest_turn_s=broker.thread.iterations.take_longest(),
        requests_in_slices=broker.thread.slices.unfinished_count,
        fetch_sessions=len(sessions),
        fetch_session_partitions=sessions.partition_count,
        fetch_session_evictions=sessions.evictions,
        sessions=node.server.sessions(),
        listeners=dict(node.server.counters),
        partitions=broker.replicas.led_partitions(),
        transactional_ids=_transactional_ids(broker),
        groups=broker.groups.counts(),
        transactions=_transactions(broker),
        load_ms={
            name: _recent_load_ms(each.runtime.partitions.load_times, node.clock)
            for name, each in (("group", broker.groups), ("transaction", broker.transactions))
        },
    )


def take_controller(node: ControllerNode) -> NodeSnapshot:
    """A snapshot of a controller; to be called on the event loop's thread."""
    iterations = node.thread.iterations
    return NodeSnapshot(
        node_id=node.settings.node_id,
        cluster_id=node.cluster_id,
        is_controller=True,
        controller_id=node.settings.node_id,
        voter_count=1,
        now_ms=node.clock.now_ms(),
        image=node.metadata.image,
        requests=_requests(node.serving.metrics),
        long_turns=iterations.long_count,
        longest_turn_s=iterations.take_longest(),
        requests_in_slices=node.thread.slices.unfinished_count,
        sessions=node.server.sessions(),
        listeners=dict(node.server.counters),
    )


def _requests(metrics: RequestMetrics) -> Mapping[str, Requests]:
    return {
        api: Requests(each.count, each.seconds, list(each.recent), dict(each.versions))
        for api, each in metrics.by_api.items()
    }


def _transactional_ids(broker: Broker) -> Mapping[int, str]:
    """The ids by producer; none if no transaction is open, for there may be very many."""
    led = broker.replicas.led_partitions()
    is_open = any(partition.log.offsets.first_unstable is not None for partition in led)
    return broker.transactions.ids_by_producer() if is_open else {}


def _transactions(broker: Broker) -> Transactions:
    counters = broker.verification.counters
    return Transactions(
        broker.markers.waiting_count,
        broker.transactions.unwritten_ends,
        counters.failures,
        counters.count,
        counters.total_ms,
        list(counters.recent_ms),
    )


def _recent_load_ms(load_times: Sequence[LoadTime], clock: Clock) -> list[float]:
    since_s = clock.monotonic_s() - _LOADS_SHOWN_S
    return [each.duration_ms for each in load_times if each.ended_s >= since_s]
