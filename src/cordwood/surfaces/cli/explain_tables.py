"""Tables of `cordwood explain`: a timeline and a table of segments for each log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import groupby, pairwise
from typing import Any, Final

import typer

from cordwood.cleanup.rules.blockers import Blocker
from cordwood.configs.levels import Origin
from cordwood.queries.explain.answer import (
    ExplainedLog,
    ExplainedSegment,
    Explanation,
    Section,
    log_name,
)
from cordwood.queries.explain.log_facts import OpenTransaction
from cordwood.surfaces.cli.answer_notes import grouped_lines, show_notes
from cordwood.surfaces.cli.biggest import Choice
from cordwood.surfaces.cli.explain_summary import LISTING, logs_of, show_summary
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_values import shown_setting, shown_text
from cordwood.surfaces.cli.tables import Column, output_width, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, format_duration, format_moment

_WIDTH: Final = 100
_WIDTH_MAX: Final = 160
#: Marks of a timeline, the most important first: a cell of several segments shows the first.
_MARKS: Final = {
    "D": "deletable",
    "!": "blocked",
    "u": "not cleanable yet",
    "d": "dirty",
    "c": "clean",
    "k": "kept",
    "A": "active",
}
_SECTION_MARKS: Final = {Section.UNCLEANABLE: "u", Section.DIRTY: "d", Section.CLEAN: "c"}
_BLOCKING: Final = {"hold", "future-timestamp", "older-segment", "high-watermark", "group-guard"}

_SEGMENTS: Final = (
    Column("segment"),
    Column("count", is_number=True),
    Column("size", is_number=True),
    Column("newest record", is_number=True),
    Column("state"),
    Column("goes", is_number=True),
    Column("files gone by", is_number=True),
    Column("why", is_prose=True),
)
_RECORDS: Final = (
    Column("record"),
    Column("timestamp", is_number=True),
    Column("segment", is_number=True),
    Column("state"),
    Column("gone by", is_number=True),
    Column("why", is_prose=True),
)


class Detail(Enum):
    """Detail in which a partition is shown."""

    ROW = "a row"
    SEGMENTS = "its segments, those alike in one row"
    EVERY_SEGMENT = "a row for every segment"

    @classmethod
    def of(cls, *, segments: bool, all_segments: bool) -> Detail:
        """The detail that --segments and --all-segments ask for."""
        if all_segments:
            return cls.EVERY_SEGMENT
        return cls.SEGMENTS if segments else cls.ROW


def show(answer: Explanation, screen: Screen, choice: Choice, detail: Detail) -> None:
    """Prints the answer: records, if they were asked for, or else a summary and the largest logs.

    The segments are shown if they are asked for, or if there is one partition alone.
    """
    show_notes(
        screen,
        in_use=answer.in_use,
        warnings=answer.warnings,
        left_alone=answer.left_alone,
        failed=answer.failed,
    )
    if answer.records is not None:
        _show_records(answer)
        return
    partitions = answer.partitions
    if not partitions:
        print_text("No partition is explained.")
        return
    if len(partitions) != 1:
        show_summary(answer, choice)
        if detail is Detail.ROW:
            _show_warnings(partitions, screen)
            return
        shown = {log.name for log in LISTING.split(logs_of(answer), choice)[0]}
        partitions = [each for each in partitions if log_name(each) in shown]
    for number, partition in enumerate(partitions):
        if number or len(answer.partitions) != 1:
            typer.echo()
        _show_log(partition, answer.now_ms, screen, detail)


def _show_warnings(partitions: Sequence[ExplainedLog], screen: Screen) -> None:
    texts = [
        (log_name(each), f"warning: {warning}") for each in partitions for warning in each.warnings
    ]
    for line in grouped_lines(texts):
        screen.line(line, style="yellow")


def _show_records(answer: Explanation) -> None:
    if not answer.records:
        print_text(answer.not_found or "")
        return
    rows = [
        [
            f"{each.topic}:{each.partition}:{each.offset}",
            format_moment(each.timestamp),
            str(each.segment),
            each.state,
            format_moment(each.gone_by_ms) if each.gone_by_ms is not None else "no limit",
            shown_text(each.text),
        ]
        for each in answer.records
    ]
    print_table("Records", _RECORDS, rows)


def _show_log(partition: ExplainedLog, now_ms: int, screen: Screen, detail: Detail) -> None:
    _show_warnings([partition], screen)
    segments = partition.segments
    print_text(
        f"{log_name(partition)}: cleanup.policy={partition.policy}, "
        f"{counted(len(segments), 'segment')}, "
        f"{format_bytes(partition.size_bytes)}, offsets {partition.log_start_offset} to "
        f"{partition.log_end_offset} (high watermark {partition.high_watermark}, last "
        f"stable offset {partition.last_stable_offset})"
    )
    for line in _setting_lines(partition.settings):
        print_text(line, indent="  ")
    _show_groups(partition, screen)
    _show_compaction(partition, now_ms)
    _show_timeline(segments)
    groups: list[list[ExplainedSegment]] = (
        [[each] for each in segments]
        if detail is Detail.EVERY_SEGMENT
        else [list(group) for _, group in groupby(segments, key=_alike)]
    )
    print_table("  Segments", _SEGMENTS, [_row(group, now_ms) for group in groups])


def _setting_lines(settings: Mapping[str, Origin]) -> list[str]:
    """The settings as they were given, with the levels; those of one level on one line."""
    by_level: dict[str, list[str]] = {}
    for setting in settings.values():
        name = setting.key
        where = str(setting.level)
        if setting.level != "default":
            where += f" ({setting.source})"
        by_level.setdefault(where, []).append(f"{name}={shown_setting(name, setting.value)}")
    return [f"{where}: {', '.join(texts)}" for where, texts in by_level.items()]


def _show_groups(partition: ExplainedLog, screen: Screen) -> None:
    """The groups that the log waits for, and what they have lost."""
    for each in partition.groups:
        lag = "" if each.lag is None else f", lag {each.lag}"
        print_text(f"{each.text}{lag}", indent="  ")
    for loss in partition.losses:
        lost = "lost" if loss.known else "may have lost"
        screen.line(
            f"  group {loss.group} {lost} offsets {loss.first_offset} to "
            f"{loss.last_offset}, at most {loss.records_at_most} records, by "
            f"{loss.setting} at {format_moment(loss.at_ms)}",
            style="red",
        )


def _show_compaction(partition: ExplainedLog, now_ms: int) -> None:
    compaction = partition.compaction
    if compaction is None:
        return
    due = "due now" if compaction.due else f"due {_when(compaction.due_ms, now_ms)}"
    print_text(
        f"  compaction: {due}; dirty ratio {compaction.dirty_ratio:.4g}, "
        f"{format_bytes(compaction.clean_bytes)} clean, "
        f"{format_bytes(compaction.cleanable_bytes)} dirty, offsets "
        f"{compaction.first_dirty_offset} to {compaction.first_uncleanable_offset}"
    )
    for blocker in compaction.blockers:
        text = f"{blocker.code}: {shown_text(blocker.text)}{_until(blocker, now_ms)}"
        print_text(text, indent="    ")
        if blocker.code == "last-stable-offset":
            for each in partition.open_transactions:
                print_text(_transaction(each, now_ms), indent="      ")


def _transaction(each: OpenTransaction, now_ms: int) -> str:
    named = "" if each.transactional_id is None else f" ({each.transactional_id!r})"
    since = "" if each.started_ms is None else f", began {_ago(each.started_ms, now_ms)}"
    return (
        f"open transaction of producer {each.producer_id}{named} from offset "
        f"{each.start_offset}{since}"
    )


def _show_timeline(segments: Sequence[ExplainedSegment]) -> None:
    width = min(output_width() or _WIDTH, _WIDTH_MAX) - 4
    marks = [_mark(each) for each in segments]
    count = len(marks)
    if count > width:
        order = list(_MARKS)
        bounds = [number * count // width for number in range(width + 1)]
        cells = [marks[a:b] for a, b in pairwise(bounds)]
        marks = [min(cell, key=order.index) for cell in cells]
    legend = ", ".join(f"{mark} {text}" for mark, text in _MARKS.items() if mark in marks)
    print_text(f"{''.join(marks)}  oldest to newest: {legend}", indent="  ")


def _mark(segment: ExplainedSegment) -> str:
    if segment.deletable:
        return "D"
    if segment.section is Section.ACTIVE:
        return "A"
    if any(each.code in _BLOCKING for each in segment.blockers):
        return "!"
    return _SECTION_MARKS.get(segment.section, "k")


def _alike(segment: ExplainedSegment) -> tuple[Any, ...]:
    """Segments with the same value are shown in one row."""
    blockers = segment.blockers
    return (
        segment.section,
        segment.deletable,
        segment.rule,
        tuple(each.code for each in blockers),
        segment.goes_ms is None,
    )


def _row(group: Sequence[ExplainedSegment], now_ms: int) -> list[str]:
    first, last = group[0], group[-1]
    name = str(first.base_offset)
    if len(group) > 1:
        name = f"{name} … {last.base_offset}"
    state = "deletable" if first.deletable else "kept"
    if first.section:
        state = f"{state}, {first.section}"
    return [
        name,
        str(len(group)),
        format_bytes(sum(each.size_bytes for each in group)),
        format_moment(max(each.largest_timestamp for each in group)),
        state,
        "now" if first.deletable else _span([each.goes_ms for each in group], now_ms),
        format_moment(last.gone_by_ms) if last.gone_by_ms is not None else "",
        shown_text(first.reason if first.deletable else _reasons(first)),
    ]


def _reasons(segment: ExplainedSegment) -> str:
    """The blockers of a segment, in words; the table's heading has the policy."""
    blockers = [each for each in segment.blockers if each.code != "policy"]
    if not blockers:
        return "the next compaction rewrites it"
    return "; ".join(f"{each.code}: {each.text}" for each in blockers)


def _span(moments: Sequence[int | None], now_ms: int) -> str:
    """The times at which the first and the last of some segments go."""
    first, last = moments[0], moments[-1]
    if first is None or last is None:
        return "no limit"
    if first == last:
        return _when(first, now_ms)
    return f"{_when(first, now_ms)} … {_when(last, now_ms)}"


def _when(moment_ms: int | None, now_ms: int) -> str:
    if moment_ms is None:
        return "at no known time"
    return f"in {format_duration(max(0, moment_ms - now_ms))}" if moment_ms > now_ms else "now"


def _until(blocker: Blocker, now_ms: int) -> str:
    until_ms = blocker.until_ms
    return "" if until_ms is None else f" ({_when(until_ms, now_ms)}, {format_moment(until_ms)})"


def _ago(then_ms: int, now_ms: int) -> str:
    return f"{format_duration(max(0, now_ms - then_ms))} ago"
