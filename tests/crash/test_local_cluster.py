"""A cluster of processes: nodes that are killed, suspended, cut off, and one clock for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.model.errors import ConfigError
from cordwood.testing.cluster import CONTROLLER_ID, Cluster, Cut, NodeError, NodeView
from support.kafka_programs import kafka_home, kafka_tool
from support.side_by_side import own_tools

WAIT_S = 90.0
TOPIC = "orders"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """A cluster for all tests here that leave all of its nodes running and in sync."""
    with Cluster() as running:
        yield running


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.wait_until_in_sync()


def client(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}


def create(cluster: Cluster, topic: str, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient(client(cluster))
    new = NewTopic(topic, 1, 3, config=dict(config or {}))
    admin.create_topics([new])[topic].result()
    cluster.wait_until_in_sync(topic)


def produce(cluster: Cluster, topic: str, *values: str, timestamp_ms: int = 0) -> None:
    producer = Producer({**client(cluster), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, timestamp=timestamp_ms)
    assert producer.flush(WAIT_S) == 0


def offsets(cluster: Cluster, topic: str) -> tuple[int, int]:
    """The first and the next offset of the topic's partition."""
    consumer = Consumer({**client(cluster), "group.id": "a test"})
    try:
        found: tuple[int, int] = consumer.get_watermark_offsets(
            TopicPartition(topic, 0), timeout=60
        )
        return found
    finally:
        consumer.close()


def metric(url: str, name: str) -> float:
    """A metric of a node without labels."""
    from urllib.request import urlopen  # noqa: PLC0415

    text = urlopen(f"{url}/metrics", timeout=30).read().decode()  # a loopback address
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


@pytest.mark.parametrize("how", list(Cut))
def test_a_broker_that_is_cut_off_is_fenced_and_in_sync_again_after_it_is_reconnected(
    cluster: Cluster, how: Cut
) -> None:
    topic = f"cut-{how.value}"
    create(cluster, topic)
    produce(cluster, topic, "before")
    leader = cluster.leader(topic)
    url = cluster.controller.http_url
    assert url is not None
    fenced = "kafka_controller_kafkacontroller_fencedbrokercount"
    assert metric(url, fenced) == 0

    cluster.cut_off(leader, how)
    assert cluster.brokers[leader].is_cut_off
    assert cluster.brokers[leader].state == "running"
    other = cluster.leader(topic)
    assert other != leader
    assert metric(url, fenced) == 1
    produce(cluster, topic, "meanwhile")
    with pytest.raises(NodeError, match="in vain"):
        cluster.wait_until_in_sync(topic, timeout_s=0.5)

    cluster.reconnect(leader)
    cluster.wait_until_in_sync(topic)
    assert metric(url, fenced) == 0
    assert offsets(cluster, topic) == (0, 2)


def test_a_paused_broker_is_fenced_and_continues_at_the_clusters_time(cluster: Cluster) -> None:
    create(cluster, "paused", {"retention.ms": str(DAY_MS)})
    produce(cluster, "paused", "old", timestamp_ms=cluster.now_ms())
    leader = cluster.leader("paused")
    cluster.pause(leader)
    assert cluster.brokers[leader].state == "paused"
    assert cluster.leader("paused") != leader
    # With it the new leader knows that the first record is committed.
    produce(cluster, "paused", "old, too", timestamp_ms=cluster.now_ms())
    cluster.advance(days=2)
    assert offsets(cluster, "paused") == (2, 2)
    cluster.resume(leader)
    cluster.wait_until_in_sync("paused")
    assert clock_of(cluster, leader) == clock_of(cluster, cluster.leader("paused"))
    cluster.advance(0)
    assert segments(cluster, leader, "paused") == ["00000000000000000002.log"]


def segments(cluster: Cluster, broker: int, topic: str) -> list[str]:
    """The names of a replica's segments."""
    directory = cluster.brokers[broker].log_dir / f"{topic}-0"
    return sorted(path.name for path in directory.glob("*.log"))


def test_records_expire_on_all_replicas_when_the_clock_is_advanced(cluster: Cluster) -> None:
    create(cluster, "expiring", {"retention.ms": str(DAY_MS)})
    produce(cluster, "expiring", "a", "b", timestamp_ms=cluster.now_ms())
    before_ms = cluster.now_ms()
    cluster.advance(DAY_MS // 2)
    assert offsets(cluster, "expiring") == (0, 2)
    cluster.advance(hours=13)
    assert cluster.now_ms() >= before_ms + 25 * 3_600_000
    assert offsets(cluster, "expiring") == (2, 2)
    for broker in cluster.brokers:
        assert segments(cluster, broker, "expiring") == ["00000000000000000002.log"]


def test_a_broker_that_was_stopped_has_the_clusters_time_when_it_starts(cluster: Cluster) -> None:
    cluster.stop(2)
    assert cluster.brokers[2].state == "stopped"
    assert cluster.brokers[2].pid is None
    cluster.advance(hours=1)
    cluster.start(2)
    cluster.wait_until_in_sync()
    assert clock_of(cluster, 2) == clock_of(cluster, 1)


def clock_of(cluster: Cluster, broker: int) -> int:
    """The ms by which a broker's clock is ahead of the machine's."""
    import json  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415

    url = cluster.brokers[broker].http_url
    ahead: int = json.load(urlopen(f"{url}/clock", timeout=30))["ahead_ms"]
    return ahead


def test_without_its_controller_a_cluster_serves_and_finds_it_again(cluster: Cluster) -> None:
    create(cluster, "alone")
    # Not idempotent: a broker may have to ask the controller for the producer's id.
    producer = Producer(client(cluster))
    for take, give_back in (
        (cluster.kill, cluster.start),
        (cluster.cut_off, cluster.reconnect),
        (cluster.pause, cluster.resume),
    ):
        take(CONTROLLER_ID)
        producer.produce("alone", "without a controller")
        assert producer.flush(WAIT_S) == 0
        give_back(CONTROLLER_ID)
        cluster.wait_until_in_sync()
        # The controller changes something again, so each broker follows it.
        create(cluster, f"after-{give_back.__name__}")
    assert offsets(cluster, "alone") == (0, 3)


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_brokers_and_controller_describe_the_quorum_alike_to_both_tools(cluster: Cluster) -> None:
    controller = cluster.controller.address
    asked = ["--bootstrap-controller", controller, "describe", "--status"]
    kafka = quorum(kafka_tool("metadata-quorum", *asked).stdout)
    assert kafka["LeaderId"] == str(CONTROLLER_ID)
    assert f'"endpoints": ["CONTROLLER://{controller}"]' in kafka["CurrentVoters"]
    assert all(f'"id": {broker}' in kafka["CurrentObservers"] for broker in (1, 2, 3))
    assert quorum(own_tools("metadata-quorum", asked, b"").out) == kafka
    asked[:2] = ["--bootstrap-server", cluster.bootstrap_servers]
    assert quorum(own_tools("metadata-quorum", asked, b"").out) == kafka
    listed = own_tools("cluster", ["list-endpoints", "--bootstrap-controller", controller], b"")
    assert listed.out == kafka_tool("cluster", "list-endpoints", "-C", controller).stdout


def quorum(text: str) -> dict[str, str]:
    """Output of `describe --status`, without values that change all the time."""
    values = dict(line.split(":", 1) for line in text.splitlines())
    return {
        name: value.strip()
        for name, value in values.items()
        if name not in {"HighWatermark", "MaxFollowerLag", "MaxFollowerLagTimeMs"}
    }


def answer(node: NodeView, path: str) -> int:
    """The status of a node's answer."""
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415

    try:
        with urlopen(f"{node.http_url}{path}", timeout=30) as answered:  # a loopback address
            return int(answered.status)
    except HTTPError as error:
        error.close()
        return error.code


def test_a_broker_that_is_back_is_ready_when_it_is_in_sync_and_the_others_all_the_time(
    cluster: Cluster,
) -> None:
    create(cluster, "ready")
    first, back = cluster.brokers[1], cluster.brokers[2]
    cluster.kill(2)
    produce(cluster, "ready", *["x" * 10_000] * 1_000)
    assert answer(first, "/ready") == 200
    cluster.start(2)
    assert answer(back, "/health") == 200
    while (status := answer(back, "/ready")) != 200:
        assert status == 503
    admin = AdminClient(client(cluster))
    (described,) = admin.describe_topics(TopicCollection(["ready"])).values()
    assert 2 in {node.id for node in described.result().partitions[0].isr}


def test_a_node_that_runs_is_not_started_again(cluster: Cluster) -> None:
    with pytest.raises(NodeError, match="broker 1 runs already"):
        cluster.start(1)


@pytest.mark.cordwood_cluster(brokers=1, properties={"num.partitions": 3})
def test_the_mark_has_arguments_of_the_fixture_for_one_test(cordwood_cluster: Cluster) -> None:
    assert list(cordwood_cluster.brokers) == [1]
    produce(cordwood_cluster, TOPIC, "made by itself")
    assert cordwood_cluster.leader(TOPIC, 2) == 1


def test_a_directory_that_is_given_is_kept_and_used_again(tmp_path: Path) -> None:
    with Cluster(1, directory=tmp_path) as cluster:
        admin = AdminClient(client(cluster))
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        produce(cluster, TOPIC, "kept")
        first = cluster.cluster_id
        pids = [cluster.controller.pid, cluster.brokers[1].pid]
    assert not any(Path("/proc", str(pid)).exists() for pid in pids)
    with Cluster(1, directory=tmp_path) as cluster:
        assert cluster.cluster_id == first
        assert offsets(cluster, TOPIC) == (0, 1)


def test_a_broker_that_cannot_start_is_an_error_with_the_end_of_its_log() -> None:
    with (
        pytest.raises(NodeError, match=r"(?s)has ended by itself; its exit code is 2.*wrong.value"),
        Cluster(1, properties={"log.retention.ms": "wrong.value"}),
    ):
        pass


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_a_broker_of_kafkas_is_cut_off_like_one_of_cordwoods() -> None:
    with Cluster(2, kafka_brokers=1, kafka_home=kafka_home()) as cluster:
        kafka = cluster.brokers[2]
        assert kafka.is_kafka
        admin = AdminClient(client(cluster))
        new = NewTopic(TOPIC, 1, replica_assignment=[[2, 1]])
        admin.create_topics([new])[TOPIC].result()
        cluster.wait_until_in_sync(TOPIC)
        produce(cluster, TOPIC, "before")
        assert cluster.leader(TOPIC) == 2
        cluster.cut_off(2)
        assert cluster.leader(TOPIC) == 1
        produce(cluster, TOPIC, "meanwhile")
        cluster.reconnect(2)
        cluster.wait_until_in_sync(TOPIC)
        with pytest.raises(ConfigError, match="clock of a broker of Kafka's"):
            cluster.advance(days=1)
        cluster.stop(1)
        assert cluster.leader(TOPIC) == 2
        assert offsets(cluster, TOPIC) == (0, 2)
