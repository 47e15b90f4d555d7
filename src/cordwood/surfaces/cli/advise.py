"""`cordwood advise`: settings that keep a promise, and remarks on settings that surprise."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cordwood.model.errors import ConfigError
from cordwood.queries.advise.directories import AdviceQuestion, advise_directories
from cordwood.surfaces.cli.advise_tables import SORTS, show_topics
from cordwood.surfaces.cli.answer_notes import show_notes
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption, sort_option
from cordwood.surfaces.cli.command import (
    FAILED,
    JsonOption,
    SettingSourceOptions,
    command,
    print_document,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import LogDirsArgument, TopicsOption
from cordwood.surfaces.cli.values import parse_duration, parse_size, parse_time

EPILOG = """\b
Examples:
  cordwood advise /var/lib/kafka/data
  cordwood advise /var/lib/kafka/data --topic orders --max-age 7d
  cordwood advise /var/lib/kafka/data --topic orders --max-bytes 10G

\b
LOG_DIR is only read: a broker may run on it.

\b
Exit codes: 0 shown; 1 no settings keep the promise, or a partition could not
be read (other partitions are shown); 2 usage."""


@command("advise")
def advise_command(
    context: typer.Context,
    log_dirs: LogDirsArgument,
    topic: TopicsOption = None,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="DURATION", help="No record gets older, such as 7d."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="No partition takes more disk space."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Appends a second.  [default: the peak in the log]"),
    ] = None,
    *,
    settings: SettingSourceOptions,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to look at: ms or ISO 8601.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Of each topic shown, its ages, changes and remarks.")
    ] = False,
    sort: Annotated[str, sort_option("topics", SORTS)] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Advises on the settings of topics.

    With --max-age, or --max-bytes for each partition: the loosest settings that keep the promise.
    Always: the largest age of a record as it is now, the disk space that the dirty ratio takes, and
    remarks on settings that do not do what they seem to.
    """
    screen = context.with_resource(Screen())
    choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
    if rate is not None and max_bytes is None:
        raise ConfigError("--rate needs --max-bytes")
    question = AdviceQuestion(
        options=replace(settings, log_dirs=log_dirs),
        topics=tuple(topic or ()),
        now_ms=None if now is None else parse_time(now, option="--now"),
        max_age_ms=None if max_age is None else parse_duration(max_age, option="--max-age"),
        max_bytes=None if max_bytes is None else parse_size(max_bytes, option="--max-bytes"),
        bytes_a_second=None if rate is None else parse_size(rate, option="--rate"),
    )
    answer = advise_directories(question)
    if as_json:
        print_document(answer)
    else:
        show_notes(
            screen, warnings=answer.warnings, left_alone=answer.left_alone, failed=answer.failed
        )
        show_topics(answer.topics, choice, details=details)
    if answer.failed or any(each.refused for each in answer.topics):
        raise typer.Exit(FAILED)
