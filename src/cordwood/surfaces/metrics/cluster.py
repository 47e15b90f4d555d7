"""Metrics of a broker's replicas, of the metadata that it has applied, and of its coordinators.

Source: kafka.server.ReplicaManager, BrokerServer;
org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
kafka.coordinator.transaction.TransactionMarkerChannelManager, TransactionStateManager;
org.apache.kafka.server.transaction.AddPartitionsToTxnManager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from cordwood.coordinator.group.counters import Count
from cordwood.surfaces.metrics.controller import lag_ms
from cordwood.surfaces.metrics.logs import min_isr
from cordwood.surfaces.metrics.metric import Metric, MetricType, Times, Value, single
from cordwood.surfaces.metrics.snapshot import Snapshot

_RUNNING = 3  # org.apache.kafka.metadata.BrokerState

Number = Callable[[Snapshot], float]
Counts = Callable[[Snapshot], dict[str, int]]


def _replicas(name: str, text: str, number: Number) -> Metric[Snapshot]:
    return single(f"kafka.server:type=ReplicaManager,name={name}", text, number)


def _isr_changes(name: str, text: str, number: Number) -> Metric[Snapshot]:
    mbean = f"kafka.server:type=ReplicaManager,name={name}"
    return single(mbean, text, number, MetricType.COUNTER)


def _applied(attribute: str, text: str, number: Number) -> Metric[Snapshot]:
    name = f"kafka_server_brokermetadatametrics_{attribute.replace('-', '_')}"
    bean = "kafka.server:type=broker-metadata-metrics"
    return single(bean, text, number, attribute=attribute, given_name=name)


def _in_states(snapshot: Snapshot, kind: str) -> Mapping[str, int]:
    """The number of groups of a kind by state."""
    return snapshot.groups.states.get(kind, {})


def _groups(state: GroupState) -> Metric[Snapshot]:
    return single(
        f"kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups{state.value}",
        f"Classic groups that are {state.value}.",
        lambda snapshot: _in_states(snapshot, ClassicGroup.kind).get(state.value, 0),
    )


def _group_metric(attribute: str, label: str, text: str, counts: Counts) -> Metric[Snapshot]:
    return Metric(
        type=MetricType.GAUGE,
        help=text,
        read=lambda snapshot: [
            Value({label: name}, count) for name, count in counts(snapshot).items()
        ],
        mbean="kafka.server:type=group-coordinator-metrics",
        attribute=attribute,
        labels=(label,),
        given_name=f"kafka_server_group_coordinator_metrics_{attribute.replace('-', '_')}",
    )


def _group_counter(what: Count, text: str) -> Metric[Snapshot]:
    # A gauge: a counter's name would end in `_total`, which Kafka's attribute does not.
    return single(
        "kafka.server:type=group-coordinator-metrics",
        text,
        lambda snapshot: snapshot.groups.since_start[what],
        attribute=what.value,
        given_name=f"kafka_server_group_coordinator_metrics_{what.value.replace('-', '_')}",
    )


def _by_protocol(snapshot: Snapshot) -> dict[str, int]:
    kinds = ClassicGroup.kind, ConsumerGroup.kind
    return {kind: sum(_in_states(snapshot, kind).values()) for kind in kinds}


def _by_state(snapshot: Snapshot) -> dict[str, int]:
    counts = _in_states(snapshot, ConsumerGroup.kind)
    return {state.value: counts.get(state.value, 0) for state in ConsumerGroupState}


def _load_time(
    coordinator: str, what: str, of: Callable[[Sequence[float]], float]
) -> Metric[Snapshot]:
    bean, attribute = f"{coordinator}-coordinator-metrics", f"partition-load-time-{what}"

    def number(snapshot: Snapshot) -> float:
        times = snapshot.load_ms[coordinator]
        return of(times) if times else math.nan

    return single(
        f"kafka.server:type={bean}",
        f"The {what} of the times, in ms, that loads of partitions of {coordinator}s took which "
        "have ended in the last 30 seconds. NaN for none.",
        number,
        attribute=attribute,
        given_name=f"kafka_server_{bean.replace('-', '_')}_{attribute.replace('-', '_')}",
    )


def _load_times(coordinator: str) -> tuple[Metric[Snapshot], Metric[Snapshot]]:
    return _load_time(coordinator, "max", max), _load_time(coordinator, "avg", fmean)


def _markers(name: str, text: str, number: Number) -> Metric[Snapshot]:
    bean = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager"
    return single(f"{bean},name={name}", text, number)


def _verification_times(snapshot: Snapshot) -> Iterator[Times]:
    found = snapshot.transactions
    yield Times({}, found.verifications, found.verification_ms, found.recent_verification_ms)


def _producers(snapshot: Snapshot) -> int:
    return sum(log.producer_state.producer_count for log, _ in snapshot.logs)


def _under_min_isr(snapshot: Snapshot) -> int:
    return sum(len(image.isr) < min_isr(each, image) for each, image in snapshot.led)


def _at_min_isr(snapshot: Snapshot) -> int:
    return sum(len(image.isr) == min_isr(each, image) for each, image in snapshot.led)


def _under_replicated(snapshot: Snapshot) -> int:
    return sum(len(image.isr) < len(image.replicas) for _, image in snapshot.led)


CLUSTER: tuple[Metric[Snapshot], ...] = (
    single(
        "kafka.server:type=KafkaServer,name=BrokerState",
        "3: running. In other states the endpoint does not answer.",
        lambda _: _RUNNING,
    ),
    _replicas("PartitionCount", "Replicas on this broker.", lambda each: each.replica_counts.here),
    _replicas("LeaderCount", "Partitions led here.", lambda each: each.replica_counts.led_here),
    _replicas(
        "OfflineReplicaCount",
        "Replicas on this broker whose log directory failed.",
        lambda each: each.replica_counts.offline_here,
    ),
    _replicas(
        "UnderReplicatedPartitions",
        "Partitions led here with a replica that is not in sync.",
        _under_replicated,
    ),
    _replicas(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
        _under_min_isr,
    ),
    _replicas(
        "AtMinIsrPartitionCount",
        "Partitions led here with as many replicas in sync as min.insync.replicas.",
        _at_min_isr,
    ),
    _replicas(
        "ReassigningPartitions",
        "Partitions led here whose replicas are being changed.",
        lambda each: each.replica_counts.reassigning,
    ),
    _replicas(
        "ProducerIdCount", "Producers in the state of the logs, counted per log.", _producers
    ),
    _isr_changes(
        "IsrShrinksPerSec",
        "ISRs of partitions led here that became smaller.",
        lambda each: each.broker.metrics.isr_shrinks,
    ),
    _isr_changes(
        "IsrExpandsPerSec",
        "ISRs of partitions led here that became larger.",
        lambda each: each.broker.metrics.isr_expands,
    ),
    _isr_changes(
        "FailedIsrUpdatesPerSec",
        "ISRs of partitions led here that the controller refused.",
        lambda each: each.broker.metrics.failed_isr_updates,
    ),
    _applied(
        "last-applied-record-offset",
        "Offset of the last metadata record that the broker has applied.",
        lambda each: each.image.offset,
    ),
    _applied(
        "last-applied-record-timestamp",
        "Time of that record, in ms since the epoch.",
        lambda each: each.image.timestamp_ms,
    ),
    _applied("last-applied-record-lag-ms", "Time since then.", lag_ms),
    single(
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
        "Classic groups.",
        lambda snapshot: sum(_in_states(snapshot, ClassicGroup.kind).values()),
    ),
    *(_groups(state) for state in GroupState),
    _group_metric("group-count", "protocol", "Groups of each protocol.", _by_protocol),
    _group_metric(
        "consumer-group-count", "state", "Groups of the consumer protocol (KIP-848).", _by_state
    ),
    _group_counter(Count.OFFSET_COMMITS, "Offsets that groups have committed."),
    _group_counter(Count.OFFSET_EXPIRATIONS, "Committed offsets that have expired."),
    _group_counter(Count.OFFSET_DELETIONS, "Committed offsets that OffsetDelete has deleted."),
    _group_counter(
        Count.COMPLETED_REBALANCES, "Rebalances of classic groups whose members have assignments."
    ),
    _group_counter(Count.CONSUMER_REBALANCES, "New epochs of groups of the consumer protocol."),
    single(
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
        "Committed offsets of all groups.",
        lambda snapshot: snapshot.groups.offsets,
    ),
    *_load_times("group"),
    *_load_times("transaction"),
    _markers(
        "UnknownDestinationQueueSize",
        "Transactions that have ended, one of whose partitions cannot be given its marker.",
        lambda snapshot: snapshot.transactions.waiting_for_partitions,
    ),
    _markers(
        "LogAppendRetryQueueSize",
        "Transactions whose partitions have their markers, while the record of that cannot be "
        "written.",
        lambda snapshot: snapshot.transactions.unwritten_ends,
    ),
    single(
        # Not a rate by its name, so that no rule makes it a counter.
        "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
        "Partitions that were not verified, or not added to a transaction, before a write.",
        lambda snapshot: snapshot.transactions.verification_failures,
        given_name="kafka_server_addpartitionstotxnmanager_verificationfailurerate_count",
    ),
    Metric(
        mbean="kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
        type=MetricType.SUMMARY,
        help="The time in which partitions were verified or added.",
        read=_verification_times,
    ),
)
