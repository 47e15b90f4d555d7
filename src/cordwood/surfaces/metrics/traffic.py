"""Metrics of a broker's records: what goes in and out, and the fetches that wait.

Source: org.apache.kafka.storage.log.metrics.BrokerTopicMetrics; kafka.server.FetchSession,
ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Iterator

from cordwood.surfaces.metrics.metric import Metric, MetricType, Value, single
from cordwood.surfaces.metrics.snapshot import Snapshot


def _topics(name: str, field: str, text: str) -> Metric[Snapshot]:
    """A total for every topic for which it is not 0, and without a label for all."""

    def read(snapshot: Snapshot) -> Iterator[Value]:
        yield Value({}, getattr(snapshot.all_topics, field))
        for topic, counters in snapshot.topics.items():
            count = getattr(counters, field)
            if count:
                yield Value({"topic": topic}, count)

    return Metric(
        mbean=f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec",
        type=MetricType.COUNTER,
        labels=("topic",),
        help=text,
        read=read,
    )


def _refused(name: str, field: str, text: str) -> Metric[Snapshot]:
    return single(
        f"kafka.server:type=BrokerTopicMetrics,name={name}RecordsPerSec",
        text,
        lambda snapshot: getattr(snapshot.broker.replicas.logs.context.metrics, field),
        MetricType.COUNTER,
    )


# ---- delayed requests


def _waiting(snapshot: Snapshot) -> Iterator[Value]:
    yield Value({"delayedOperation": "Fetch"}, snapshot.fetches.delayed)
    yield Value({"delayedOperation": "Produce"}, snapshot.produces.delayed)


def _watched(snapshot: Snapshot) -> Iterator[Value]:
    yield Value({"delayedOperation": "Fetch"}, snapshot.fetches.watched)
    yield Value({"delayedOperation": "Produce"}, snapshot.produces.watched)


TRAFFIC: tuple[Metric[Snapshot], ...] = (
    _topics("MessagesIn", "messages_in", "Records appended, clients' and the broker's own."),
    _topics("BytesIn", "bytes_in", "Bytes of batches appended, as received."),
    _topics("BytesOut", "bytes_out", "Bytes of batches sent to consumers."),
    _topics("BytesRejected", "bytes_rejected", "Bytes refused for being above max.message.bytes."),
    _topics(
        "TotalProduceRequests", "total_produce_requests", "Requested appends, one per partition."
    ),
    _topics(
        "FailedProduceRequests",
        "failed_produce_requests",
        "Failed appends, except for errors of the cluster's state or of "
        "the size or checksum of a batch.",
    ),
    _topics(
        "TotalFetchRequests",
        "total_fetch_requests",
        "Reads of partitions for fetches. Kafka reads all partitions of a follower's session each "
        "time; Cordwood those that have changed.",
    ),
    _topics(
        "FailedFetchRequests",
        "failed_fetch_requests",
        "Failed reads, except for errors of the cluster's state or the offset.",
    ),
    _topics(
        "ProduceMessageConversions",
        "produce_message_conversions",
        "Records of batches recompressed because of the topic's compression.type.",
    ),
    _refused(
        "NoKeyCompactedTopic",
        "no_key_compacted_topic_records",
        "Records refused because they have no key and their topic is compacted.",
    ),
    _refused(
        "InvalidMagicNumber",
        "invalid_magic_number_records",
        "Batches refused because of their format version.",
    ),
    _refused(
        "InvalidMessageCrc", "invalid_message_crc_records", "Batches refused for their checksum."
    ),
    _refused(
        "InvalidOffsetOrSequence",
        "invalid_offset_or_sequence_records",
        "Batches refused because their offsets, count or sequences are inconsistent.",
    ),
    single(
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        "Cached fetch sessions (KIP-227).",
        lambda snapshot: snapshot.fetch_sessions,
    ),
    single(
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
        "Partitions of all fetch sessions.",
        lambda snapshot: snapshot.fetch_session_partitions,
    ),
    single(
        "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
        "Fetch sessions evicted for others.",
        lambda snapshot: snapshot.fetch_session_evictions,
        MetricType.COUNTER,
    ),
    Metric(
        mbean="kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
        type=MetricType.GAUGE,
        labels=("delayedOperation",),
        help="Delayed requests: fetches that wait for bytes, produces with acks=all for replicas.",
        read=_waiting,
    ),
    Metric(
        mbean="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
        type=MetricType.GAUGE,
        labels=("delayedOperation",),
        help="Partitions that waiting requests watch, one for each request.",
        read=_watched,
    ),
    Metric(
        mbean="kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec",
        type=MetricType.COUNTER,
        labels=("fetcherType",),
        help="Delayed fetches answered at their timeout.",
        read=lambda snapshot: [Value({"fetcherType": "consumer"}, snapshot.fetches.expired)],
    ),
)
