from __future__ import annotations

import socket

import pytest

from cordwood.surfaces.client.cluster import (
    Address,
    ClientSettings,
    Cluster,
    api_name,
    parse_addresses,
)
from cordwood.surfaces.client.errors import (
    BadAddressError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.testing.broker import RunningBroker
from support.ports import free_port


def ignore(_: str) -> None:
    """Takes warnings that a test is not about."""


def test_addresses_are_hosts_with_ports() -> None:
    assert parse_addresses("127.0.0.1:9092, PLAINTEXT://127.0.0.2:1,", warn=ignore) == [
        Address("127.0.0.1", "127.0.0.1", 9092),
        Address("127.0.0.2", "127.0.0.2", 1),
    ]


def test_an_address_without_a_port_is_refused_in_kafkas_words() -> None:
    with pytest.raises(BadAddressError, match=r"^Invalid url in bootstrap\.servers: localhost$"):
        parse_addresses("localhost", warn=ignore)


def test_what_cannot_be_resolved_is_told_and_at_least_one_must_be() -> None:
    warnings: list[str] = []
    found = parse_addresses("no.such.invalid:1,127.0.0.1:2", warn=warnings.append)
    assert found == [Address("127.0.0.1", "127.0.0.1", 2)]
    assert warnings == [
        "Couldn't resolve server no.such.invalid:1 from bootstrap.servers as DNS resolution "
        "failed for no.such.invalid"
    ]
    with pytest.raises(BadAddressError, match="No resolvable bootstrap urls"):
        parse_addresses("no.such.invalid:1", warn=ignore)


def test_a_broker_that_nobody_answers_for_is_told_as_kafkas_client_tells_it() -> None:
    port = free_port()
    warnings: list[str] = []
    settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{port}", api_timeout_ms=100)
    with (
        Cluster(settings, warn=warnings.append) as cluster,
        pytest.raises(TimedOutError) as caught,
    ):
        cluster.call("metadata", {"topics": None}, name="listTopics")
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
            Cluster(settings, warn=ignore) as cluster,
            pytest.raises(TimedOutError, match="Timed out waiting for a node assignment"),
        ):
            cluster.any_node()


def test_the_second_of_two_addresses_serves_when_the_first_is_down(broker: RunningBroker) -> None:
    settings = ClientSettings(
        bootstrap_servers=f"127.0.0.1:{free_port()},{broker.bootstrap_servers}"
    )
    with Cluster(settings, warn=ignore) as cluster:
        assert cluster.any_node() == -2


def test_versions_are_negotiated(cluster: Cluster) -> None:
    answer = cluster.call("metadata", {"topics": None})
    assert answer.__version__ == min(13, cluster.versions(-1)[3][1])
    assert cluster.call("metadata", {"topics": None}, version_max=9).__version__ == 9


def test_an_api_that_no_broker_serves_is_not_asked_for(cluster: Cluster) -> None:
    with pytest.raises(NotSupportedError, match="The node does not support VOTE"):
        cluster.call("vote", {})


def test_a_node_that_nobody_told_of_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RefusedError, match="Node 77 is not known"):
        cluster.call("metadata", {"topics": None}, node_id=77)


def test_a_connection_that_was_closed_is_opened_anew(cluster: Cluster) -> None:
    cluster.call("metadata", {"topics": None})
    for connection in cluster._connections.values():
        connection._socket.shutdown(socket.SHUT_RDWR)
    assert cluster.call("metadata", {"topics": None}).brokers


def test_apis_are_named_as_kafka_writes_them() -> None:
    assert (api_name(32), api_name(9999)) == ("DescribeConfigs", None)
