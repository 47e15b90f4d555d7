"""Metrics of what clients ask, and of what goes in and out.

Source: org.apache.kafka.storage.log.metrics.BrokerTopicMetrics, kafka.network.RequestMetrics,
SocketServer, kafka.server.FetchSession, ReplicaManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from cordwood.storage.append.validation_result import ValidationMetrics
from cordwood.surfaces.metrics.metric import Kind, Metric, Times, Value
from cordwood.surfaces.metrics.snapshot import Requests, Snapshot

_FETCH = "Fetch"
_FETCH_CONSUMER = "FetchConsumer"


def _topics(name: str, field: str, text: str) -> Metric:
    """A total of every topic for which it is not 0, and without a label of all together."""

    def read(snapshot: Snapshot) -> Iterator[Value]:
        yield Value({}, getattr(snapshot.all_topics, field))
        for topic, counters in snapshot.topics.items():
            count = getattr(counters, field)
            if count:
                yield Value({"topic": topic}, count)

    return Metric(
        mbean=f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec",
        kind=Kind.COUNTER,
        labels=("topic",),
        help=text,
        read=read,
    )


def _refused(name: str, field: str, text: str) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Value]:
        metrics: ValidationMetrics = snapshot.broker.replicas.logs.context.metrics
        yield Value({}, getattr(metrics, field))

    return Metric(
        mbean=f"kafka.server:type=BrokerTopicMetrics,name={name}RecordsPerSec",
        kind=Kind.COUNTER,
        help=text,
        read=read,
    )


def _one(
    mbean: str, kind: Kind, text: str, read: Callable[[Snapshot], float], **labels: str
) -> Metric:
    return Metric(
        mbean=mbean,
        kind=kind,
        help=text,
        labels=tuple(labels),
        read=lambda snapshot: [Value(labels, read(snapshot))],
    )


# ---- requests


def _by_request(snapshot: Snapshot) -> Iterator[tuple[str, Requests]]:
    """As in Kafka: all fetches, and again those of consumers, which are all of them here."""
    for api, requests in snapshot.requests.items():
        yield api, requests
        if api == _FETCH:
            yield _FETCH_CONSUMER, requests


def _requests(snapshot: Snapshot) -> Iterator[Value]:
    for api, requests in _by_request(snapshot):
        for version, count in requests.versions.items():
            yield Value({"request": api, "version": str(version)}, count)


def _total_times(snapshot: Snapshot) -> Iterator[Times]:
    for api, requests in _by_request(snapshot):
        recent = [1000 * seconds for seconds in requests.recent]
        yield Times({"request": api}, requests.answered, 1000 * requests.seconds, recent)


# ---- connections


def _listener(attribute: str, field: str, text: str, kind: Kind = Kind.COUNTER) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Value]:
        for listener, counters in snapshot.listeners.items():
            labels = {"listener": listener, "networkProcessor": "0"}
            yield Value(labels, getattr(counters, field))

    return _socket_metric(attribute, kind, text, read)


def _open_connections(snapshot: Snapshot) -> Iterator[Value]:
    for listener in snapshot.listeners:
        yield Value({"listener": listener, "networkProcessor": "0"}, snapshot.connections[listener])


def _socket_metric(
    attribute: str, kind: Kind, text: str, read: Callable[[Snapshot], Iterator[Value]]
) -> Metric:
    return Metric(
        mbean="kafka.server:type=socket-server-metrics",
        attribute=attribute,
        kind=kind,
        labels=("listener", "networkProcessor"),
        help=text,
        read=read,
        given_name=f"kafka_server_socket_server_metrics_{attribute.replace('-', '_')}",
    )


def _software(snapshot: Snapshot) -> Iterator[Value]:
    counts = Counter((peer.listener, *peer.software) for peer in snapshot.peers)
    for (listener, name, version), count in counts.items():
        labels = {
            "clientSoftwareName": name,
            "clientSoftwareVersion": version,
            "listener": listener,
            "networkProcessor": "0",
        }
        yield Value(labels, count)


def _waiting(snapshot: Snapshot) -> Iterator[Value]:
    yield Value({"delayedOperation": "Fetch"}, snapshot.fetches.delayed)
    yield Value({"delayedOperation": "Produce"}, snapshot.produces.delayed)


def _watched(snapshot: Snapshot) -> Iterator[Value]:
    yield Value({"delayedOperation": "Fetch"}, snapshot.fetches.watched)
    yield Value({"delayedOperation": "Produce"}, snapshot.produces.watched)


TRAFFIC: tuple[Metric, ...] = (
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
    _topics("TotalFetchRequests", "total_fetch_requests", "Requested reads, one per partition."),
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
    Metric(
        mbean="kafka.network:type=RequestMetrics,name=RequestsPerSec",
        kind=Kind.COUNTER,
        labels=("request", "version"),
        help="Requests answered. FetchConsumer are those of Fetch: no other broker fetches here.",
        read=_requests,
    ),
    Metric(
        mbean="kafka.network:type=RequestMetrics,name=TotalTimeMs",
        kind=Kind.SUMMARY,
        labels=("request",),
        help="Time from a request's arrival to its answer, in ms; quantiles of the last 1028.",
        read=_total_times,
    ),
    _socket_metric("connection-count", Kind.GAUGE, "Open connections.", _open_connections),
    _listener("connection-creation-total", "created", "Connections accepted."),
    _listener("connection-close-total", "closed", "Connections closed."),
    _listener(
        "expired-connections-killed-count",
        "expired",
        "Connections closed for being idle for connections.max.idle.ms.",
        Kind.GAUGE,
    ),
    Metric(
        mbean="kafka.server:type=socket-server-metrics",
        attribute="connections",
        kind=Kind.GAUGE,
        labels=("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
        help="Open connections by what the client says it is (KIP-511).",
        read=_software,
        given_name="kafka_server_socket_server_metrics_connections_software",
    ),
    _one(
        "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        Kind.GAUGE,
        "Connections closed for being idle, of all listeners.",
        lambda snapshot: sum(each.expired for each in snapshot.listeners.values()),
    ),
    _one(
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        Kind.GAUGE,
        "Cached fetch sessions (KIP-227).",
        lambda snapshot: snapshot.fetch_sessions,
    ),
    _one(
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
        Kind.GAUGE,
        "Partitions of all fetch sessions.",
        lambda snapshot: snapshot.fetch_session_partitions,
    ),
    _one(
        "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
        Kind.COUNTER,
        "Fetch sessions evicted for others.",
        lambda snapshot: snapshot.fetch_session_evictions,
    ),
    Metric(
        mbean="kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
        kind=Kind.GAUGE,
        labels=("delayedOperation",),
        help="Delayed requests: fetches that wait for bytes. A produce never waits (one replica).",
        read=_waiting,
    ),
    Metric(
        mbean="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
        kind=Kind.GAUGE,
        labels=("delayedOperation",),
        help="Partitions that waiting requests watch, one for each request.",
        read=_watched,
    ),
    _one(
        "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec",
        Kind.COUNTER,
        "Delayed fetches answered at their timeout.",
        lambda snapshot: snapshot.fetches.expired,
        fetcherType="consumer",
    ),
    Metric(
        given_name="cordwood_event_loop_long_turns_total",
        kind=Kind.COUNTER,
        help="Iterations of the event loop longer than 50 ms; all clients waited.",
        read=lambda snapshot: [Value({}, snapshot.long_turns)],
    ),
    Metric(
        given_name="cordwood_event_loop_longest_turn_seconds",
        kind=Kind.GAUGE,
        help="The longest iteration of the event loop since the last scrape.",
        read=lambda snapshot: [Value({}, snapshot.longest_turn_s)],
    ),
    Metric(
        given_name="cordwood_requests_in_slices",
        kind=Kind.GAUGE,
        help="Long requests that are being run in slices.",
        read=lambda snapshot: [Value({}, snapshot.requests_in_slices)],
    ),
)
