"""kafka-transactions and `cordwood transactions` in a cluster of Kafka's and Cordwood's brokers.

Every partition has a replica on each broker, and a leader at another one: with --broker-id, the
broker that is asked is a follower. Kafka answers there, too (ReplicaManager.activeProducerState,
KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from cordwood.format.record_batch import Record, build_batch
from support.kafka import poll_until
from support.kafka_tools import KafkaTools, ToolResult
from support.mixed_cluster import WAIT_S, MixedCluster
from support.side_by_side import Line, Run, Station, kafkas_tools, own_tools, run_lines
from support.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

KAFKA, CORDWOOD, SECOND = BROKERS = (1, 2, 3)
#: The transaction that no coordinator knows stays open in one, and is aborted in the other.
TOPIC, ENDED = "orders", "ended"
#: Partition 0 is led by broker 1, the next one by the next.
PARTITIONS: Final = range(len(BROKERS))
LEADERS: Final = dict(zip(PARTITIONS, BROKERS, strict=True))
#: Of a producer that no coordinator has heard of.
HANGING_ID, HANGING_EPOCH, HANGING_MS = 7_000, 3, 1_700_000_000_000
_PROPERTIES: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    # A write of a transaction that its coordinator does not know would be refused.
    "transaction.partition.verification.enable": "false",
    # No replica leaves the ISR because the machine is slow.
    "replica.lag.time.max.ms": "600000",
}
_TABLE: Final = (
    (r"[ \t]+", " "),
    # How many minutes the transaction is open.
    (rf"(?<= {HANGING_MS}) \d+", " <minutes>"),
    # What Kafka's client logs of an error before the tool says it.
    (r"^\[.*\] ERROR \[AdminClient .*\n.*\.NotLeaderOrFollowerException: .*\n", ""),
)
_TX: Final = "transactions --bootstrap-server {broker}"


def _asked(command: str, *, ordered: bool = False) -> Line:
    return Line(f"{_TX} {command}", changes=_TABLE, ordered=ordered)


def describe(partition: int, broker: int | None = None, *, topic: str = TOPIC) -> Line:
    """The producers of a partition, in the order of their table."""
    where = "" if broker is None else f" --broker-id {broker}"
    command = f"describe-producers --topic {topic} --partition {partition}{where}"
    return _asked(command, ordered=True)


def find(
    broker: int | None = None, *, topic: str | None = None, partition: int | None = None
) -> Line:
    """The transactions that hang, also those that have hung for a short time."""
    words = ["find-hanging --max-transaction-timeout 0"]
    words += [] if broker is None else [f"--broker-id {broker}"]
    words += [] if topic is None else [f"--topic {topic}"]
    words += [] if partition is None else [f"--partition {partition}"]
    return _asked(" ".join(words))


#: Brokers without a replica, of Cordwood and of Kafka; and a search without limits.
REFUSED: Final = (
    describe(0, CORDWOOD, topic="alone"),
    describe(0, SECOND, topic="alone"),
    describe(0, KAFKA, topic="apart"),
    _asked("find-hanging --broker-id 2 --partition 0"),
    _asked("find-hanging --partition 0"),
)
LOOKS: Final = (
    *(describe(partition, broker) for partition in PARTITIONS for broker in (None, *BROKERS)),
    *(find(broker) for broker in BROKERS),
    *(find(broker, topic=TOPIC) for broker in (None, *BROKERS)),
    *(find(broker, topic=TOPIC, partition=0) for broker in (None, *BROKERS)),
    *REFUSED,
)


class Cluster(MixedCluster):
    """A broker of Kafka and two of Cordwood; one transaction is under way, one of them hangs."""

    def __init__(self, root: Path, tools: KafkaTools) -> None:
        super().__init__(
            root,
            kafka=[KAFKA],
            cordwood=[CORDWOOD, SECOND],
            properties=_PROPERTIES,
            session_timeout_ms=20_000,
        )
        self._runs: Mapping[str, Run] = {"Kafka's": kafkas_tools(tools), "own": own_tools}

    def said(self, whose: str, node_id: int, *lines: Line) -> dict[str, ToolResult]:
        """Output of Kafka's or Cordwood's tool with a broker as its first one."""
        station = Station(whose, self.brokers[node_id].bootstrap_servers, self.root)
        run_lines(station, lines, self._runs[whose])
        return station.said

    def rows(self, whose: str, node_id: int, line: Line) -> list[list[str]]:
        """The cells of the table that a tool prints, without the header."""
        (said,) = self.said(whose, node_id, line).values()
        assert said.code == 0, said
        _, *rows = said.out.splitlines()
        return [each.split() for each in rows]


def hang(cluster: Cluster, topic: str, partition: int) -> None:
    """Writes two records of a transaction that no coordinator knows, at the leader."""
    batch = build_batch(
        [Record(n, HANGING_MS, b"k", b"hangs") for n in range(2)],
        base_offset=0,
        producer_id=HANGING_ID,
        producer_epoch=HANGING_EPOCH,
        base_sequence=0,
        is_transactional=True,
    )
    asked = {
        "transactional_id": "hangs",
        "acks": -1,
        "timeout_ms": 60_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
    with Wire(cluster.brokers[LEADERS[partition]].port) as wire:
        answer = wire.ask("produce", 11, asked)
    (found,) = answer["responses"][0]["partition_responses"]
    assert found["error_code"] == "none", answer


def wait_for_followers(cluster: Cluster) -> None:
    """Each replica has what its leader has."""
    poll_until(
        lambda: all(cluster.has_equal_logs(each, len(BROKERS)) for each in (TOPIC, ENDED)),
        timeout_s=WAIT_S,
        what="the followers have the records",
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tools: KafkaTools) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster")
    with Cluster(root, tools) as cluster:
        for topic in (TOPIC, ENDED):
            cluster.create_topic(topic, cluster.spread(len(BROKERS)))
        cluster.create_topic("alone", [[KAFKA]])
        cluster.create_topic("apart", [[CORDWOOD]])
        settings = {"transactional.id": "under-way", "transaction.timeout.ms": 900_000}
        producer = Producer(cluster.client(settings))
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for topic, partition in product((TOPIC, ENDED), PARTITIONS):
            producer.produce(topic, b"one", partition=partition)
        assert producer.flush(WAIT_S) == 0
        for topic, partition in product((TOPIC, ENDED), PARTITIONS):
            hang(cluster, topic, partition)
        wait_for_followers(cluster)
        yield cluster
        producer.abort_transaction(WAIT_S)


@pytest.mark.parametrize("whose", ["Kafka's", "own"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_followers_describe_the_producers_of_the_leader(
    cluster: Cluster, whose: str, partition: int
) -> None:
    """Two producers, each with an open transaction: the same at Kafka's and Cordwood's replicas."""
    led = cluster.rows(whose, KAFKA, describe(partition))
    assert {cells[0] for cells in led} > {str(HANGING_ID)}
    assert len(led) == 2
    assert all(cells[-1] != "None" for cells in led)
    for broker in BROKERS:
        assert cluster.rows(whose, KAFKA, describe(partition, broker)) == led, broker


@pytest.mark.parametrize("whose", ["Kafka's", "own"])
@pytest.mark.parametrize("broker", BROKERS)
def test_what_hangs_is_found_at_every_replica(cluster: Cluster, whose: str, broker: int) -> None:
    """A broker has a replica of each partition, two of which others lead."""
    for line in (find(broker), find(broker, topic=TOPIC)):
        found = cluster.rows(whose, KAFKA, line)
        assert sorted(cells[:4] for cells in found if cells[0] == TOPIC) == [
            [TOPIC, str(partition), str(HANGING_ID), str(HANGING_EPOCH)] for partition in PARTITIONS
        ]


def test_the_tools_say_the_same_whichever_broker_they_ask_first(cluster: Cluster) -> None:
    expected = cluster.said("Kafka's", KAFKA, *LOOKS)
    assert cluster.said("own", KAFKA, *LOOKS) == expected
    for node_id in (CORDWOOD, SECOND):
        assert cluster.said("Kafka's", node_id, *LOOKS) == expected
        assert cluster.said("own", node_id, *LOOKS) == expected


def test_what_was_aborted_hangs_at_no_replica(cluster: Cluster) -> None:
    """Each tool aborts at a leader of Kafka's or of Cordwood's; followers see that it ended."""
    (offset,) = {cells[5] for cells in cluster.rows("own", KAFKA, find(topic=ENDED))}
    for partition, whose in ((0, "own"), (1, "Kafka's"), (2, "own")):
        abort = _asked(f"abort --topic {ENDED} --partition {partition} --start-offset {offset}")
        (said,) = cluster.said(whose, SECOND, abort).values()
        assert (said.code, said.out) == (0, ""), said
    wait_for_followers(cluster)
    for whose, broker in product(("Kafka's", "own"), BROKERS):
        assert cluster.rows(whose, KAFKA, find(broker, topic=ENDED)) == []
        for partition in PARTITIONS:
            rows = cluster.rows(whose, KAFKA, describe(partition, broker, topic=ENDED))
            (ended,) = [cells for cells in rows if cells[0] == str(HANGING_ID)]
            assert ended[-1] == "None"
