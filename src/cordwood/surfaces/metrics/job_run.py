"""Metrics of one run of a command, for the textfile collector of Prometheus' node exporter.

The file has the state after the last run: it is written whether the run succeeded or not, and the
next run replaces it. Several jobs may each have a file, since their `log_dirs` differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from cordwood.surfaces.metrics.collector import MetricsCollector
from cordwood.surfaces.metrics.metric import Metric, MetricType, Value

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun(Generic[R]):
    """A run that has ended; times in seconds since the epoch.

    `log_dirs` are the given directories, comma separated. `result` is None if the run failed before
    it had one; `succeeded_s` is when the last run before this one succeeded, 0 for never.
    """

    log_dirs: str
    ended_s: float
    duration_s: float
    succeeded_s: float
    is_success: bool
    result: R | None


def run_metrics(command: str, *, success: str) -> tuple[Metric[JobRun[Any]], ...]:
    """Metrics of every run: its end, the last success, the result, the duration.

    Args:
        command: whose run.
        success: the help of the metric `success`.
    """
    rows: tuple[tuple[str, str, Callable[[JobRun[Any]], float]], ...] = (
        (
            "last_run_timestamp_seconds",
            "When the last run ended, in seconds since the epoch.",
            lambda run: run.ended_s,
        ),
        (
            "last_success_timestamp_seconds",
            "When the last run ended that succeeded; 0 if none has.",
            lambda run: run.ended_s if run.is_success else run.succeeded_s,
        ),
        ("success", success, lambda run: run.is_success),
        ("duration_seconds", "How long the last run took.", lambda run: run.duration_s),
    )
    return tuple(_of_run(command, *row) for row in rows)


def _of_run(
    command: str, name: str, text: str, value: Callable[[JobRun[Any]], float]
) -> Metric[JobRun[Any]]:
    return Metric(
        given_name=f"cordwood_{command}_{name}",
        type=MetricType.GAUGE,
        labels=("log_dirs",),
        help=text,
        read=lambda run: [Value({"log_dirs": run.log_dirs}, value(run))],
    )


def topic_metric(
    given_name: str,
    text: str,
    values: Callable[[R], Iterable[tuple[str, Mapping[str, float]]]],
    label: str = "",
) -> Metric[JobRun[R]]:
    """A metric of topics; the values of a topic are summed up.

    Args:
        given_name: of the metric.
        text: its help.
        values: of a result, pairs of a topic and its values by the label, '' without a label.
        label: beside `log_dirs` and `topic`.
    """

    def read(run: JobRun[R]) -> Iterator[Value]:
        totals: dict[str, Counter[str]] = {}
        for topic, found in () if run.result is None else values(run.result):
            totals.setdefault(topic, Counter()).update(found)
        for topic, total in sorted(totals.items()):
            labels = {"log_dirs": run.log_dirs, "topic": topic}
            for key, value in sorted(total.items()):
                yield Value(labels | ({label: key} if label else {}), value)

    return Metric(
        given_name=given_name,
        type=MetricType.GAUGE,
        labels=("log_dirs", "topic", *([label] if label else [])),
        help=text,
        read=read,
    )


def last_success_s(file: Path, command: str, log_dirs: str) -> float:
    """The time of the last success for these directories by the last run's file; 0 for none."""
    name = f"cordwood_{command}_last_success_timestamp_seconds"
    try:
        families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 0.0
    for family in families:
        for sample in family.samples:
            if sample.name == name and sample.labels.get("log_dirs") == log_dirs:
                return float(sample.value)
    return 0.0


def write_textfile(file: Path, metrics: Sequence[Metric[JobRun[R]]], run: JobRun[R]) -> None:
    """Replaces the file at once: a reader finds the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics, lambda: run))
    write_to_textfile(str(file), registry)
