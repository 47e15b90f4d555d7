"""The table's metrics as the Prometheus client library takes them, read when it is scraped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from cordwood.model.errors import CordwoodError
from cordwood.surfaces.metrics.metric import Metric, MetricType, Times, Value

_log = logging.getLogger(__name__)

#: As the rules for Kafka's histograms name them.
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


S = TypeVar("S")


def registry(metrics: Sequence[Metric[S]], take: Callable[[], S]) -> CollectorRegistry:
    """The registry for a scrape: a node's metrics, and the process's memory, files and CPU time.

    Args:
        metrics: of the table.
        take: returns a snapshot of the node; if it raises, the scrape fails.
    """
    found = CollectorRegistry(auto_describe=False)
    found.register(MetricsCollector(metrics, take))
    ProcessCollector(registry=found)
    return found


class MetricsCollector(Collector, Generic[S]):
    """Reads a snapshot, and the metrics from it, when it is collected."""

    def __init__(self, metrics: Sequence[Metric[S]], take: Callable[[], S]) -> None:
        self._metrics = metrics
        self._take = take

    def describe(self) -> list[Family]:
        """Returns nothing: no metric is read before a scrape."""
        return []

    def collect(self) -> Iterator[Family]:
        """Every metric; one that cannot be read is logged and left out."""
        snapshot = self._take()
        for metric in self._metrics:
            try:
                yield _family(metric, snapshot)
            except (CordwoodError, OSError) as error:  # the other metrics are still served
                _log.warning("%s cannot be read: %s", metric.name, error)


def _family(metric: Metric[S], snapshot: S) -> Family:
    name = metric.name
    base = name.removesuffix("_total") if metric.type is MetricType.COUNTER else name
    family = Family(base, metric.help, metric.type.value)
    for each in metric.read(snapshot):
        if isinstance(each, Value):
            family.add_sample(name, dict(each.labels), float(each.value))
        else:
            _add_times(family, each)
    return family


def _add_times(family: Family, times: Times) -> None:
    labels = dict(times.labels)
    recent = sorted(times.recent_ms)
    for quantile in QUANTILES if recent else ():
        at = min(len(recent) - 1, int(float(quantile) * len(recent)))
        family.add_sample(family.name, labels | {"quantile": quantile}, recent[at])
    family.add_sample(f"{family.name}_count", labels, float(times.happened))
    family.add_sample(f"{family.name}_sum", labels, times.total_ms)
