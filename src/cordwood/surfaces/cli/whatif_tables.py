"""The tables of `cordwood whatif`, from the document that --json prints."""

from __future__ import annotations

from typing import Any, Final

import typer

from cordwood.insight.comparison import NOW, SIDES, THEN
from cordwood.insight.whatif import How
from cordwood.surfaces.cli.left_out import show_left_out
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.values import format_bytes

Value = dict[str, Any]

_GONE: Final = ("segments_gone", "records_discarded", "tombstones_discarded", "offsets_gone")


def show_answer(answer: Value, screen: Screen) -> None:
    """The tables on standard output; warnings, and what could not be found out, on the screen."""
    for each in answer["in_use"]:
        screen.line(
            f"process {each['pid']} uses {each['log_dir']}, a running broker or a cleaning: this "
            "is a snapshot of its files at one moment",
            style="yellow",
        )
    show_left_out(answer, screen)
    for each in answer["partitions"]:
        if each["reason"]:
            screen.line(f"{_name(each)}: {each['reason']}", style="red")
    if not answer["partitions"]:
        if answer["broker_changes"]:
            _show_changes(answer)
            typer.echo("nothing that is removed changes")
        else:
            typer.echo("no setting of a topic here changes")
        return
    _show_changes(answer)
    _show_partitions(answer)
    _show_not_measured(answer, screen)
    _show_costs(answer)
    _show_groups(answer)
    _show_forecast(answer)


def _name(partition: Value) -> str:
    return f"{partition['topic']}-{partition['partition']}"


def _show_changes(answer: Value) -> None:
    rows = [
        [topic, name, values[NOW] or "(none)", values[THEN] or "(none)"]
        for topic, changed in [("(broker)", answer["broker_changes"]), *answer["changes"].items()]
        for name, values in changed.items()
        if name
    ]
    columns = [Column("topic"), Column("setting"), Column("now"), Column("then")]
    print_table("Settings", columns, rows)


def _show_partitions(answer: Value) -> None:
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
    known = [each for each in answer["partitions"] if each["difference"] is not None]
    rows = [
        [_name(each), *_cells(each["bytes"], each[NOW], each[THEN]), _how(each)] for each in known
    ]
    if len(rows) > 1:
        total, size = answer["total"], sum(each["bytes"] for each in known)
        rows.append(["total", *_cells(size, total[NOW], total[THEN]), ""])
    typer.echo()
    print_table("After a cleaning", columns, rows)
    typer.echo("segments, records, tombstones and offsets are those that go: now→then")


def _cells(size: int, now: Value, then: Value) -> list[str]:
    return [
        format_bytes(size),
        _left(now),
        _left(then),
        _signed(then["bytes"] - now["bytes"]),
        *(f"{now[name]:,}→{then[name]:,}" for name in _GONE),
    ]


def _left(side: Value) -> str:
    error = f" ±{format_bytes(side['bytes_error'])}" if side["bytes_error"] else ""
    return f"{format_bytes(side['bytes'])}{error}"


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"


def _how(partition: Value) -> str:
    now, then = (_known_by(partition[side]["how"]) for side in SIDES)
    return now if now == then else f"{now}→{then}"


def _known_by(how: str) -> str:
    return "planned, without compaction" if how == How.RETENTION else how


def _show_not_measured(answer: Value, screen: Screen) -> None:
    """Where the sizes shown are without a compaction, and what measures it."""
    names = dict.fromkeys(name for side in SIDES for name in answer["not_measured"][side])
    if names:
        screen.line(
            f"a compaction of {', '.join(names)} is due: what it removes on top of this takes "
            "reading all records. `cordwood whatif LOG_DIR`, on a log directory of the running "
            "broker, measures it with the extra 'spark'",
            style="yellow",
        )


def _show_costs(answer: Value) -> None:
    rows = []
    for side in SIDES:
        for each in answer["partitions"]:
            cost = None if each[side] is None else each[side]["cost"]
            if cost is None:
                continue
            rows.append(
                [
                    _name(each),
                    side,
                    format_bytes(cost["bytes_read"]),
                    f"{cost['keys']:,}",
                    f"{cost['seconds_least']:.1f} to {cost['seconds_most']:.1f} s",
                    format_bytes(cost["memory_bytes"]),
                    f"{cost['kafka_passes']:,}",
                ]
            )
    if rows:
        numbers = ("reads", "keys", "time", "memory", "Kafka's passes")
        columns = [Column("partition"), Column("settings")]
        columns += [Column(title, is_number=True) for title in numbers]
        typer.echo()
        print_table("What the compaction takes", columns, rows)
        times = [
            f"{seconds:.1f} s {side}"
            for side in SIDES
            if (seconds := answer["cleaning_s"][side]) is not None
        ]
        if times:
            typer.echo(f"all together, as measured here without writing: {', '.join(times)}")


def _show_groups(answer: Value) -> None:
    if not answer["groups"]:
        return
    columns = [Column("group"), Column("partition")]
    columns += [
        Column(title, is_number=True) for title in ("committed", "log start, then", "lost unread")
    ]
    rows = [
        [
            each["group"],
            each["partition"],
            f"{each['committed']:,}",
            f"{each['log_start_offset']:,}",
            f"{each['lost']:,}",
        ]
        for each in answer["groups"]
    ]
    typer.echo()
    print_table("Consumer groups that lose records they have not read", columns, rows)


def _show_forecast(answer: Value) -> None:
    forecasts = [
        [each[side]["bytes_after_days"] for side in SIDES]
        for each in answer["partitions"]
        if each["difference"] is not None
        and all(each[side]["bytes_after_days"] is not None for side in SIDES)
    ]
    known = [each for each in answer["partitions"] if each["difference"] is not None]
    if answer["days"] and len(forecasts) < len(known):
        typer.echo()
        typer.echo(
            f"{len(known) - len(forecasts)} partitions have no forecast: they are compacted, or "
            "their own history is under an hour, or under a hundredth of the days ahead"
        )
    if not forecasts:
        return
    columns = [Column("day"), *(Column(title, is_number=True) for title in SIDES)]
    rows = [
        [
            f"+{day + 1}",
            *(format_bytes(sum(both[side][day] for both in forecasts)) for side in (0, 1)),
        ]
        for day in range(answer["days"])
    ]
    typer.echo()
    print_table(
        f"Bytes of {len(forecasts)} partitions, at the rate of their own history", columns, rows
    )
