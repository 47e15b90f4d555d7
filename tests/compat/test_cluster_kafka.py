"""Brokers of Kafka and of Cordwood in one cluster: Kafka's tools print the same at either.

The controller is Kafka's, or Cordwood's.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.surfaces.cli.main import app
from support.kafka import poll_until
from support.kafka_tools import KafkaTools, ToolResult
from support.mixed_cluster import WAIT_S, MixedCluster
from support.requests import request_of

KAFKA, CORDWOOD = 1, 2
TOPIC, MOVED = "replicated", "moved"
RECORDS = 300
RACKS = {KAFKA: "a", CORDWOOD: "b"}
_PROPERTIES = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    # As the real broker has it here: the tools show what differs from a default.
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "log.segment.delete.delay.ms": "500",
    # No replica leaves the ISR, and no broker is fenced, because the machine is slow.
    "replica.lag.time.max.ms": "600000",
}
_SESSION_MS = 10_000


class Cluster(MixedCluster):
    """A controller, a Kafka broker, and a Cordwood broker; with Kafka's tools and some clients."""

    def __init__(self, root: Path, tools: KafkaTools, *, has_own_controller: bool) -> None:
        super().__init__(
            root,
            has_own_controller=has_own_controller,
            kafka=[KAFKA],
            cordwood=[CORDWOOD],
            properties=_PROPERTIES,
            properties_of={node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()},
            session_timeout_ms=_SESSION_MS,
        )
        self.tools = tools

    def run(self, node_id: int, name: str, *arguments: str) -> ToolResult:
        """Runs one of Kafka's tools at a broker."""
        servers = ("--bootstrap-server", self.brokers[node_id].bootstrap_servers)
        if name == "cluster":
            return self.tools.run(name, *arguments, *servers)
        return self.tools.run(name, *servers, *arguments)

    def has_all_logs(self) -> bool:
        """Whether each broker has a log of both partitions: brokers apply the metadata later."""
        done = self.run(CORDWOOD, "log-dirs", "--describe", "--topic-list", TOPIC)
        return done.out.count('"offsetLag":0') == 4

    def produce(self, node_id: int, count: int = RECORDS) -> None:
        """Returns when all replicas in sync have the records."""
        settings = {"acks": "all", "enable.idempotence": True}
        producer = Producer(self.client(settings, node_id=node_id))
        errors: list[object] = []
        for number in range(count):
            producer.produce(
                TOPIC, b"%d" % number, b"%d" % number, on_delivery=lambda e, _: errors.append(e)
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * count

    def consume(self, node_id: int, group: str, count: int) -> None:
        """Reads so many records in a group, and commits."""
        settings = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(self.client(settings, node_id=node_id))
        consumer.subscribe([TOPIC])
        found = 0

        def has_all() -> bool:
            nonlocal found
            found += sum(each.error() is None for each in consumer.consume(100, 0.5))
            return found >= count

        poll_until(has_all, timeout_s=WAIT_S, what="the records")
        consumer.commit(asynchronous=False)
        consumer.close()


@pytest.fixture(scope="module", params=["controller of Kafka", "controller of Cordwood"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tools: KafkaTools
) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster")
    is_own = request.param == "controller of Cordwood"
    with Cluster(root, tools, has_own_controller=is_own) as cluster:
        replicas = [[KAFKA, CORDWOOD], [CORDWOOD, KAFKA]]
        cluster.create_topic(TOPIC, replicas, {"min.insync.replicas": "2"})
        poll_until(cluster.has_all_logs, timeout_s=WAIT_S, what="the logs of all replicas")
        yield cluster


def test_records_and_groups_pass_from_either_broker_to_the_other(cluster: Cluster) -> None:
    for turn, node_id in enumerate((KAFKA, CORDWOOD), start=1):
        cluster.produce(node_id)
        cluster.consume(KAFKA + CORDWOOD - node_id, "g", RECORDS * turn - RECORDS * (turn - 1))
    assert cluster.has_equal_logs(TOPIC, 2)
    assert all(cluster.logs(TOPIC, 0).values())


@pytest.mark.parametrize("addressed", [CORDWOOD, KAFKA], ids=["cordwood", "kafka"])
def test_a_question_is_for_all_brokers_and_a_kafka_among_them_is_named(
    cluster: Cluster, addressed: int
) -> None:
    kafka = cluster.brokers[KAFKA].bootstrap_servers
    servers = cluster.brokers[addressed].bootstrap_servers
    said = CliRunner().invoke(app, ["explain", "--bootstrap-server", servers, "--json"])
    assert said.exit_code == 0, said.stderr
    document = json.loads(said.stdout)
    assert document["broker"]["node_id"] == CORDWOOD
    assert [each["node_id"] for each in document["broker"]["not_asked"]] == [KAFKA]
    assert re.fullmatch(
        rf"Not asked, with their replicas: broker {KAFKA} \({kafka}\): .*"
        rf"is not a `cordwood serve`, but a Kafka\n",
        said.stderr,
    ), said.stderr


#: Of topics; Kafka 4.3 does not know them.
_NEWER_SETTINGS = re.compile(
    r"^  (?:errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
    r"|remote\.copy\.lag\.(?:bytes|ms))=.*$",
    re.MULTILINE,
)
#: The epoch is the offset of the newest image, which moves on. The tool asks any broker, and
#: Cordwood does not announce share groups and streams groups, which it does not serve; a Kafka 4.3
#: knows no metadata.version above 4.3-IV0.
_OF_FEATURES = re.compile(
    r"Epoch: \d+|Feature: (?:share|streams)\.version.*"
    r"|(?<=SupportedMaxVersion: )(?:4\.3-IV0|4\.4-IV2|UNKNOWN .?33.?) *"
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "--describe"),
        ("topics", "--describe", "--topic", TOPIC),
        ("topics", "--list"),
        ("configs", "--describe", "--topic", TOPIC),
        ("configs", "--describe", "--entity-type", "topics", "--entity-name", TOPIC, "--all"),
        ("configs", "--describe", "--entity-type", "brokers", "--entity-default"),
        ("reassign-partitions", "--list"),
        ("log-dirs", "--describe", "--topic-list", TOPIC),
        ("consumer-groups", "--describe", "--group", "g", "--offsets"),
        ("get-offsets", "--topic", TOPIC),
        ("cluster", "cluster-id"),
        ("features", "describe"),
        ("broker-api-versions",),
        ("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
        ("configs", "--describe", "--entity-type", "brokers", "--entity-name", "2"),
        ("transactions", "list"),
        ("groups", "--list"),
    ],
    ids=" ".join,
)
def test_kafkas_tools_print_the_same_at_either_broker(
    cluster: Cluster, arguments: tuple[str, ...]
) -> None:
    name, *rest = arguments
    printed = {}
    for node_id in (KAFKA, CORDWOOD):
        done = cluster.run(node_id, name, *rest)
        lines = _NEWER_SETTINGS.sub("", _OF_FEATURES.sub("", done.out)).splitlines()
        printed[node_id] = done.code, sorted(filter(None, lines))
    assert printed[CORDWOOD] == printed[KAFKA]
    assert printed[KAFKA][0] == 0


_TIME = re.compile(r"\d{13}\s*")
_OF_NOW = re.compile(r"(LagTimeMs|HighWatermark):\s+\d+")


@pytest.mark.parametrize("what", ["--replication", "--status"])
def test_the_quorum_is_described_the_same_at_either_broker(cluster: Cluster, what: str) -> None:
    printed = []
    for node_id in (KAFKA, CORDWOOD):
        done = cluster.run(node_id, "metadata-quorum", "describe", what)
        assert done.code == 0, done.err
        rows = [line.split() for line in _OF_NOW.sub("", _TIME.sub("", done.out)).splitlines()]
        if what == "--replication":
            rows = [[row[0], row[1], row[-1]] for row in rows]  # ends and lags change meanwhile
        printed.append(sorted(rows))
    assert printed[0] == printed[1]
    if what == "--replication":
        assert {(row[0], row[2]) for row in printed[0][:-1]} == {
            (str(KAFKA), "Observer"),
            (str(CORDWOOD), "Observer"),
            ("100", "Leader"),
        }


@pytest.mark.parametrize("reader", [KAFKA, CORDWOOD], ids=["to kafka", "to cordwood"])
def test_a_consumer_is_sent_to_the_follower_in_its_rack(cluster: Cluster, reader: int) -> None:
    leader = KAFKA + CORDWOOD - reader
    name = f"near-{reader}"
    cluster.create_topic(name, [[leader, reader]])
    producer = Producer(cluster.client({"acks": "all"}, node_id=leader))
    producer.produce(name, b"v")
    assert producer.flush(WAIT_S) == 0

    def fetch(node_id: int, rack: str) -> Any:
        """The answer of a broker for the partition."""
        fields = {
            "max_wait_ms": 1_000,
            "min_bytes": 1,
            "rack_id": rack,
            "topics": [
                {
                    "topic": name,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9999}
                    ],
                }
            ],
        }
        return asyncio.run(ask(cluster.brokers[node_id].port, fields)).responses[0].partitions[0]

    poll_until(
        lambda: fetch(leader, RACKS[reader]).preferred_read_replica == reader,
        timeout_s=WAIT_S,
        what="the leader knows that the follower has the record",
    )
    at_leader = fetch(leader, RACKS[leader])
    assert (at_leader.error_code, at_leader.preferred_read_replica) == (0, -1)
    poll_until(
        lambda: fetch(reader, RACKS[reader]).high_watermark == 1,
        timeout_s=WAIT_S,
        what="the follower knows that it is committed",
    )
    assert fetch(reader, RACKS[reader]).records == at_leader.records != b""


async def ask(port: int, fields: dict[str, Any]) -> Any:
    """The answer to a Fetch of the last version with names of topics."""
    node = NodeConnection(
        lambda: NodeAddress("127.0.0.1", port), client_id="test", timeout_s=WAIT_S
    )
    try:
        return await node.call(request_of("fetch", fields), version_max=12)
    finally:
        node.close()


def test_leaders_and_replicas_are_moved_by_kafkas_tools(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic(MOVED, [[KAFKA]])
    plan = tmp_path / "plan.json"
    for replicas in ([CORDWOOD], [CORDWOOD, KAFKA], [KAFKA, CORDWOOD]):
        partition = {"topic": MOVED, "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        tool = ("reassign-partitions", "--reassignment-json-file", str(plan))
        done = cluster.run(CORDWOOD, *tool, "--execute")
        assert done.code == 0, done.out + done.err

        def is_done() -> bool:
            verified = cluster.run(CORDWOOD, *tool, "--verify")  # noqa: B023  # called at once
            return "is completed" in verified.out

        poll_until(is_done, timeout_s=WAIT_S, what=f"the reassignment to {replicas}")
        cluster.wait_until_in_sync(MOVED)
    which = ("--election-type", "preferred", "--topic", MOVED, "--partition", "0")
    done = cluster.run(CORDWOOD, "leader-election", *which)
    assert done.code == 0, done.out + done.err
    poll_until(lambda: cluster.leaders(MOVED) == {0: KAFKA}, timeout_s=WAIT_S, what="the election")


@pytest.mark.parametrize("target", [KAFKA, CORDWOOD], ids=["to kafka", "to cordwood"])
def test_a_replica_that_is_moved_with_a_throttle_waits_until_there_is_a_higher_one(
    cluster: Cluster, tmp_path: Path, target: int
) -> None:
    source = KAFKA + CORDWOOD - target
    name = f"throttled-{target}"
    cluster.create_topic(name, [[source]])
    producer = Producer(cluster.client({"acks": "all"}))
    for _ in range(50):  # several fetches of 1 MiB
        producer.produce(name, b"x" * 100_000, partition=0)
    assert producer.flush(WAIT_S) == 0
    plan = tmp_path / "plan.json"
    partition = {"topic": name, "partition": 0, "replicas": [source, target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    tool = ("reassign-partitions", "--reassignment-json-file", str(plan))
    done = cluster.run(CORDWOOD, *tool, "--execute", "--throttle", "1000")
    assert done.code == 0, done.out + done.err
    settings = ("configs", "--describe", "--entity-type", "brokers", "--entity-name", str(target))
    poll_until(
        lambda: "follower.replication.throttled.rate=1000" in cluster.run(CORDWOOD, *settings).out,
        timeout_s=WAIT_S,
        what="the broker has the throttle",
    )

    def copied() -> int:
        return len(cluster.logs(name, 0).get(target, b""))

    poll_until(lambda: copied() > 0, timeout_s=WAIT_S, what="the first fetch of the replica")
    for _ in range(3):  # the tool takes longer than all fetches would
        assert "is still in progress" in cluster.run(CORDWOOD, *tool, "--verify").out
    assert 0 < copied() < 5_000_000
    done = cluster.run(CORDWOOD, *tool, "--execute", "--additional", "--throttle", "1000000000")
    assert done.code == 0, done.out + done.err
    poll_until(
        lambda: "is completed" in cluster.run(CORDWOOD, *tool, "--verify").out,
        timeout_s=WAIT_S,
        what="the reassignment",
    )
    assert cluster.has_equal_logs(name, 1)
    poll_until(
        lambda: "throttled" not in cluster.run(CORDWOOD, *settings).out,
        timeout_s=WAIT_S,
        what="the broker has no throttle any more",
    )


def test_a_setting_of_a_topic_is_altered_at_the_broker_and_applied_there(
    cluster: Cluster,
) -> None:
    topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    value = "retention.ms=123456789"
    done = cluster.run(CORDWOOD, "configs", "--alter", *topic, "--add-config", value)
    assert done.code == 0, done.out + done.err
    for node_id in (KAFKA, CORDWOOD):
        poll_until(
            lambda: value in cluster.run(node_id, "configs", "--describe", *topic).out,  # noqa: B023
            timeout_s=WAIT_S,
            what=f"the setting at broker {node_id}",
        )


def test_a_controlled_shutdown_moves_the_leaders_first(cluster: Cluster) -> None:
    assert cluster.brokers[CORDWOOD].stop() == 0
    poll_until(
        lambda: set(cluster.leaders(TOPIC, node_id=KAFKA).values()) == {KAFKA},
        timeout_s=WAIT_S,
        what="the other broker leads",
    )
    for partition in cluster.leaders(TOPIC, node_id=KAFKA):
        assert cluster.isr(TOPIC, partition, node_id=KAFKA) == {KAFKA}
    cluster.brokers[CORDWOOD].start()
    cluster.wait_until_in_sync(TOPIC)
