"""Metrics of one run of `cordwood clean`, for the textfile collector of Prometheus' node exporter.

The file has the state after the last run: it is written whether the run succeeded or not, and the
next run replaces it. Several jobs may each have a file, since their `log_dirs` differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from cordwood.cleanup.report import PartitionReport, Report, Status
from cordwood.surfaces.metrics.collector import MetricsCollector
from cordwood.surfaces.metrics.metric import Kind, Metric, Value

_COMPACTION: Final = "compaction"
_LAST_SUCCESS: Final = "cordwood_clean_last_success_timestamp_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRun:
    """A run that has ended; times in seconds since the epoch.

    `log_dirs` are the given directories, comma separated. `report` is None if the run failed before
    it had one; `succeeded_s` is when the last run succeeded, 0 for never.
    """

    log_dirs: str
    ended_s: float
    duration_s: float
    succeeded_s: float
    report: Report | None

    @property
    def is_success(self) -> bool:
        """Whether every partition that was to be cleaned is."""
        return self.report is not None and not self.report.failed

    @property
    def partitions(self) -> list[PartitionReport]:
        """Those that were to be cleaned."""
        if self.report is None:
            return []
        return [each for each in self.report.partitions if each.status is not Status.LEFT_ALONE]


def _run(name: str, text: str, value: Callable[[CleanRun], float]) -> Metric[CleanRun]:
    return Metric(
        given_name=f"cordwood_clean_{name}",
        kind=Kind.GAUGE,
        labels=("log_dirs",),
        help=text,
        read=lambda run: [Value({"log_dirs": run.log_dirs}, value(run))],
    )


def _topic(
    name: str,
    text: str,
    count: Callable[[PartitionReport], dict[str, float]],
    label: str = "",
) -> Metric[CleanRun]:
    """A sum over the partitions of each topic; `count` has values by the label, '' for none."""

    def read(run: CleanRun) -> Iterator[Value]:
        totals: dict[str, Counter[str]] = {}
        for each in run.partitions:
            totals.setdefault(each.topic, Counter()).update(count(each))
        for topic, values in sorted(totals.items()):
            labels = {"log_dirs": run.log_dirs, "topic": topic}
            for key, value in sorted(values.items()):
                yield Value(labels | ({label: key} if label else {}), value)

    return Metric(
        given_name=f"cordwood_clean_{name}",
        kind=Kind.GAUGE,
        labels=("log_dirs", "topic", *([label] if label else [])),
        help=text,
        read=read,
    )


def _removed_segments(each: PartitionReport) -> dict[str, float]:
    """Segments by the rule of retention that took them, and by which compaction has fewer."""
    counts = Counter(str(segment["rule"]) for segment in each.expired)
    found: dict[str, float] = {rule.replace(" ", "_"): count for rule, count in counts.items()}
    if each.before is not None and each.after is not None:
        rolled = 1 if each.rolled_at is not None else 0
        fewer = each.before.segments + rolled - each.after.segments - len(each.expired)
        if fewer > 0 and any(asdict(each.discarded).values()):
            found[_COMPACTION] = fewer
    return found


def _discarded(each: PartitionReport) -> dict[str, float]:
    return {reason: count for reason, count in asdict(each.discarded).items() if count}


CLEAN: Final[tuple[Metric[CleanRun], ...]] = (
    _run(
        "last_run_timestamp_seconds",
        "When the last run ended, in seconds since the epoch.",
        lambda run: run.ended_s,
    ),
    _run(
        "last_success_timestamp_seconds",
        "When the last run ended that succeeded; 0 if none has.",
        lambda run: run.ended_s if run.is_success else run.succeeded_s,
    ),
    _run(
        "success",
        "1 if every partition that the last run was to clean is cleaned, 0 if one failed or none "
        "was reached.",
        lambda run: run.is_success,
    ),
    _run("duration_seconds", "How long the last run took.", lambda run: run.duration_s),
    _topic(
        "bytes_before",
        "Bytes of the segments of a topic before the last run.",
        lambda each: {"": each.before.bytes if each.before else 0},
    ),
    _topic(
        "bytes_after",
        "Bytes of the segments of a topic after the last run.",
        lambda each: {"": each.after.bytes if each.after else 0},
    ),
    _topic(
        "bytes_freed",
        "By how many bytes the segments of a topic are smaller after the last run.",
        lambda each: {"": each.bytes_freed},
    ),
    _topic(
        "removed_segments",
        "Segments that the last run removed, by the rule of retention: time, size, "
        "log_start_offset, or a setting of Cordwood's; or compaction.",
        _removed_segments,
        "reason",
    ),
    _topic(
        "removed_records",
        "Records that compaction discarded in the last run: superseded, tombstone, aborted, "
        "marker, unkeyed or expired. Those of segments that retention removed are not counted.",
        _discarded,
        "reason",
    ),
    _topic(
        "failed_partitions",
        "Partitions of a topic that the last run could not clean.",
        lambda each: {"": each.status in {Status.FAILED, Status.NO_SPACE}},
    ),
)


def last_success_s(file: Path, log_dirs: str) -> float:
    """When a run of these directories succeeded, by the file of the last one; 0 if it has none."""
    try:
        families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 0.0
    for family in families:
        for sample in family.samples:
            if sample.name == _LAST_SUCCESS and sample.labels.get("log_dirs") == log_dirs:
                return float(sample.value)
    return 0.0


def write_textfile(file: Path, run: CleanRun) -> None:
    """Replaces the file at once: a reader finds the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(CLEAN, lambda: run))
    write_to_textfile(str(file), registry)
