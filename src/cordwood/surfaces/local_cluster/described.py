"""The summary of a local cluster: the answer of `cordwood cluster up`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.surfaces.local_cluster.local_cluster import LocalCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedNode:
    """A node, the program that it runs, and its health in a word or two.

    `pid` is None without a process, `http_url` of a node of Kafka's.
    """

    node_id: int
    role: str
    kind: str
    address: str
    health: str
    pid: int | None
    http_url: str | None
    log_file: str
    log_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCluster:
    """A cluster, the directory that has all its files, and its nodes."""

    cluster_id: str
    directory: str
    bootstrap_servers: str
    nodes: Sequence[DescribedNode]


def described(cluster: LocalCluster) -> DescribedCluster:
    """The summary of a cluster that serves."""
    unfenced = cluster.unfenced()
    return DescribedCluster(
        cluster_id=cluster.cluster_id,
        directory=str(cluster.directory),
        bootstrap_servers=cluster.bootstrap_servers,
        nodes=[
            DescribedNode(
                node_id=node.node_id,
                role=node.place.role.value,
                kind=node.kind,
                address=node.address,
                health=cluster.health(node, unfenced),
                pid=node.pid,
                http_url=node.http_url,
                log_file=str(node.log_file),
                log_dir=str(node.log_dir),
            )
            for node in cluster.nodes
        ],
    )
