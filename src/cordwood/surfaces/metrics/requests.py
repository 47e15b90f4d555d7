"""Metrics of a node's requests, connections and event loop.

Source: kafka.network.RequestMetrics, SocketServer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from cordwood.serving.fetch_kinds import FROM_CONSUMER, FROM_FOLLOWER
from cordwood.surfaces.metrics.metric import Metric, MetricType, Times, Value, single
from cordwood.surfaces.metrics.snapshot import NodeSnapshot, Requests

_FETCH = "Fetch"
_KINDS_OF_FETCH = (FROM_CONSUMER, FROM_FOLLOWER)


def _by_request(snapshot: NodeSnapshot) -> Iterator[tuple[str, Requests]]:
    """Statistics by request; fetches, as in Kafka, by consumers and followers, and all together."""
    yield from snapshot.requests.items()
    kinds = [snapshot.requests[kind] for kind in _KINDS_OF_FETCH if kind in snapshot.requests]
    if kinds:
        yield _FETCH, _together(kinds)


def _together(kinds: Sequence[Requests]) -> Requests:
    versions: Counter[int] = Counter()
    for each in kinds:
        versions.update(each.versions)
    return Requests(
        answered=sum(each.answered for each in kinds),
        seconds=sum(each.seconds for each in kinds),
        recent=[seconds for each in kinds for seconds in each.recent],
        versions=versions,
    )


def _requests(snapshot: NodeSnapshot) -> Iterator[Value]:
    for api, requests in _by_request(snapshot):
        for version, count in requests.versions.items():
            yield Value({"request": api, "version": str(version)}, count)


def _total_times(snapshot: NodeSnapshot) -> Iterator[Times]:
    for api, requests in _by_request(snapshot):
        recent = [1000 * seconds for seconds in requests.recent]
        yield Times({"request": api}, requests.answered, 1000 * requests.seconds, recent)


# ---- connections


def _listener(
    attribute: str, field: str, text: str, metric_type: MetricType = MetricType.COUNTER
) -> Metric[NodeSnapshot]:
    def read(snapshot: NodeSnapshot) -> Iterator[Value]:
        for listener, counters in snapshot.listeners.items():
            labels = {"listener": listener, "networkProcessor": "0"}
            yield Value(labels, getattr(counters, field))

    return _socket_metric(attribute, metric_type, text, read)


def _open_connections(snapshot: NodeSnapshot) -> Iterator[Value]:
    for listener in snapshot.listeners:
        yield Value({"listener": listener, "networkProcessor": "0"}, snapshot.connections[listener])


def _socket_metric(
    attribute: str,
    metric_type: MetricType,
    text: str,
    read: Callable[[NodeSnapshot], Iterator[Value]],
) -> Metric[NodeSnapshot]:
    return Metric(
        mbean="kafka.server:type=socket-server-metrics",
        attribute=attribute,
        type=metric_type,
        labels=("listener", "networkProcessor"),
        help=text,
        read=read,
        given_name=f"kafka_server_socket_server_metrics_{attribute.replace('-', '_')}",
    )


def _software(snapshot: NodeSnapshot) -> Iterator[Value]:
    counts = Counter((each.listener, *each.software) for each in snapshot.sessions)
    for (listener, name, version), count in counts.items():
        labels = {
            "clientSoftwareName": name,
            "clientSoftwareVersion": version,
            "listener": listener,
            "networkProcessor": "0",
        }
        yield Value(labels, count)


REQUESTS: tuple[Metric[NodeSnapshot], ...] = (
    Metric(
        mbean="kafka.network:type=RequestMetrics,name=RequestsPerSec",
        type=MetricType.COUNTER,
        labels=("request", "version"),
        help="Requests answered. FetchConsumer and FetchFollower are parts of Fetch.",
        read=_requests,
    ),
    Metric(
        mbean="kafka.network:type=RequestMetrics,name=TotalTimeMs",
        type=MetricType.SUMMARY,
        labels=("request",),
        help="Time from a request's arrival to its answer, in ms; quantiles of the last 1028.",
        read=_total_times,
    ),
    _socket_metric("connection-count", MetricType.GAUGE, "Open connections.", _open_connections),
    _listener("connection-creation-total", "created", "Connections accepted."),
    _listener("connection-close-total", "closed", "Connections closed."),
    _listener(
        "expired-connections-killed-count",
        "expired",
        "Connections closed for being idle for connections.max.idle.ms.",
        MetricType.GAUGE,
    ),
    Metric(
        mbean="kafka.server:type=socket-server-metrics",
        attribute="connections",
        type=MetricType.GAUGE,
        labels=("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
        help="Open connections by what the client says it is (KIP-511).",
        read=_software,
        given_name="kafka_server_socket_server_metrics_connections_software",
    ),
    single(
        "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        "Connections closed for being idle, of all listeners.",
        lambda snapshot: sum(each.expired for each in snapshot.listeners.values()),
    ),
    Metric(
        given_name="cordwood_event_loop_long_turns_total",
        type=MetricType.COUNTER,
        help="Iterations of the event loop longer than 50 ms; all clients waited.",
        read=lambda snapshot: [Value({}, snapshot.long_turns)],
    ),
    Metric(
        given_name="cordwood_event_loop_longest_turn_seconds",
        type=MetricType.GAUGE,
        help="The longest iteration of the event loop since the last scrape.",
        read=lambda snapshot: [Value({}, snapshot.longest_turn_s)],
    ),
    Metric(
        given_name="cordwood_requests_in_slices",
        type=MetricType.GAUGE,
        help="Long requests that are being run in slices.",
        read=lambda snapshot: [Value({}, snapshot.requests_in_slices)],
    ),
)
