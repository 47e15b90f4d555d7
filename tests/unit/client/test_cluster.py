from __future__ import annotations

import socket

import pytest

from cordwood.client.cluster import Cluster
from cordwood.client.core import ClientSettings
from cordwood.client.errors import (
    BadAddressError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.model.uuids import ZERO_UUID
from cordwood.testing.broker import RunningBroker
from support.ports import free_port


def ignore(_: str) -> None:
    """Takes warnings that a test is not about."""


def test_addresses_are_resolved() -> None:
    settings = ClientSettings(bootstrap_servers="localhost:1,127.0.0.1:2")
    with Cluster(settings, warn=pytest.fail) as cluster:
        assert [address.port for address in cluster._core._addresses] == [1, 2]
    with pytest.raises(BadAddressError, match="No resolvable bootstrap urls"):
        Cluster(ClientSettings(bootstrap_servers="no.such.invalid:1"), warn=ignore)


def test_an_address_where_nobody_listens_is_a_warning_of_kafkas_client() -> None:
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
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    cluster.call("create_topics", {"topics": [topic], "timeout_ms": 30_000})
    asked = {"topics": [{"name": "t"}]}
    newest, older = cluster.call("metadata", asked), cluster.call("metadata", asked, version_max=9)
    # Version 10 adds the topic's id.
    assert (newest.topics[0].topic_id != ZERO_UUID, older.topics[0].topic_id) == (True, ZERO_UUID)


def test_an_api_that_no_broker_serves_is_not_asked_for(cluster: Cluster) -> None:
    with pytest.raises(NotSupportedError, match="The node does not support VOTE"):
        cluster.call("vote", {})


def test_an_unknown_node_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RefusedError, match="Node 77 is not known"):
        cluster.call("metadata", {"topics": None}, node_id=77)


def test_a_closed_connection_is_opened_again(cluster: Cluster) -> None:
    cluster.call("metadata", {"topics": None})
    for connection in cluster._connections.values():
        connection._socket.shutdown(socket.SHUT_RDWR)
    assert cluster.call("metadata", {"topics": None}).brokers
