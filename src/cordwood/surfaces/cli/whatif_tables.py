"""The tables of `cordwood whatif`."""

from __future__ import annotations

import typer

from cordwood.insight.compared_cleanings import Comparison
from cordwood.insight.whatif import Outcome
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.values import format_bytes
from cordwood.surfaces.cli.whatif_answer import SIDES, Answer, total_of


def show_answer(answer: Answer, screen: Screen) -> None:
    """The tables on standard output; warnings, and what could not be found out, on the screen."""
    comparison = answer.comparison
    for each in comparison.in_use:
        screen.line(
            f"process {each['pid']} uses {each['log_dir']}, a running broker or a cleaning: this "
            "is a snapshot of its files at one moment",
            style="yellow",
        )
    for warning in answer.warnings:
        screen.line(f"warning: {warning}", style="yellow")
    for report in comparison.left_alone:
        screen.line(f"{report.topic}-{report.partition}: left alone: {report.reason}")
    for compared in comparison.partitions:
        if compared.reason:
            screen.line(f"{compared.name}: {compared.reason}", style="red")
    if not comparison.partitions:
        typer.echo("no setting of a topic here changes")
        return
    _show_changes(comparison)
    _show_partitions(comparison)
    _show_costs(answer)
    _show_groups(answer)
    _show_forecast(answer)


def _show_changes(comparison: Comparison) -> None:
    rows = [
        [topic, name, now or "(none)", then or "(none)"]
        for topic, changed in comparison.changes.items()
        for name, (now, then) in changed.items()
        if name
    ]
    columns = [Column("topic"), Column("setting"), Column("now"), Column("then")]
    print_table("Settings", columns, rows)


def _show_partitions(comparison: Comparison) -> None:
    columns = [
        Column("partition"),
        *(
            Column(title, is_number=True)
            for title in ("size", "after, now", "after, then", "difference")
        ),
        *(Column(title, is_number=True) for title in ("segments", "records", "tombstones")),
        Column("offsets", is_number=True),
        Column("known by"),
    ]
    rows = []
    for each in comparison.partitions:
        now, then = each.now, each.then
        if now is None or then is None:
            continue
        size = each.view.size_bytes
        rows.append([each.name, *_cells(size, now, then), _how(now, then)])
    total = [total_of(comparison.partitions, side) for side in SIDES]
    if len(rows) > 1:
        size = sum(
            each.view.size_bytes
            for each in comparison.partitions
            if each.now is not None and each.then is not None
        )
        rows.append(["total", *_cells(size, _Sums(total[0]), _Sums(total[1])), ""])
    typer.echo()
    print_table("After a cleaning", columns, rows)
    typer.echo("segments, records, tombstones and offsets are those that go: now→then")


class _Sums:
    """Totals with the attributes of an `Outcome`."""

    def __init__(self, values: dict[str, int]) -> None:
        self.bytes = values["bytes"]
        self.segments_gone = values["segments_gone"]
        self.records_discarded = values["records_discarded"]
        self.tombstones_discarded = values["tombstones_discarded"]
        self.offsets_gone = values["offsets_gone"]


def _cells(size: int, now: Outcome | _Sums, then: Outcome | _Sums) -> list[str]:
    def both(before: int, after: int) -> str:
        return f"{before:,}→{after:,}"

    return [
        format_bytes(size),
        format_bytes(now.bytes),
        format_bytes(then.bytes),
        _signed(then.bytes - now.bytes),
        both(now.segments_gone, then.segments_gone),
        both(now.records_discarded, then.records_discarded),
        both(now.tombstones_discarded, then.tombstones_discarded),
        both(now.offsets_gone, then.offsets_gone),
    ]


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"


def _how(now: Outcome, then: Outcome) -> str:
    return str(now.how) if now.how is then.how else f"{now.how}→{then.how}"


def _show_costs(answer: Answer) -> None:
    rows = [
        [
            name,
            side,
            format_bytes(cost.bytes_read),
            f"{cost.keys:,}",
            f"{cost.seconds_least:.1f} to {cost.seconds_most:.1f} s",
            format_bytes(cost.memory_bytes),
            f"{cost.kafka_passes:,}",
        ]
        for side, costs in answer.costs.items()
        for name, cost in costs.items()
    ]
    if rows:
        numbers = ("reads", "keys", "time", "memory", "Kafka's passes")
        columns = [Column("partition"), Column("settings")]
        columns += [Column(title, is_number=True) for title in numbers]
        typer.echo()
        print_table("What the compaction takes", columns, rows)


def _show_groups(answer: Answer) -> None:
    if not answer.unread:
        return
    columns = [Column("group"), Column("partition")]
    columns += [
        Column(title, is_number=True) for title in ("committed", "log start, then", "lost unread")
    ]
    rows = [
        [
            each.group,
            each.partition,
            f"{each.committed:,}",
            f"{each.log_start_offset:,}",
            f"{each.lost:,}",
        ]
        for each in answer.unread
    ]
    typer.echo()
    print_table("Consumer groups that lose records they have not read", columns, rows)


def _show_forecast(answer: Answer) -> None:
    now, then = (answer.forecasts.get(side, {}) for side in SIDES)
    names = [name for name in now if name in then]
    if not names:
        return
    columns = [Column("day"), *(Column(title, is_number=True) for title in SIDES)]
    rows = [
        [
            f"+{day + 1}",
            format_bytes(sum(now[name][day] for name in names)),
            format_bytes(sum(then[name][day] for name in names)),
        ]
        for day in range(answer.days)
    ]
    typer.echo()
    print_table(
        f"Bytes of {len(names)} partitions, at the rate of their own history", columns, rows
    )
