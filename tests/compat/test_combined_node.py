"""A node that is a broker and the controller, with a broker of Cordwood and one of Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from cordwood.metadata.formatting import format_directories
from cordwood.metadata.image import Endpoint
from cordwood.model.clock import SystemClock
from support.cluster_broker import ClusterBroker
from support.kafka import CLUSTER_ID, poll_until
from support.kafka_cluster import KafkaBroker
from support.ports import free_port
from support.served import ServedBroker

TOPIC = "t"
WAIT_S = 120.0
_PROPERTIES = {
    # No broker is fenced because the machine is slow.
    "broker.session.timeout.ms": "10000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
}


class CombinedNode(ServedBroker):
    """`process.roles=broker,controller`; other nodes see it as a controller."""

    is_dynamic = True

    def __init__(self, root: Path) -> None:
        controller_port = free_port()
        super().__init__(root / "data", flags=(), module="support.serve_in_process")
        self.quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"}
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": controller_port}
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": ",".join(f"{n}://127.0.0.1:{port}" for n, port in listeners.items()),
            **self.quorum,
            **_PROPERTIES,
        }
        format_directories(
            [self.log_dir],
            node_id=1,
            cluster_id=CLUSTER_ID,
            clock=SystemClock(),
            controller_endpoints=[
                Endpoint(name="CONTROLLER", host="127.0.0.1", port=controller_port)
            ],
        )


class Cluster:
    """The combined node 1, Cordwood's broker 2, and Kafka's 3."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.first = stack.enter_context(CombinedNode(root / "1"))
        own = ClusterBroker(root / "2", self.first, 2, properties=_PROPERTIES)
        kafka = KafkaBroker(root / "3", self.first, 3, properties=_PROPERTIES)
        self.second = stack.enter_context(own)
        self.third = stack.enter_context(kafka)
        self.third.start()
        self.servers = ",".join(
            each.bootstrap_servers for each in (self.first, self.second, self.third)
        )
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def partition(self, broker: ServedBroker | KafkaBroker) -> PartitionMetadata | None:
        """The broker's metadata of the partition; None if it does not know the partition yet."""
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        topics = admin.list_topics(timeout=20).topics
        return topics[TOPIC].partitions.get(0) if TOPIC in topics else None

    def until(self, what: str, holds: Callable[[PartitionMetadata], bool]) -> None:
        """Waits until each broker that runs says so of the partition."""
        for broker in (self.first, self.second, self.third):
            if not broker.is_running:
                continue
            poll_until(
                lambda: (seen := self.partition(broker)) is not None and holds(seen),  # noqa: B023
                timeout_s=WAIT_S,
                what=what,
            )

    def until_in_sync(self, *ids: int) -> None:
        self.until(f"{ids} are in sync", lambda seen: set(seen.isrs) == set(ids))

    def until_led_by(self, *ids: int) -> None:
        self.until(f"one of {ids} leads", lambda seen: seen.leader in ids)

    def produce(self, count: int) -> None:
        """Without idempotence: ids of producers come from the controller, which may be away."""
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "log_level": 0})
        for number in range(count):
            producer.produce(TOPIC, b"%d" % number, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * count

    def log(self, broker: ServedBroker | KafkaBroker) -> bytes:
        log_dir = broker.log_dir if isinstance(broker, ServedBroker) else broker.log_dirs[0]
        return b"".join(p.read_bytes() for p in sorted((log_dir / f"{TOPIC}-0").glob("*.log")))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])
        cluster.admin.create_topics([topic])[TOPIC].result()
        yield cluster
        # As Kafka's broker is: in order, they would wait until that is fenced.
        cluster.second.kill()
        cluster.first.kill()


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_a_node_with_both_roles_has_other_brokers(cluster: Cluster) -> None:
    cluster.until_in_sync(1, 2, 3)
    cluster.produce(100)
    # A controlled shutdown of another broker needs no word of the broker beside the controller.
    begun = time.monotonic()
    cluster.second.stop()
    assert time.monotonic() - begun < 30
    cluster.until_in_sync(1, 3)
    cluster.produce(100)
    cluster.second.start()
    cluster.until_in_sync(1, 2, 3)
    # Its own shutdown leaves leaders that serve, though there is no controller.
    cluster.until_led_by(1)
    cluster.first.stop()
    cluster.until_led_by(2, 3)
    cluster.produce(100)
    cluster.first.start()
    cluster.until_in_sync(1, 2, 3)
    cluster.produce(100)
    logs = [cluster.log(each) for each in (cluster.first, cluster.second, cluster.third)]
    poll_until(
        lambda: len({cluster.log(e) for e in (cluster.first, cluster.second, cluster.third)}) == 1,
        timeout_s=WAIT_S,
        what=f"equal logs, of {[len(each) for each in logs]} bytes",
    )
