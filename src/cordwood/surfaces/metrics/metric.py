"""A row of the table of metrics, and its name in Prometheus.

Names follow the rules of Prometheus' JMX exporter (`kafka-2_0_0.yml`) and Strimzi
(`kafka-metrics.yaml`), so that dashboards made for them work here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

_MBEAN = re.compile(r"(?P<domain>[\w.]+):type=(?P<type>[\w-]+)(?:,name=(?P<name>[\w-]+))?")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]")


class MetricType(enum.Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class Value(NamedTuple):
    """One number, with the labels that identify it."""

    labels: Mapping[str, str]
    value: float


class Times(NamedTuple):
    """Number of events, their total duration, and each of the last durations; in ms."""

    labels: Mapping[str, str]
    happened: int
    total_ms: float
    recent_ms: Sequence[float]


#: What a metric is read from: the snapshot of any node, that of a broker, or a run of a command.
S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Generic[S_contra]):
    """One metric; one that is read from a `NodeSnapshot` (`snapshot`) is one of every node.

    `mbean` is Kafka's; `attribute` is the attribute of an MBean that has no `name`. Cordwood's own
    metrics have no `mbean`. `labels` are the labels of its values. `name` is given if the rules
    do not produce one.
    """

    type: MetricType
    help: str
    read: Callable[[S_contra], Iterable[Value | Times]]
    mbean: str = ""
    attribute: str = ""
    labels: tuple[str, ...] = ()
    given_name: str = ""

    @property
    def name(self) -> str:
        """The name in Prometheus; counters end in `_total`."""
        return self.given_name or prometheus_name(self.mbean)

    @property
    def kafka_name(self) -> str:
        """The MBean with its tags and attribute; '' for one of our own."""
        tags = "".join(f",{label}=*" for label in self.labels) if self.mbean else ""
        return f"{self.mbean}{tags}" + (f" {self.attribute}" if self.attribute else "")


def single(
    mbean: str,
    text: str,
    number: Callable[[S], float],
    metric_type: MetricType = MetricType.GAUGE,
    *,
    attribute: str = "",
    given_name: str = "",
) -> Metric[S]:
    """A metric of one number, without labels."""
    return Metric(
        mbean=mbean,
        attribute=attribute,
        type=metric_type,
        help=text,
        read=lambda source: [Value({}, number(source))],
        given_name=given_name,
    )


def prometheus_name(mbean: str) -> str:
    """The name of an MBean's value: `PerSec` becomes `_total`, `Percent` becomes `_percent`.

    Args:
        mbean: domain, type and name, such as `kafka.log:type=LogManager,name=OfflineLog...`.
    """
    parts = _MBEAN.match(mbean)
    assert parts is not None, mbean
    name = parts["name"] or ""
    for ending, instead in (("PerSec", "_total"), ("Percent", "_percent")):
        before, found, _ = name.rpartition(ending)
        if found:
            name = before + instead
            break
    domain = parts["domain"].replace(".", "_")
    return _NOT_IN_NAMES.sub("_", f"{domain}_{parts['type']}_{name}".lower())
