"""Final output of `cordwood clean`: a summary, the largest partitions, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from cordwood.cleanup.plan.report import PartitionReport, Report, Status
from cordwood.surfaces.cli.answer_notes import grouped_lines, show_notes
from cordwood.surfaces.cli.biggest import Choice, Listing, Measure
from cordwood.surfaces.cli.clean_estimate import estimated_line, with_error
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_values import shown_sizes
from cordwood.surfaces.cli.tables import Column, print_text
from cordwood.surfaces.cli.values import format_bytes

#: What --sort takes.
SORTS: Final = ("reduction", "size", "name")


def show_report(report: Report, screen: Screen, choice: Choice) -> None:
    """The summary and a table on standard output; what failed, and warnings, on the screen."""
    warnings = [shown_sizes(warning) for warning in report.warnings]
    show_notes(screen, in_use=report.in_use, warnings=warnings)
    print_text(_summary(report))
    shown = [
        partition
        for partition in report.partitions
        if partition.status is not Status.UNCHANGED and partition.before is not None
    ]
    if shown:
        _LISTING.show("Plan" if report.dry_run else "Cleaned", shown, choice)
    _show_rest(report, screen)
    if report.engine:
        facts = report.engine
        print_text(
            f"Spark {facts['master']}, {facts['slots']} tasks at once, JVM heap at most "
            f"{facts['jvm_heap']}"
        )


def _summary(report: Report) -> str:
    """A sentence: partitions by result, and bytes freed by each rule, or to be freed."""
    freed = sum(p.bytes_freed for p in report.partitions)
    counts = {status: sum(p.status is status for p in report.partitions) for status in Status}
    words = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)
    if report.measured:
        result = f"it would free {format_bytes(freed)}, measured in {report.timing.total:.1f} s"
    elif report.dry_run:
        what = "free" if report.trash_on_disk is None else "move to the trash"
        result = f"retention would {what} {format_bytes(freed)}{_by_rule(report, freed)}"
        result += estimated_line(report)
        if report.bytes_next_24h:
            result += (
                f"; in the next 24 h retention takes {format_bytes(report.bytes_next_24h)} more"
            )
    elif report.trash_on_disk is not None:
        result = (
            f"{format_bytes(freed)} less in the logs in {report.timing.total:.1f} s: what was "
            f"removed is in {report.trash_on_disk}, on the same disk: emptying it frees it"
        )
    else:
        result = (
            f"freed {format_bytes(freed)}{_by_rule(report, freed)} in {report.timing.total:.1f} s"
        )
    size = sum(p.before.bytes for p in report.partitions if p.before is not None)
    return f"{words or 'no partitions'}; {result}; the logs had {format_bytes(size)}"


def _by_rule(report: Report, freed: int) -> str:
    """Bytes by each rule of retention, and by compaction; empty without retention."""
    sizes: Counter[str] = Counter()
    is_planned = report.dry_run and not report.measured
    for found in report.plan if is_planned else report.partitions:
        for each in found.expired:
            sizes[each.rule] += each.bytes
    rest = freed - sizes.total()
    if sizes and rest > 0 and not is_planned:
        sizes["compaction"] = rest
    texts = [f"{rule} {format_bytes(size)}" for rule, size in sizes.most_common()]
    return f" ({', '.join(texts)})" if texts else ""


# ---- the table


def _before(partition: PartitionReport) -> int:
    return 0 if partition.before is None else partition.before.bytes


def _reduction(partition: PartitionReport) -> int:
    """Bytes that go, as far as known: by retention alone where a compaction is not estimated."""
    if partition.bytes_left is None:
        return partition.bytes_freed
    return _before(partition) - partition.bytes_left


def _is_open(partition: PartitionReport) -> bool:
    """Whether it is unknown how much a compaction leaves."""
    return partition.is_compaction_planned and partition.bytes_left is None


def _after_text(partitions: Sequence[PartitionReport]) -> str:
    """The size that is left, which may be an estimate; empty if it is not known."""
    if any(map(_is_open, partitions)):
        return ""
    left = sum(_before(each) - _reduction(each) for each in partitions)
    return _about(partitions) + format_bytes(left)


def _about(partitions: Sequence[PartitionReport]) -> str:
    """The mark of an estimate; empty if all is known."""
    estimates = [each.estimate for each in partitions if each.estimate is not None]
    return "~" if any(not each.is_exact for each in estimates) else ""


def _reduction_text(partitions: Sequence[PartitionReport]) -> str:
    if any(map(_is_open, partitions)):
        least = sum(map(_reduction, partitions))
        return f"≥{format_bytes(least)}" if least else ""
    error = sum(each.estimate.error**2 for each in partitions if each.estimate is not None) ** 0.5
    return _about(partitions) + with_error(sum(map(_reduction, partitions)), error)


def _records(partitions: Sequence[PartitionReport]) -> str:
    """The numbers of records that go; empty if they were not counted."""
    counts = []
    for each in partitions:
        if each.before is not None and each.before.records is not None:
            if each.after is not None and each.after.records is not None:
                counts.append(each.before.records - each.after.records)
        elif each.estimate is not None:
            counts.append(each.estimate.records_discarded)
    return f"{_about(partitions)}{sum(counts):,}" if counts else ""


def _segments(partitions: Sequence[PartitionReport]) -> str:
    before = sum(0 if each.before is None else each.before.segments for each in partitions)
    after = [each.after.segments for each in partitions if each.after is not None]
    return f"{before:,}→{sum(after):,}" if after else f"{before:,}"


_LISTING: Final[Listing[PartitionReport]] = Listing(
    heading="partition",
    name=lambda each: f"{each.topic}-{each.partition}",
    keys={"reduction": _reduction, "size": _before},
    measures=(
        Measure(
            column=Column("policy", is_optional=True),
            text=lambda each: each[0].policy,
            is_summed=False,
        ),
        Measure(
            column=Column("status", is_optional=True),
            text=lambda each: str(each[0].status),
            is_summed=False,
        ),
        Measure(column=Column("segments", is_number=True, is_optional=True), text=_segments),
        Measure(
            column=Column("before", is_number=True),
            text=lambda each: format_bytes(sum(map(_before, each))),
        ),
        Measure(
            column=Column("after", is_number=True),
            text=_after_text,
        ),
        Measure(column=Column("reduction", is_number=True), text=_reduction_text),
        Measure(column=Column("records", is_number=True), text=_records),
    ),
)


def _show_rest(report: Report, screen: Screen) -> None:
    warnings: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    failed: list[tuple[str, str]] = []
    for partition in report.partitions:
        name = f"{partition.topic}-{partition.partition}"
        warnings += [(name, f"warning: {warning}") for warning in partition.warnings]
        if partition.status not in {Status.CLEANED, Status.UNCHANGED, Status.PLANNED}:
            found = failed if partition in report.failed else others
            found.append((name, f"{partition.status}: {partition.reason}"))
    for lines, style in ((warnings, "yellow"), (others, None), (failed, "red")):
        for line in grouped_lines(lines):
            screen.line(line, style=style)
    if any(partition.status is Status.NO_SPACE for partition in report.partitions):
        screen.line(
            "no space: nothing is lost, and replaced segments are kept. Free some space on the "
            "full disk, or raise --max-extra-bytes if that limit was too small, and "
            "run the same command again: it continues from there"
        )
