"""The settings of the nodes, in Kafka's names, with shorter times than Kafka's defaults; disks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.formatting import Voters, format_directories
from cordwood.model.clock import Clock
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.watched import SeededRng

CLUSTER_ID: Final = "c2ltdWxhdGlvbi1vZi0xMA"
CONTROLLER_ID: Final = 100
CONTROLLER: Final = "controller"
CONTROLLER_PORT: Final = 9093
BROKER_PORT: Final = 9092
DATA: Final = Path("/data")

_COMMON: Final = {
    "log.dirs": str(DATA),
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"{CONTROLLER_ID}@{CONTROLLER}:{CONTROLLER_PORT}",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
}
_OF_BROKER: Final = {
    "process.roles": "broker",
    "num.recovery.threads.per.data.dir": "1",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "250",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.initial.task.delay.ms": "500",
    "request.timeout.ms": "1500",
    "controller.quorum.request.timeout.ms": "1000",
    "log.flush.interval.messages": "40",
    "offsets.commit.timeout.ms": "1500",
    "offsets.retention.check.interval.ms": "400",
    "offsets.retention.minutes": "1",
    "log.retention.check.interval.ms": "700",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


def broker_name(broker_id: int) -> str:
    """The host of a broker."""
    return f"broker-{broker_id}"


def broker_settings(broker_id: int) -> BrokerSettings:
    """The settings of a broker."""
    host = broker_name(broker_id)
    return BrokerSettings(
        {
            **_COMMON,
            **_OF_BROKER,
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
        }
    )


def controller_node_settings() -> BrokerSettings:
    """The settings of the controller."""
    return BrokerSettings(
        {
            **_COMMON,
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": f"CONTROLLER://{CONTROLLER}:{CONTROLLER_PORT}",
        }
    )


def format_disk(
    fs: SimulatedFileSystem, node_id: int, clock: Clock, rng: SeededRng
) -> Sequence[UUID]:
    """Formats the disk of a node if it is empty; returns the ids of its directories."""
    return format_directories(
        [DATA],
        node_id=node_id,
        cluster_id=CLUSTER_ID,
        clock=clock,
        controller_endpoints=[],
        voters=Voters.STATIC,
        rng=rng,
        fs=fs,
    )
