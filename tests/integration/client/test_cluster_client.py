"""Selection of the broker for a call, and repetitions: over a table, and over sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.errors import (
    BadAddressError,
    DisconnectedError,
    NobodyListensError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.client.session import ClientSession, NodeIdentity
from cordwood.client.settings import ClientSettings
from cordwood.client.wire import RequestFrame
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    MetadataRequest,
    ProduceRequest,
    VoteRequest,
)
from cordwood.testing.broker import RunningBroker
from cordwood.testing.manual_clock import ManualClock
from support.ports import free_port

METADATA, API_VERSIONS = 3, 18
SERVERS = "localhost:9092,10.0.0.1:9093"


@dataclass
class Table:
    """A `Network`: which ports listen or refuse, and what connections answer."""

    clock: ManualClock
    listening: set[int] = field(default_factory=lambda: {9092})
    refusing: set[int] = field(default_factory=set)
    refusing_until_s: float = float("inf")
    versions: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {METADATA: (0, 9), API_VERSIONS: (0, 4)}
    )
    handshake: list[Exception] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    opened: list[Line] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    identities: list[NodeIdentity | None] = field(default_factory=list)

    def resolve(self, host: str, _port: int) -> str | None:
        return {"localhost": "127.0.0.1", "unknown": None}.get(host, host)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(int(seconds * 1000))

    def connect(
        self, _host: str, ip: str, port: int, *, timeout_s: float, identity: NodeIdentity | None
    ) -> Line:
        self.timeouts.append(timeout_s)
        self.identities.append(identity)
        if port in self.refusing and self.clock.monotonic_s() < self.refusing_until_s:
            raise ConnectionRefusedError
        if port not in self.listening | self.refusing:
            raise TimeoutError
        if self.handshake:
            raise self.handshake.pop(0)
        found = Line(self, len(self.opened) + 1, ip, port)
        self.opened.append(found)
        return found


class Line:
    """A `Connection` of a table, by number."""

    def __init__(self, table: Table, number: int, ip: str, port: int) -> None:
        self._table = table
        self.number = number
        self.address = (ip, port)
        self.session = ClientSession("c")
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in table.versions.items()
        ]
        self.session.on_answer(ApiVersionsResponse(api_keys=keys))

    def exchange(self, request: RequestFrame, *, timeout_s: float) -> Any:
        self._table.timeouts.append(timeout_s)
        if self._table.failures:
            raise self._table.failures.pop(0)
        return ("answer", self.number, request.version)

    def close(self) -> None:
        self._table.closed.append(self.number)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Table:
    return Table(clock)


@pytest.fixture
def warnings() -> list[str]:
    return []


Made = Callable[..., ClusterClient]


@pytest.fixture
def made(table: Table, clock: ManualClock, warnings: list[str]) -> Made:
    def make(bootstrap_servers: str = SERVERS, **settings: Any) -> ClusterClient:
        given = ClientSettings(
            bootstrap_servers=bootstrap_servers, **{"api_timeout_ms": 5_000, **settings}
        )
        return ClusterClient(given, warn=warnings.append, clock=clock, network=table)

    return make


@pytest.fixture
def client(made: Made) -> ClusterClient:
    return made()


def ignore(_: str) -> None:
    """Takes warnings that a test is not about."""


def test_addresses_are_hosts_with_ports(made: Made, warnings: list[str]) -> None:
    addresses = made("127.0.0.1:9092, PLAINTEXT://localhost:1,")._addresses
    assert addresses == [("127.0.0.1", "127.0.0.1", 9092), ("localhost", "127.0.0.1", 1)]
    assert not warnings


def test_an_address_without_a_port_is_refused_in_kafkas_words(made: Made) -> None:
    with pytest.raises(BadAddressError, match=r"^Invalid url in bootstrap\.servers: localhost$"):
        made("localhost")


def test_an_unresolved_address_is_a_warning_and_one_must_be_resolved(
    made: Made, warnings: list[str]
) -> None:
    assert made("unknown:1,127.0.0.1:2")._addresses == [("127.0.0.1", "127.0.0.1", 2)]
    assert warnings == [
        "Couldn't resolve server unknown:1 from bootstrap.servers as DNS resolution failed for "
        "unknown"
    ]
    with pytest.raises(BadAddressError, match="No resolvable bootstrap urls"):
        made("unknown:1")


def test_a_call_uses_the_highest_version_in_common(client: ClusterClient, table: Table) -> None:
    assert client.call(MetadataRequest()) == ("answer", 1, 9)
    assert client.call(MetadataRequest(), version_max=7) == ("answer", 1, 7)
    table.versions[METADATA] = (0, 99)
    assert client.versions(-1)[METADATA] == (0, 9)
    assert (client.supports(MetadataRequest, 9), client.supports(MetadataRequest, 10)) == (
        True,
        False,
    )
    with pytest.raises(NotSupportedError, match="The node does not support VOTE"):
        client.call(VoteRequest())


def test_a_connection_is_opened_once(client: ClusterClient, table: Table) -> None:
    for _ in range(3):
        client.call(MetadataRequest())
    assert [each.address for each in table.opened] == [("127.0.0.1", 9092)]


def test_the_second_address_is_tried_when_the_first_does_not_listen(
    client: ClusterClient, table: Table, warnings: list[str]
) -> None:
    table.listening = {9093}
    assert client.any_node() == -2
    assert warnings == [
        "[AdminClient clientId=adminclient-1] Connection to node -1 (localhost/127.0.0.1:9092) "
        "could not be established. Node may not be available."
    ]


def test_attempts_to_connect_back_off_until_the_deadline(
    client: ClusterClient, table: Table
) -> None:
    table.listening = set()
    with pytest.raises(TimedOutError, match=r"Timed out waiting for a node assignment\. Call: x"):
        client.call(MetadataRequest(), name="x")
    assert table.pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 0.45])


@pytest.fixture
def impatient(made: Made) -> ClusterClient:
    return made(api_timeout_ms=60_000, refused_ms=1_500)


def test_addresses_that_all_refuse_the_first_connection_are_said_to_at_once(
    impatient: ClusterClient, table: Table, clock: ManualClock
) -> None:
    table.refusing = {9092, 9093}
    began_s = clock.monotonic_s()
    with pytest.raises(NobodyListensError, match=r"no broker listens at .*:9092, .*:9093"):
        impatient.call(MetadataRequest())
    assert 1.5 <= clock.monotonic_s() - began_s <= 2.0


def test_a_broker_that_starts_within_that_time_is_reached(
    impatient: ClusterClient, table: Table, clock: ManualClock
) -> None:
    table.refusing, table.refusing_until_s = {9092, 9093}, clock.monotonic_s() + 1.0
    assert impatient.any_node() == -1
    assert len(table.pauses) > 1


@pytest.mark.parametrize("reached", [False, True])
def test_a_cluster_that_was_reached_or_may_be_is_waited_for_as_long_as_kafka_does(
    impatient: ClusterClient, table: Table, clock: ManualClock, *, reached: bool
) -> None:
    if reached:
        impatient.call(MetadataRequest())
        table.failures = [DisconnectedError("gone")]
        table.refusing = {9092, 9093}
    else:
        table.listening, table.refusing = set(), {9092}  # of 9093 nothing comes back
    with pytest.raises(TimedOutError, match="Timed out waiting for a node assignment"):
        impatient.call(MetadataRequest())
    assert clock.monotonic_s() >= 60.0


def test_a_lost_connection_is_opened_again(client: ClusterClient, table: Table) -> None:
    table.failures = [DisconnectedError("gone")]
    assert client.call(MetadataRequest()) == ("answer", 2, 9)
    assert (table.closed, table.pauses) == ([1], [0.1])


def test_a_call_that_fails_until_its_deadline_raises_the_last_error(
    client: ClusterClient, table: Table
) -> None:
    table.failures = [TimedOutError(str(number)) for number in range(1_000)]
    with pytest.raises(TimedOutError, match=r"^7$"):
        client.call(MetadataRequest())


def test_no_answer_is_waited_for_after_the_deadline(
    client: ClusterClient, table: Table, clock: ManualClock
) -> None:
    end = client.deadline()
    clock.advance(4_000)
    client.call(MetadataRequest(), deadline=end)
    assert table.timeouts == [1.0, 1.0]
    table.timeouts.clear()
    client.call(MetadataRequest(), deadline=end, timeout_ms=7_000)
    assert table.timeouts == [7.0]


def test_a_session_that_is_not_answered_is_tried_again(client: ClusterClient, table: Table) -> None:
    table.handshake = [TimedOutError("silence"), DisconnectedError("gone")]
    table.listening = {9092, 9093}
    assert client.any_node() == -1
    assert table.pauses == [0.05]


def test_a_refused_session_is_an_error_of_the_call(client: ClusterClient, table: Table) -> None:
    table.handshake = [RefusedError(35)]
    with pytest.raises(RefusedError, match="The version of API is not supported"):
        client.call(MetadataRequest())


def test_brokers_are_those_of_the_last_answer(client: ClusterClient) -> None:
    with pytest.raises(RefusedError, match="Node 77 is not known"):
        client.call(MetadataRequest(), node_id=77)
    client.learn([BrokerEndpoint(77, "127.0.0.1", 9092)], None)
    assert client.call(MetadataRequest(), node_id=77) == ("answer", 1, 9)


def test_a_broker_is_told_which_one_is_meant(client: ClusterClient, table: Table) -> None:
    client.call(MetadataRequest())
    client.learn([BrokerEndpoint(77, "127.0.0.1", 9092)], "c")
    client.call(MetadataRequest(), node_id=77)
    assert table.identities == [None, ("c", 77)]


def test_a_broker_that_is_another_one_sends_the_client_to_its_bootstrap_addresses(
    client: ClusterClient, table: Table
) -> None:
    client.call(MetadataRequest())
    client.learn([BrokerEndpoint(each, "127.0.0.1", 9092) for each in (77, 78)], "c")
    table.handshake = [RefusedError(129)]
    with pytest.raises(DisconnectedError):
        client.call(MetadataRequest(), node_id=77, is_single=True)
    assert table.closed == [1]
    assert client.call(MetadataRequest()) == ("answer", 2, 9)
    assert table.identities == [None, ("c", 77), None]
    with pytest.raises(RefusedError, match="Node 78 is not known"):
        client.call(MetadataRequest(), node_id=78)


def test_any_broker_is_found_again_after_one_that_is_another(
    client: ClusterClient, table: Table
) -> None:
    client.learn([BrokerEndpoint(each, "127.0.0.1", 9099) for each in (77, 78)], "c")
    table.refusing, table.refusing_until_s = {9092}, table.clock.monotonic_s() + 0.01
    table.listening, table.handshake = {9099}, [RefusedError(129)]
    assert client.any_node() == -1
    assert table.identities[-2:] == [("c", 77), None], "not the other one that was known"


# ---- over sockets


def test_an_address_where_nobody_listens_is_a_warning_of_kafkas_client() -> None:
    port = free_port()
    warnings: list[str] = []
    settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{port}", api_timeout_ms=100)
    with (
        ClusterClient(settings, warn=warnings.append) as cluster,
        pytest.raises(TimedOutError) as caught,
    ):
        cluster.call(MetadataRequest(topics=None), name="listTopics")
    assert str(caught.value) == "Timed out waiting for a node assignment. Call: listTopics"
    assert warnings[0] == (
        "[AdminClient clientId=adminclient-1] Connection to node -1 "
        f"(/127.0.0.1:{port}) could not be established. Node may not be available."
    )


def test_a_listener_that_says_nothing_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = ClientSettings(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}",
            api_timeout_ms=100,
            request_timeout_ms=50,
        )
        with (
            ClusterClient(settings, warn=ignore) as cluster,
            pytest.raises(TimedOutError, match="Timed out waiting for a node assignment"),
        ):
            cluster.any_node()


def test_the_second_of_two_addresses_serves_when_the_first_is_down(broker: RunningBroker) -> None:
    settings = ClientSettings(
        bootstrap_servers=f"127.0.0.1:{free_port()},{broker.bootstrap_servers}"
    )
    with ClusterClient(settings, warn=ignore) as cluster:
        assert cluster.any_node() == -2


def test_versions_are_negotiated(cluster: ClusterClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    cluster.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    newest, older = cluster.call(asked), cluster.call(asked, version_max=9)
    # Version 10 adds the topic's id.
    assert (newest.topics[0].topic_id != ZERO_UUID, older.topics[0].topic_id) == (True, ZERO_UUID)


def test_a_closed_connection_is_opened_again(cluster: ClusterClient) -> None:
    cluster.call(MetadataRequest(topics=None))
    for connection in cluster._connections.values():
        connection._stream.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
    assert cluster.call(MetadataRequest(topics=None)).brokers


def test_a_request_without_an_answer_returns_at_once(cluster: ClusterClient) -> None:
    fields = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[])
    assert cluster.call(fields, is_answered=False) is None
    assert cluster.call(MetadataRequest(topics=None)).brokers


def test_another_broker_than_the_one_that_is_meant_says_so(cluster: ClusterClient) -> None:
    facts = Admin(cluster).describe_cluster()
    (node,) = facts.nodes
    assert cluster.call(MetadataRequest(), node_id=node.id, is_single=True).brokers
    cluster.learn([node._replace(id=99)], facts.cluster_id)
    with pytest.raises(DisconnectedError):
        cluster.call(MetadataRequest(), node_id=99, is_single=True)
    assert Admin(cluster).describe_cluster() == facts
    assert cluster.call(MetadataRequest(), node_id=node.id, is_single=True).brokers
