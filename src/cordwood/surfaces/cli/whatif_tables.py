"""The tables of `cordwood whatif`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import typer

from cordwood.queries.whatif.answer import (
    ComparedPartition,
    Total,
    Totals,
    WhatIf,
    compared_name,
    totals_of,
)
from cordwood.queries.whatif.comparison import NOW, SIDES, THEN, Overruled
from cordwood.queries.whatif.effects import Cost, How, Unread
from cordwood.surfaces.cli.answer_notes import NAMES_MAX, grouped_lines, show_notes, some_of
from cordwood.surfaces.cli.biggest import Choice, Listing, Measure
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_values import shown_setting, shown_text
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes

#: What --sort takes.
SORTS: Final = ("difference", "size", "name")
_KEY_OF_GONE: Final = {
    "segments": "segments_gone",
    "records": "records_discarded",
    "tombstones": "tombstones_discarded",
    "offsets": "offsets_gone",
}


def show_answer(answer: WhatIf, screen: Screen, choice: Choice) -> None:
    """The tables on standard output; warnings, and what could not be found out, on the screen."""
    show_notes(
        screen,
        in_use=answer.in_use,
        warnings=answer.warnings,
        left_alone=answer.left_alone,
        failed=answer.failed,
    )
    reasons = [(compared_name(each), each.reason) for each in answer.partitions if each.reason]
    for line in grouped_lines(reasons):
        screen.line(line, style="red")
    if answer.partitions:
        print_text(_summary(answer))
        typer.echo()
        _show_changes(answer)
    elif answer.broker_changes:
        _show_changes(answer)
        typer.echo("nothing that is removed changes")
    elif answer.changes:
        if any(name for changed in answer.changes.values() for name in changed):
            _show_changes(answer)
        typer.echo("of no topic whose settings change a partition could be compared")
    else:
        typer.echo("no setting of a topic here changes")
    for line in _without_effect(answer):
        print_text(line)
    if answer.partitions:
        shown = _show_partitions(answer, choice)
        _show_not_measured(answer, screen)
        _show_costs(answer, shown)
        _show_groups(answer, choice)
        _show_forecast(answer)


def _summary(answer: WhatIf) -> str:
    """A sentence about the data left on both sides."""
    total = answer.total
    difference = total.then.bytes - total.now.bytes
    topics = {each.topic for each in answer.partitions}
    changed = "changes" if len(answer.partitions) == 1 else "change"
    count = counted(len(answer.partitions), "partition")
    count += f" of {counted(len(topics), 'topic')} {changed}"
    if any(
        outcome is not None and outcome.how is How.RETENTION
        for each in answer.partitions
        for outcome in (each.now, each.then)
    ):
        count += ", compactions not counted"
    soon = _next_day(total)
    if not difference:
        return f"{count}: a cleaning leaves {_left(total.then)} of them, as it does now{soon}"
    return (
        f"{count}: a cleaning leaves {_left(total.then)} of them instead of {_left(total.now)}, "
        f"{format_bytes(abs(difference))} {'more' if difference > 0 else 'less'}{soon}"
    )


def _next_day(total: Totals) -> str:
    """Bytes that retention removes in the next day on both sides; empty if none."""
    now, then = total.now.bytes_next_24h, total.then.bytes_next_24h
    if not now and not then:
        return ""
    instead = ", as it does now" if now == then else f", instead of {format_bytes(now)}"
    return f"; in the next 24 h retention takes {format_bytes(then)} more{instead}"


def _without_effect(answer: WhatIf) -> list[str]:
    """Lines about changes that have no effect, with the reason."""
    own = [
        (each.topic, f"it has its own {each.setting}={_shown(each)} ({each.source})")
        for each in answer.overruled
    ]
    same = [
        (compared_name(each), f"no effect: {shown_text(each.no_effect)}")
        for each in answer.partitions
        if each.no_effect
    ]
    return [*grouped_lines(own), *grouped_lines(same)]


def _shown(overruled: Overruled) -> str:
    return shown_setting(overruled.setting, overruled.value)


def _show_changes(answer: WhatIf) -> None:
    """A row for each change; one for topics that change in the same way."""
    topics: dict[tuple[str, str, str], list[str]] = {}
    for topic, changed in [("(broker)", answer.broker_changes), *answer.changes.items()]:
        for name, values in changed.items():
            if name:
                topics.setdefault((name, values.now, values.then), []).append(topic)
    rows = []
    for (name, now, then), names in topics.items():
        texts = [shown_setting(name, value) or "(none)" for value in (now, then)]
        topics_named = names if len(names) <= NAMES_MAX else [some_of(names)]
        rows += [[topic, name, *texts] for topic in topics_named]
    columns = [Column("topic", is_prose=True), Column("setting"), Column("now"), Column("then")]
    print_table("Settings", columns, rows)


def _show_partitions(answer: WhatIf, choice: Choice) -> list[ComparedPartition]:
    """Prints the partitions of which both sides are known; returns those that have a row."""
    known = [each for each in answer.partitions if each.difference is not None]
    typer.echo()
    _PARTITIONS.show("After a cleaning", known, choice)
    print_text("segments, records, tombstones and offsets are those that go: now→then")
    return _PARTITIONS.split(known, choice)[0]


def _gone(title: str) -> Measure[ComparedPartition]:
    name = _KEY_OF_GONE[title]

    def text(partitions: Sequence[ComparedPartition]) -> str:
        total = totals_of(partitions)
        return f"{getattr(total.now, name):,}→{getattr(total.then, name):,}"

    return Measure(column=Column(title, is_number=True, is_optional=True), text=text)


def _left(side: Total) -> str:
    error = f" ±{format_bytes(side.bytes_error)}" if side.bytes_error else ""
    return f"{format_bytes(side.bytes)}{error}"


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"


_PARTITIONS: Final[Listing[ComparedPartition]] = Listing(
    heading="partition",
    name=compared_name,
    keys={
        "difference": lambda each: abs(each.difference.bytes) if each.difference else 0,
        "size": lambda each: each.bytes,
    },
    measures=(
        Measure(
            column=Column("size", is_number=True),
            text=lambda found: format_bytes(sum(each.bytes for each in found)),
        ),
        Measure(
            column=Column("after, now", is_number=True),
            text=lambda found: _left(totals_of(found).now),
        ),
        Measure(
            column=Column("after, then", is_number=True),
            text=lambda found: _left(totals_of(found).then),
        ),
        Measure(
            column=Column("difference", is_number=True),
            text=lambda found: _signed(
                sum(each.difference.bytes for each in found if each.difference)
            ),
        ),
        *map(_gone, _KEY_OF_GONE),
        Measure(
            column=Column("known by", is_optional=True),
            text=lambda found: _how(found[0]),
            is_summed=False,
        ),
    ),
)


def _how(partition: ComparedPartition) -> str:
    now, then = (_known_by(partition.known(side).how) for side in SIDES)
    return now if now == then else f"{now}→{then}"


def _known_by(how: How) -> str:
    return "planned, without compaction" if how is How.RETENTION else how


def _show_not_measured(answer: WhatIf, screen: Screen) -> None:
    """Prints which sizes are without a compaction, and the option that measures it."""
    names = list(dict.fromkeys([*answer.not_measured.now, *answer.not_measured.then]))
    if names:
        screen.line(
            f"a compaction of {some_of(names)} is due: what it removes on top of this takes "
            "reading all records. `cordwood whatif LOG_DIR`, on a log directory of the running "
            "broker, measures it with the extra 'spark'",
            style="yellow",
        )


def _show_costs(answer: WhatIf, shown: Sequence[ComparedPartition]) -> None:
    """Prints the costs of the compactions of the partitions that are shown."""
    rows = []
    for each in shown:
        outcomes = (each.now, each.then)
        costs = [None if outcome is None else outcome.cost for outcome in outcomes]
        if costs[0] == costs[1]:
            rows += [_cost_row(compared_name(each), "both", costs[0])] if costs[0] else []
        else:
            named = zip(SIDES, costs, strict=True)
            rows += [_cost_row(compared_name(each), side, cost) for side, cost in named if cost]
    if rows:
        numbers = ("reads", "keys", "time", "memory", "Kafka's passes")
        columns = [Column("partition"), Column("settings")]
        columns += [Column(title, is_number=True) for title in numbers]
        typer.echo()
        print_table("What the compaction takes", columns, rows)
        times = [
            f"{seconds:.1f} s {side}"
            for side, seconds in ((NOW, answer.cleaning_s.now), (THEN, answer.cleaning_s.then))
            if seconds is not None
        ]
        if times:
            print_text(f"all together, as measured here without writing: {', '.join(times)}")


def _cost_row(name: str, side: str, cost: Cost) -> list[str]:
    return [
        name,
        side,
        format_bytes(cost.bytes_read),
        f"{cost.keys:,}",
        f"{cost.seconds_least:.1f} to {cost.seconds_most:.1f} s",
        format_bytes(cost.memory_bytes),
        f"{cost.kafka_passes:,}",
    ]


def _show_groups(answer: WhatIf, choice: Choice) -> None:
    if not answer.groups:
        return
    typer.echo()
    _GROUPS.show(
        "Consumer groups that lose records they have not read",
        answer.groups,
        replace(choice, sort="lost"),
    )


def _offset(title: str, offset_of: Callable[[Unread], int]) -> Measure[Unread]:
    return Measure(
        column=Column(title, is_number=True),
        text=lambda found: f"{offset_of(found[0]):,}",
        is_summed=False,
    )


_GROUPS: Final[Listing[Unread]] = Listing(
    heading="group",
    name=lambda each: each.group,
    keys={"lost": lambda each: each.lost},
    order=", most lost first",
    measures=(
        Measure(column=Column("partition"), text=lambda found: found[0].partition, is_summed=False),
        _offset("committed", lambda each: each.committed),
        _offset("log start, then", lambda each: each.log_start_offset),
        Measure(
            column=Column("lost unread", is_number=True),
            text=lambda found: f"{sum(each.lost for each in found):,}",
        ),
    ),
)


def _show_forecast(answer: WhatIf) -> None:
    known = [each for each in answer.partitions if each.difference is not None]
    forecasts = [
        (now, then)
        for each in known
        if (now := each.known(NOW).bytes_after_days) is not None
        and (then := each.known(THEN).bytes_after_days) is not None
    ]
    if answer.days and len(forecasts) < len(known):
        typer.echo()
        print_text(
            f"without a forecast: {counted(len(known) - len(forecasts), 'partition')}; "
            "compacted, or with a history under an hour, or under a hundredth of the days ahead"
        )
    if not forecasts:
        return
    columns = [Column("day"), *(Column(title, is_number=True) for title in SIDES)]
    rows = [
        [
            f"+{day + 1}",
            *(format_bytes(sum(both[side][day] for both in forecasts)) for side in (0, 1)),
        ]
        for day in range(answer.days)
    ]
    typer.echo()
    print_table(
        f"Bytes of {counted(len(forecasts), 'partition')}, at the rate of their own history",
        columns,
        rows,
    )
