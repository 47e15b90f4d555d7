"""A Cordwood broker in a cluster of several brokers, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cordwood.metadata.formatting import Voters, format_directories
from cordwood.model.clock import SystemClock
from support.kafka import CLUSTER_ID
from support.kafka_cluster import ControllerOfCluster
from support.served import ServedBroker


class ClusterBroker(ServedBroker):
    """`ServedBroker` with the id `node_id`; it compacts in its own process, without Spark."""

    def __init__(
        self,
        root: Path,
        controller: ControllerOfCluster,
        node_id: int,
        *,
        properties: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        directories: int = 1,
        cluster_id: str = CLUSTER_ID,
        module: str = "support.serve_in_process",
    ) -> None:
        """Formats its directories; nothing runs yet.

        Args:
            root: where its files are.
            controller: of its cluster.
            node_id: its own.
            properties: of server.properties.
            flags: as `ServedBroker`.
            directories: how many log directories it has.
            cluster_id: that its directories are formatted with.
            module: as `ServedBroker`.
        """
        self.node_id = node_id
        self.log_dirs = [root / "data", *(root / f"data-{n}" for n in range(1, directories))]
        format_directories(
            self.log_dirs,
            node_id=node_id,
            cluster_id=cluster_id,
            clock=SystemClock(),
            controller_endpoints=[],
            voters=Voters.STATIC,
        )
        roles = {"process.roles": "broker", "node.id": str(node_id), **controller.quorum}
        roles["log.dirs"] = ",".join(map(str, self.log_dirs))
        given = {**roles, **(properties or {})}
        super().__init__(self.log_dirs[0], given, flags=flags, module=module)
