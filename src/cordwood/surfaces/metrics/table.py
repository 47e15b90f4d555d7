"""All metrics, in the order of docs/metrics.md."""

from __future__ import annotations

from typing import NamedTuple

from cordwood.surfaces.metrics.cluster import CLUSTER
from cordwood.surfaces.metrics.logs import LOGS
from cordwood.surfaces.metrics.metric import Metric
from cordwood.surfaces.metrics.traffic import TRAFFIC


class Section(NamedTuple):
    """Metrics that belong together."""

    title: str
    metrics: tuple[Metric, ...]


TABLE: tuple[Section, ...] = (
    Section("Clients and data", TRAFFIC),
    Section("Logs, directories and the cleaner", LOGS),
    Section("Replicas, controller, metadata and coordinators", CLUSTER),
)

METRICS: tuple[Metric, ...] = tuple(metric for section in TABLE for metric in section.metrics)
