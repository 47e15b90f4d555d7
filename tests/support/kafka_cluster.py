"""A cluster of real Kafka nodes on loopback: one controller of its own, and brokers.

As `RealKafka`, a node is a context manager that leaves nothing running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient

from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3

CONTROLLER_ID = 100


class ControllerOfCluster(Protocol):
    """Facts about its controller that a broker needs, Kafka's or another."""

    @property
    def is_dynamic(self) -> bool:
        """Whether its voters are those of its log (kraft.version 1)."""

    @property
    def quorum(self) -> dict[str, str]:
        """The properties by which a node finds the controllers."""


class KafkaController(RealKafka):
    """A controller of a cluster; `port` is that of its controller listener."""

    def __init__(
        self,
        root: Path,
        *,
        node_id: int = CONTROLLER_ID,
        is_dynamic: bool = True,
        properties: Mapping[str, str] | None = None,
        log_dirs: Sequence[Path] | None = None,
        version: str = KAFKA_4_3,
        release: str | None = None,
    ) -> None:
        """The only controller of its cluster, unless `be_quorum` is called; as `RealKafka`.

        Args:
            root: where its files are.
            node_id: its own.
            is_dynamic: whether its voters are those of its log (kraft.version 1).
            properties: lines of server.properties.
            log_dirs: as `RealKafka`.
            version: of Kafka.
            release: as `RealKafka`: the metadata version of its cluster.
        """
        super().__init__(
            root, properties=properties, log_dirs=log_dirs, version=version, release=release
        )
        self.node_id = node_id
        self.is_dynamic = is_dynamic
        self._voters = f"{node_id}@{self.bootstrap_servers}"
        self._is_alone = True

    @staticmethod
    def be_quorum(controllers: Sequence[KafkaController]) -> None:
        """Makes them the voters of one quorum; none is running."""
        voters = ",".join(f"{each.node_id}@{each.bootstrap_servers}" for each in controllers)
        for each in controllers:
            each.is_dynamic, each._voters, each._is_alone = False, voters, False

    @property
    def quorum(self) -> dict[str, str]:
        """The properties by which a node finds the controllers."""
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": self.bootstrap_servers}
        return {"controller.quorum.voters": self._voters}

    def roles(self) -> dict[str, str]:
        """The settings of a broker's roles."""
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "listeners": f"CONTROLLER://{self.bootstrap_servers}",
            **self.quorum,
        }

    def format_flags(self) -> list[str]:
        """The flags of its controller's quorum."""
        return ["--standalone"] if self.is_dynamic else []

    def serving(self) -> AdminClient | None:
        """An admin client once it has started, and leads its quorum if it is alone."""
        self.require_running()
        log = self.log_since_start
        if "Kafka Server started" not in log:
            return None
        if self._is_alone and "Becoming the active controller" not in log:
            return None
        return self.admin()


class KafkaBroker(RealKafka):
    """A broker of a `KafkaController`'s cluster."""

    def __init__(
        self,
        root: Path,
        controller: ControllerOfCluster,
        node_id: int,
        *,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_4_3,
        release: str | None = None,
    ) -> None:
        """Prepares a broker; it is not started.

        Args:
            root: where its files are.
            controller: of its cluster.
            node_id: its own.
            properties: lines of server.properties.
            version: of Kafka.
            release: as `RealKafka`: the metadata version of its cluster.
        """
        super().__init__(root, properties=properties, version=version, release=release)
        self.controller = controller
        self.node_id = node_id

    def roles(self) -> dict[str, str]:
        """The settings of a broker's roles."""
        return {
            "process.roles": "broker",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            **self.controller.quorum,
        }

    def format_flags(self) -> list[str]:
        """The flags of its controller's quorum."""
        return ["--no-initial-controllers"] if self.controller.is_dynamic else []

    def serving(self) -> AdminClient | None:
        """An admin client once it serves; the other brokers may be down."""
        answered = self.asked()
        return answered[0] if answered and self.node_id in answered[1].brokers else None
