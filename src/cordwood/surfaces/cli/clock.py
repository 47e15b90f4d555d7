"""`cordwood clock`: the time of a running broker, and moving it on."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cordwood.model.errors import ConfigError
from cordwood.queries.brokers import BrokerQuestion
from cordwood.queries.clock import ClockAnswer
from cordwood.surfaces.cli.command import (
    JsonOption,
    PlaceOptions,
    addressed_broker,
    command,
    print_document,
)
from cordwood.surfaces.cli.values import format_duration, iso_moment, parse_duration

EPILOG = """\b
Examples:
  cordwood serve --log-dir /tmp/logs --test-clock
  cordwood clock --log-dir /tmp/logs                 shows the broker's time
  cordwood clock --log-dir /tmp/logs --advance 7d    retention, compaction and
                                                     expiry of a week are done
  cordwood clock --bootstrap-server localhost:9092 --advance 90s --json

\b
Exit codes: 0 done; 1 no broker runs there, its clock cannot be moved, or
something due for compaction could not be compacted; 2 usage."""


@command("clock")
def clock_command(
    advance: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Advance the clock by 7d, 12h, 5m, 90s or 500ms."),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Show the time; the default.")] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="Wait until compactions that became due are done, too."
        ),
    ] = True,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Shows or advances the clock of a broker that was started with --test-clock."""
    question = BrokerQuestion(path="/clock", answer=ClockAnswer)
    if advance is not None and now:
        raise ConfigError("--advance and --now: give one of them")
    if advance is not None:
        ms = parse_duration(advance, option="--advance")
        parameters = {"ms": str(ms), "wait": str(wait).lower()}
        question = replace(question, path="/clock/advance", parameters=parameters, method="POST")
    broker = addressed_broker(place)
    answer = broker.ask(question)
    if as_json:
        print_document(replace(answer, broker=broker.identity))
    else:
        typer.echo(f"{broker.line}\n{_line(answer)}")


def _line(answer: ClockAnswer) -> str:
    text = iso_moment(answer.now_ms, timespec="milliseconds")
    if answer.ahead_ms:
        return f"{text}, {format_duration(answer.ahead_ms)} ahead of the machine's clock"
    if answer.movable:
        return f"{text}; the clock can be moved"
    return f"{text}; the machine's clock, as the broker was started without --test-clock"
