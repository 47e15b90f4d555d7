"""All metrics, in the order of docs/metrics.md."""

from __future__ import annotations

from typing import Any, NamedTuple

from cordwood.surfaces.metrics.cluster import CLUSTER
from cordwood.surfaces.metrics.controller import CONTROLLER
from cordwood.surfaces.metrics.logs import LOGS
from cordwood.surfaces.metrics.metric import Metric
from cordwood.surfaces.metrics.requests import REQUESTS
from cordwood.surfaces.metrics.snapshot import NodeSnapshot, Snapshot
from cordwood.surfaces.metrics.traffic import TRAFFIC


class Section(NamedTuple):
    """Metrics that belong together."""

    title: str
    metrics: tuple[Metric[Any], ...]


TABLE: tuple[Section, ...] = (
    Section("Every node: requests and connections", REQUESTS),
    Section("Every node: the controller and the metadata log", CONTROLLER),
    Section("Brokers: records of clients", TRAFFIC),
    Section("Brokers: logs, directories and the cleaner", LOGS),
    Section("Brokers: replicas, metadata and coordinators", CLUSTER),
)

#: The metrics of a node that is a controller alone.
CONTROLLER_METRICS: tuple[Metric[NodeSnapshot], ...] = (*REQUESTS, *CONTROLLER)

#: The metrics of a broker: all of the table.
METRICS: tuple[Metric[Snapshot], ...] = (*CONTROLLER_METRICS, *TRAFFIC, *LOGS, *CLUSTER)
