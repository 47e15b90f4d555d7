"""The metrics of the commands that write a textfile: `clean`, `verify` and `explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cordwood.cleanup.plan.report import PartitionReport, Report, Status
from cordwood.cleanup.verification.findings import has_damage
from cordwood.queries.explain.answer import Explanation, Outlook, When
from cordwood.queries.explain.outlook import outlook
from cordwood.surfaces.metrics.job_run import JobRun, run_metrics, topic_metric
from cordwood.surfaces.metrics.metric import Metric

if TYPE_CHECKING:  # it needs packages that only `cordwood verify` has to have
    from cordwood.cleanup.verification.directories import CheckedLog, Verification

_COMPACTION: Final = "compaction"

Counts = Mapping[str, float]


# ---- clean


def _clean(
    name: str, text: str, count: Callable[[PartitionReport], Counts], label: str = ""
) -> Metric[JobRun[Report]]:
    """Metrics of the partitions that were to be cleaned."""
    return topic_metric(
        f"cordwood_clean_{name}",
        text,
        lambda report: (
            (each.topic, count(each))
            for each in report.partitions
            if each.status is not Status.LEFT_ALONE
        ),
        label,
    )


def _removed_segments(each: PartitionReport) -> Counts:
    """Numbers of removed segments by the rule of retention, and of those that compaction saved."""
    counts = Counter(segment.rule for segment in each.expired)
    found: dict[str, float] = {rule.replace(" ", "_"): count for rule, count in counts.items()}
    if each.before is not None and each.after is not None:
        rolled = 1 if each.rolled_at is not None else 0
        fewer = each.before.segments + rolled - each.after.segments - len(each.expired)
        if fewer > 0 and any(asdict(each.discarded).values()):
            found[_COMPACTION] = fewer
    return found


def _discarded(each: PartitionReport) -> Counts:
    return {reason: count for reason, count in asdict(each.discarded).items() if count}


CLEAN: Final[tuple[Metric[JobRun[Report]], ...]] = (
    *run_metrics(
        "clean",
        success="1 if every partition that the last run was to clean is cleaned, 0 if one failed "
        "or none was reached.",
    ),
    _clean(
        "bytes_before",
        "Bytes of the segments of a topic before the last run.",
        lambda each: {"": each.before.bytes if each.before else 0},
    ),
    _clean(
        "bytes_after",
        "Bytes of the segments of a topic after the last run.",
        lambda each: {"": each.after.bytes if each.after else 0},
    ),
    _clean(
        "bytes_freed",
        "By how many bytes the segments of a topic are smaller after the last run.",
        lambda each: {"": each.bytes_freed},
    ),
    _clean(
        "removed_segments",
        "Segments that the last run removed, by the rule of retention: time, size, "
        "log_start_offset, or a setting of Cordwood's; or compaction.",
        _removed_segments,
        "reason",
    ),
    _clean(
        "removed_records",
        "Records that compaction discarded in the last run: superseded, tombstone, aborted, "
        "marker, unkeyed or expired. Those of segments that retention removed are not counted.",
        _discarded,
        "reason",
    ),
    _clean(
        "failed_partitions",
        "Partitions of a topic that the last run could not clean.",
        lambda each: {"": each.status in {Status.FAILED, Status.NO_SPACE}},
    ),
)


# ---- verify


def _verify(
    name: str, text: str, count: Callable[[CheckedLog], Counts], label: str = ""
) -> Metric[JobRun[Verification]]:
    return topic_metric(
        f"cordwood_verify_{name}",
        text,
        lambda result: ((each.partition.topic, count(each)) for each in result.logs),
        label,
    )


def _findings(result: Verification) -> Iterator[tuple[str, Counts]]:
    """Findings by rule; those of no partition have the topic ''."""
    yield "", Counter(each.rule.code for each in result.findings)
    for log in result.logs:
        yield log.partition.topic, Counter(each.rule.code for each in log.findings)


VERIFY: Final[tuple[Metric[JobRun[Verification]], ...]] = (
    *run_metrics("verify", success="1 if nothing was damaged, 0 if something is or was not read."),
    _verify(
        "records",
        "Records of a topic that the last run has read.",
        lambda log: {"": log.facts.records if log.facts else 0},
    ),
    _verify(
        "damaged_partitions",
        "Partitions of a topic in which something is damaged.",
        lambda log: {"": has_damage(log.findings)},
    ),
    _verify(
        "unchecked_partitions",
        "Partitions of a topic that the last run could not check.",
        lambda log: {"": log.skipped is not None},
    ),
    topic_metric(
        "cordwood_verify_findings",
        "Findings by rule, of all levels; those of a log directory's own files have no topic.",
        _findings,
        "rule",
    ),
)


# ---- explain


def _explain(
    name: str, text: str, count: Callable[[Outlook, When], float]
) -> Metric[JobRun[Explanation]]:
    def values(answer: Explanation) -> Iterator[tuple[str, Counts]]:
        for each in answer.partitions:
            found = outlook([each], now_ms=answer.now_ms)
            yield each.topic, {str(when): count(found, when) for when in When}

    return topic_metric(f"cordwood_explain_{name}", text, values, "when")


EXPLAIN: Final[tuple[Metric[JobRun[Explanation]], ...]] = (
    *run_metrics("explain", success="1 if every partition could be read, 0 if one could not."),
    _explain(
        "bytes",
        "Bytes of a topic by when retention removes them if nothing is appended: now, next_24h, "
        "later, stays.",
        lambda found, when: found.part(when).bytes,
    ),
    _explain(
        "segments",
        "Segments of a topic, in the same way.",
        lambda found, when: found.part(when).segments,
    ),
)

JOBS: Final[Mapping[str, Sequence[Metric[JobRun[Any]]]]] = {
    "clean": CLEAN,
    "verify": VERIFY,
    "explain": EXPLAIN,
}
"""The metrics by command."""
