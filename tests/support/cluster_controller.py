"""A Cordwood controller of a cluster, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.metadata.formatting import Voters, format_directories
from cordwood.metadata.image import Endpoint
from cordwood.model.clock import SystemClock
from support.kafka import CLUSTER_ID
from support.kafka_cluster import CONTROLLER_ID
from support.served import ServedBroker


class ClusterController(ServedBroker):
    """Controller like a `KafkaController`, the only voter of its quorum."""

    def __init__(
        self,
        root: Path,
        *,
        node_id: int = CONTROLLER_ID,
        is_dynamic: bool = True,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] = DEFAULT_FEATURES,
        flags: Sequence[str] = (),
    ) -> None:
        """Formats its directory; nothing runs yet.

        Args:
            root: where its files are.
            node_id: its own.
            is_dynamic: whether its voters are those of its log (kraft.version 1).
            properties: of server.properties.
            features: the levels that the cluster begins with.
            flags: as `ServedBroker`.
        """
        self.node_id = node_id
        self.is_dynamic = is_dynamic
        log_dir = root / "data"
        super().__init__(log_dir, flags=flags)
        format_directories(
            [log_dir],
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            clock=SystemClock(),
            controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=self.port)],
            voters=Voters.SOLE if is_dynamic else Voters.STATIC,
            features=features,
        )
        self._properties = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://{self.bootstrap_servers}",
            **self.quorum,
            **(properties or {}),
        }

    @property
    def quorum(self) -> dict[str, str]:
        """The properties by which a node finds the controller."""
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": self.bootstrap_servers}
        return {"controller.quorum.voters": f"{self.node_id}@{self.bootstrap_servers}"}

    def __enter__(self) -> Self:
        """Returns the controller, which does not run yet."""
        return self

    def launch(self) -> None:
        """Starts it."""
        self.start()

    def serving(self) -> bool:
        """Whether it can be asked."""
        return self._answers()
