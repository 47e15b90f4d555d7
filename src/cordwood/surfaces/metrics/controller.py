"""Metrics of a node's identity, of the controller, and of the metadata log.

A broker whose controller is on another node has no metrics of the controller.

Source: kafka.server.KafkaRaftServer; org.apache.kafka.controller.metrics (QuorumControllerMetrics,
ControllerMetadataMetrics); org.apache.kafka.raft.internals.KafkaRaftMetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cordwood import __version__
from cordwood.surfaces.metrics.metric import Metric, MetricType, Value, single
from cordwood.surfaces.metrics.snapshot import NodeSnapshot

Number = Callable[[NodeSnapshot], float]


def _controller(name: str, text: str, number: Number) -> Metric[NodeSnapshot]:
    """A metric of the controller; other nodes have none."""
    return Metric(
        mbean=f"kafka.controller:type=KafkaController,name={name}",
        type=MetricType.GAUGE,
        help=text,
        read=lambda snapshot: [Value({}, number(snapshot))] if snapshot.is_controller else [],
    )


def _raft(attribute: str, text: str, number: Number) -> Metric[NodeSnapshot]:
    name = f"kafka_server_raftmetrics_{attribute.replace('-', '_')}"
    bean = "kafka.server:type=raft-metrics"
    return single(bean, text, number, attribute=attribute, given_name=name)


def _features(snapshot: NodeSnapshot) -> Iterator[Value]:
    for name, level in snapshot.image.features.items():
        first, *others = name.split(".")
        words = first + "".join(each.title() for each in others)
        yield Value({"featureName": words}, level)


def lag_ms(snapshot: NodeSnapshot) -> int:
    """The time since the last metadata record that the node has read was written."""
    return max(0, snapshot.now_ms - snapshot.image.timestamp_ms)


def _fenced(snapshot: NodeSnapshot) -> int:
    return sum(each.fenced for each in snapshot.image.brokers.values())


CONTROLLER: tuple[Metric[NodeSnapshot], ...] = (
    Metric(
        mbean="kafka.server:type=KafkaServer,name=ClusterId",
        type=MetricType.GAUGE,
        help="Always 1; the cluster's id is the label `cluster_id`.",
        read=lambda snapshot: [Value({"cluster_id": snapshot.cluster_id}, 1)],
    ),
    Metric(
        type=MetricType.GAUGE,
        labels=("version",),
        help="Always 1; the label is the version of Cordwood.",
        read=lambda _: [Value({"version": __version__}, 1)],
        given_name="cordwood_info",
    ),
    Metric(
        mbean="kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        type=MetricType.COUNTER,
        help="Always 0: leaders that were not in the ISR are not counted.",
        read=lambda snapshot: [Value({}, 0)] if snapshot.is_controller else [],
    ),
    _controller("ActiveControllerCount", "1: this is the active controller.", lambda _: 1),
    _controller(
        "ActiveBrokerCount",
        "Brokers that may lead partitions.",
        lambda each: len(each.image.brokers) - _fenced(each),
    ),
    _controller("FencedBrokerCount", "Registered brokers that are fenced.", _fenced),
    _controller("GlobalTopicCount", "Topics.", lambda each: len(each.image.topics)),
    _controller(
        "GlobalPartitionCount", "Partitions.", lambda each: each.partition_counts.partitions
    ),
    _controller(
        "OfflinePartitionsCount",
        "Partitions without a leader.",
        lambda each: each.partition_counts.offline,
    ),
    _controller(
        "PreferredReplicaImbalanceCount",
        "Partitions whose first replica is not their leader.",
        lambda each: each.partition_counts.not_preferred,
    ),
    _controller(
        "LastAppliedRecordOffset",
        "Offset of the last metadata record read.",
        lambda each: each.image.offset,
    ),
    _controller(
        "LastCommittedRecordOffset",
        "Offset of the last metadata record that is committed: with one voter, the last.",
        lambda each: each.image.offset,
    ),
    _controller(
        "LastAppliedRecordTimestamp",
        "Time of that record, in ms since the epoch.",
        lambda each: each.image.timestamp_ms,
    ),
    _controller(
        "LastAppliedRecordLagMs",
        "Time since then. It grows while nothing changes: Cordwood's controller writes no periodic "
        "records that only show that it is alive.",
        lag_ms,
    ),
    single(
        "kafka.server:type=MetadataLoader,name=CurrentMetadataVersion",
        "Level of metadata.version.",
        lambda each: each.image.metadata_version,
    ),
    single(
        "kafka.server:type=MetadataLoader,name=CurrentControllerId",
        "Node id of the active controller; -1 if it is not known.",
        lambda each: each.controller_id,
    ),
    Metric(
        mbean="kafka.server:type=MetadataLoader,name=FinalizedLevel",
        type=MetricType.GAUGE,
        labels=("featureName",),
        help="Finalized level of each feature.",
        read=_features,
    ),
    _raft(
        "current-leader",
        "Node id of the leader; -1 if it is not known.",
        lambda each: each.controller_id,
    ),
    _raft("current-epoch", "Epoch of the last metadata applied.", lambda each: each.image.epoch),
    _raft(
        "high-watermark", "High watermark of the metadata log.", lambda each: each.image.next_offset
    ),
    _raft("log-end-offset", "End of the metadata log.", lambda each: each.image.next_offset),
    _raft("log-end-epoch", "Epoch of its last record.", lambda each: each.image.epoch),
    _raft("number-of-voters", "Voters of the quorum.", lambda each: each.voter_count),
)
