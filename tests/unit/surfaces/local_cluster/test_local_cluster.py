"""Composition of a local cluster, without a process."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from cordwood.client.admin import PartitionFacts
from cordwood.model.errors import ConfigError, DirectoryInUseError
from cordwood.surfaces.local_cluster.local_cluster import (
    CONTROLLER_ID,
    ClusterOptions,
    LocalCluster,
    are_in_sync,
    default_properties,
)
from cordwood.surfaces.local_cluster.local_node import NodeError, Role, State
from cordwood.surfaces.local_cluster.ports import PortTakenError


class Proxies:
    """A wiring by which others reach a node at the port after its own."""

    def advertised_port(self, node_id: int, port: int) -> int:
        del node_id
        return port + 1

    def started(self, node_id: int, pid: int) -> None:
        raise AssertionError("nothing is started")

    def is_cut_off(self, node_id: int) -> bool:
        return node_id == 2


def cluster(directory: Path, *, brokers: int = 3) -> LocalCluster:
    return LocalCluster(directory, ClusterOptions(brokers=brokers), wiring=Proxies())


def test_each_node_has_a_directory_that_is_formatted_for_the_cluster(tmp_path: Path) -> None:
    with closing(cluster(tmp_path, brokers=2)) as made:
        names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
        assert names == ["broker-1", "broker-2", f"controller-{CONTROLLER_ID}"]
        assert [each.name for each in made.nodes] == ["controller 100", "broker 1", "broker 2"]
        for node in made.nodes:
            assert made.cluster_id in (node.log_dir / "meta.properties").read_text(encoding="utf-8")
            assert node.state is State.STOPPED
            assert node.pid is None
        assert made.controller.place.role is Role.CONTROLLER


def test_others_reach_a_node_at_the_port_of_its_wiring(tmp_path: Path) -> None:
    with closing(cluster(tmp_path, brokers=1)) as made:
        listening = made.brokers[1].place.listening
        assert made.bootstrap_servers == f"127.0.0.1:{listening.port + 1}"


def test_a_cluster_that_is_made_again_has_the_same_id(tmp_path: Path) -> None:
    with closing(cluster(tmp_path)) as made:
        first = made.cluster_id
    with closing(cluster(tmp_path)) as made:
        assert made.cluster_id == first


def test_a_directory_is_for_one_cluster_at_a_time(tmp_path: Path) -> None:
    with closing(cluster(tmp_path)), pytest.raises(DirectoryInUseError):
        cluster(tmp_path)


def test_a_port_that_is_taken_is_an_error_and_frees_the_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError):
            LocalCluster(tmp_path, ClusterOptions(brokers=1, base_port=port))
    cluster(tmp_path).close()


@pytest.mark.parametrize(
    ("brokers", "kafka_brokers", "why"),
    [
        (0, 0, "0 brokers: expected 1 to 50"),
        (51, 0, "51 brokers"),
        (2, 3, "3 brokers of Kafka: expected 0 to 2"),
    ],
)
def test_numbers_out_of_bounds_are_refused(brokers: int, kafka_brokers: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ClusterOptions(brokers=brokers, kafka_brokers=kafka_brokers)


def test_a_node_that_does_not_run_cannot_be_killed_paused_or_stopped(tmp_path: Path) -> None:
    with closing(cluster(tmp_path)) as made:
        for call in (made.brokers[1].kill, made.brokers[1].pause, made.brokers[1].ask_to_stop):
            with pytest.raises(NodeError, match="broker 1 does not run: it was stopped"):
                call()
        with pytest.raises(NodeError, match="there is no node 7, but controller 100, broker 1"):
            made.node(7)


def test_internal_topics_have_no_more_replicas_than_there_are_brokers() -> None:
    assert default_properties(1)["transaction.state.log.min.isr"] == "1"
    assert default_properties(5)["offsets.topic.replication.factor"] == "3"


def test_topics_are_in_sync_if_every_replica_is_on_a_broker_that_can_be_reached() -> None:
    known = {"a": (PartitionFacts(0, 1, 0, (1, 2), (1, 2)),)}
    assert are_in_sync(known, [], [1, 2, 3])
    assert are_in_sync(known, ["a"], [1, 2])
    assert not are_in_sync(known, ["b"], [1, 2])
    assert not are_in_sync(known, [], [1])
    assert not are_in_sync({"a": (PartitionFacts(0, 1, 0, (1, 2), (1,)),)}, [], [1, 2])
    assert not are_in_sync({"a": (PartitionFacts(0, -1, 0, (1, 2), (1, 2)),)}, [], [1, 2])
