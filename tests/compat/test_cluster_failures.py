"""Disks of a Cordwood broker that fail or fill up in a cluster, and controllers that change.

A producer with acks=all writes all the time: what is acknowledged is there in the end, in order.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support.cluster_broker import ClusterBroker
from support.failing_disks import break_directory, fill, may_mount, mend_directory, small_disk
from support.kafka import CLUSTER_ID, poll_until
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, MixedCluster
from support.scrape import Scrape
from support.served import ServeError
from support.soaks.ledger import Ledger, Place
from support.soaks.reading import complaints_of
from support.soaks.writers import Writer

KAFKA, CORDWOOD = 1, 2
TOPIC = "t"
PARTITIONS = 4
_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "auto.leader.rebalance.enable": "false",
}
_QUICK = {"log.flush.offset.checkpoint.interval.ms": "200"}
#: No leader takes a replica out of the ISR in this time: the controller does.
_PATIENT = {"replica.lag.time.max.ms": "600000"}
#: Kafka's high watermark waits so long for a replica that has left the ISR (`Partition`,
#: `shouldWaitForReplicaToJoinIsr`). It is less than what a producer waits for an answer: a Kafka
#: that has answered nobody reads no further request of a connection, and librdkafka, which gives
#: up the connection, sends again what Kafka then reads twice.
_SHORT = {"replica.lag.time.max.ms": "5000"}
#: No broker is fenced because the machine is slow.
_SESSION_MS = 10_000


@contextmanager
def writing(cluster: MixedCluster, partitions: int) -> Iterator[Ledger]:
    """Meanwhile a producer writes; afterwards all that was acknowledged is there."""
    ledger = Ledger()
    servers = cluster.bootstrap_servers
    writer = Writer(0, servers, ledger, topics={TOPIC: False}, records_per_second=400)
    try:
        yield ledger
    finally:
        writer.stop()
    for number in range(partitions):
        assert complaints_of(cluster.bootstrap_servers, Place(TOPIC, number), ledger) == []


def wait_for_more(ledger: Ledger, count: int = 200) -> None:
    """Returns when so many more records are acknowledged."""
    wanted = ledger.count + count
    poll_until(lambda: ledger.count >= wanted, timeout_s=WAIT_S, what="records are written")


def cordwood_of(cluster: MixedCluster) -> ClusterBroker:
    broker = cluster.brokers[CORDWOOD]
    assert isinstance(broker, ClusterBroker)
    return broker


def test_a_directory_that_fails_moves_its_leaders_and_the_others_stay(tmp_path: Path) -> None:
    with MixedCluster(
        tmp_path,
        kafka=[KAFKA],
        cordwood=[CORDWOOD],
        properties={**_PROPERTIES, **_PATIENT},
        properties_of={CORDWOOD: _QUICK},
        session_timeout_ms=_SESSION_MS,
        directories=2,
    ) as cluster:
        broker = cordwood_of(cluster)
        cluster.create_topic(TOPIC, [[CORDWOOD, KAFKA]] * PARTITIONS)
        whole, failing = broker.log_dirs
        poll_until(
            lambda: len(list(tmp_path.glob(f"{CORDWOOD}/data*/{TOPIC}-*"))) == PARTITIONS,
            timeout_s=WAIT_S,
            what="all logs are there",
        )
        lost = {int(path.name.rpartition("-")[2]) for path in failing.glob(f"{TOPIC}-*")}
        assert 0 < len(lost) < PARTITIONS
        kept = set(range(PARTITIONS)) - lost
        with writing(cluster, PARTITIONS) as ledger:
            wait_for_more(ledger)
            break_directory(failing)
            poll_until(
                lambda: all(cluster.isr(TOPIC, each, node_id=KAFKA) == {KAFKA} for each in lost),
                timeout_s=WAIT_S,
                what="the partitions in the failed directory have another leader",
            )
            assert cluster.leaders(TOPIC, node_id=KAFKA) == {
                **dict.fromkeys(lost, KAFKA),
                **dict.fromkeys(kept, CORDWOOD),
            }
            assert all(
                cluster.isr(TOPIC, each, node_id=KAFKA) == {KAFKA, CORDWOOD} for each in kept
            )
            wait_for_more(ledger)
            with urllib.request.urlopen(f"{broker.url}/metrics") as answer:
                metrics = Scrape(answer.read().decode())
            assert metrics.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
            assert broker.stop() == 0
            mend_directory(failing)
            broker.start()
            cluster.wait_until_in_sync(TOPIC)
            wait_for_more(ledger)
        assert (whole / f"{TOPIC}-{min(kept)}").is_dir()
        poll_until(
            lambda: cluster.has_equal_logs(TOPIC, PARTITIONS),
            timeout_s=WAIT_S,
            what="the replicas are equal",
        )


@pytest.mark.skipif(bool(may_mount()), reason=may_mount())
def test_a_full_disk_hands_its_leaders_over_and_catches_up_when_there_is_space(
    tmp_path: Path,
) -> None:
    with (
        small_disk(tmp_path / str(CORDWOOD) / "data", megabytes=64) as disk,
        MixedCluster(
            tmp_path,
            kafka=[KAFKA],
            cordwood=[CORDWOOD],
            properties={**_PROPERTIES, **_SHORT},
            session_timeout_ms=_SESSION_MS,
        ) as cluster,
    ):
        broker = cordwood_of(cluster)
        cluster.create_topic(TOPIC, [[CORDWOOD, KAFKA], [KAFKA, CORDWOOD]])
        pid = broker.pid
        with writing(cluster, 2) as ledger:
            wait_for_more(ledger)
            ballast = fill(disk)
            poll_until(
                lambda: all(cluster.isr(TOPIC, each, node_id=KAFKA) == {KAFKA} for each in (0, 1)),
                timeout_s=WAIT_S,
                what="the broker whose disk is full neither leads nor is in sync",
            )
            wait_for_more(ledger, 2_000)
            for number in (0, 1):
                assert f"The disk is full: {TOPIC}-{number} is left to the other" in broker.log
            assert cluster.leaders(TOPIC, node_id=KAFKA) == {0: KAFKA, 1: KAFKA}
            ballast.unlink()
            cluster.wait_until_in_sync(TOPIC)
            wait_for_more(ledger)
        assert broker.pid == pid
        assert broker.exit_code is None
        poll_until(
            lambda: cluster.has_equal_logs(TOPIC, 2), timeout_s=WAIT_S, what="equal replicas"
        )


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "tries_ms", "why"),
    [
        (CORDWOOD, "A" * 22, "60000", "is of another cluster than AAAAAAAAAAAAAAAAAAAAAA"),
        (KAFKA, CLUSTER_ID, "3000", "unable to register with the controller quorum"),
    ],
    ids=["another cluster", "an id in use"],
)
def test_a_broker_that_does_not_belong_there_does_not_start(
    tmp_path: Path, node_id: int, cluster_id: str, tries_ms: str, why: str
) -> None:
    with MixedCluster(tmp_path, kafka=[KAFKA], session_timeout_ms=_SESSION_MS) as cluster:
        stranger = ClusterBroker(
            tmp_path / "stranger",
            cluster.controller,
            node_id,
            properties={"initial.broker.registration.timeout.ms": tries_ms},
            cluster_id=cluster_id,
        )
        with pytest.raises(ServeError, match=why):
            stranger.start()
        assert stranger.exit_code == 1
        assert set(cluster.admin.list_topics(timeout=WAIT_S).brokers) == {KAFKA}


def test_brokers_follow_the_controllers_of_a_quorum_that_fail_one_after_the_other(
    tmp_path: Path, tools: KafkaTools
) -> None:
    with MixedCluster(
        tmp_path,
        kafka=[KAFKA],
        cordwood=[CORDWOOD],
        properties=_PROPERTIES,
        session_timeout_ms=_SESSION_MS,
        controllers=3,
    ) as cluster:

        def active() -> int:
            servers = ("--bootstrap-server", cordwood_of(cluster).bootstrap_servers)
            done = tools.run("metadata-quorum", *servers, "describe", "--status")
            found = [line.split()[1] for line in done.out.splitlines() if "LeaderId:" in line]
            return int(found[0]) if found else -1

        cluster.create_topic(TOPIC, [[CORDWOOD, KAFKA], [KAFKA, CORDWOOD]])
        with writing(cluster, 2) as ledger:
            for turn in range(3):
                wait_for_more(ledger)
                before = active()
                (controller,) = [c for c in cluster.controllers if c.node_id == before]
                controller.kill()
                poll_until(
                    lambda: active() not in {-1, before},  # noqa: B023  # called at once
                    timeout_s=WAIT_S,
                    what="another controller is active",
                )
                made = NewTopic(f"made-{turn}", 1, replica_assignment=[[CORDWOOD, KAFKA]])
                cluster.admin.create_topics([made])[made.topic].result()
                cluster.wait_until_in_sync(TOPIC, made.topic)
                controller.start()
