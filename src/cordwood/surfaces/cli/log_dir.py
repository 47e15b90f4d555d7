"""`cordwood LOG_DIR`: what is in a log directory, what goes, what is wrong, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from cordwood.model.clock import SystemClock
from cordwood.queries.explain.outlook import When
from cordwood.queries.settings import SettingOptions
from cordwood.surfaces.cli.biggest import AllOption, Choice, Listing, Measure, TopOption
from cordwood.surfaces.cli.clean_estimate import estimator_for, with_error
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.explain_summary import LEFT, show_outlook
from cordwood.surfaces.cli.left_out import FAILED
from cordwood.surfaces.cli.log_dir_facts import readable, summary_of
from cordwood.surfaces.cli.log_dir_problems import next_commands, problems_of
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)
from cordwood.surfaces.cli.running_broker import broker_command
from cordwood.surfaces.cli.setting_options import (
    ConfigFileOption,
    DefaultsOption,
    LogDirsArgument,
    MetadataDirOption,
    ServerPropertiesOption,
    SetOption,
)
from cordwood.surfaces.cli.tables import Column, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, parse_time

Value = dict[str, Any]

SORTS: Final = ("size", "now", "24h", "name")
_TOP: Final = 10
_FAILED: Final = 1

EPILOG = """\b
Examples:
  cordwood /var/lib/kafka/data
  cordwood /data1 /data2 --server-properties /etc/kafka/server.properties
  cordwood /var/lib/kafka/data --json

\b
LOG_DIR is only read: a broker or a Kafka may run on it.

\b
Exit codes: 0 shown; 1 a directory or a partition could not be read (the
others are shown), or none; 2 usage, or a directory that is not Kafka's."""


def log_dir_command(
    context: typer.Context,
    log_dirs: LogDirsArgument,
    set_: SetOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to look at: ms or ISO 8601.")
    ] = None,
    no_estimate: Annotated[
        bool, typer.Option("--no-estimate", help="Read no records to estimate a compaction.")
    ] = False,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help=f"Sort topics by {', '.join(SORTS)}.")
    ] = SORTS[0],
    top: TopOption = _TOP,
    all_: AllOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    """Shows what is in log directories, what goes, what is wrong, and which commands follow."""
    with broker_command(context, "", log_level=log_level, log_format=log_format, log_file=log_file):
        choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
        options = SettingOptions(
            log_dirs=log_dirs,
            set_options=set_ or (),
            config_file=config_file,
            server_properties=server_properties,
            metadata_dir=metadata_dir,
            defaults=defaults,
        )
        clock = SystemClock()
        looked = readable(log_dirs)
        answer = summary_of(
            replace(options, log_dirs=looked.log_dirs),
            now_ms=clock.now_ms() if now is None else parse_time(now, option="--now"),
            clock=clock,
            estimator=None if no_estimate else estimator_for(CleanProgress(None)),
        )
        answer["problems"] = problems_of(answer, looked.failed)
        answer["next"] = next_commands(
            answer,
            looked.log_dirs,
            sources=_sources(options, now),
            changes=[word for each in options.set_options for word in ("--set", each)],
        )
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        _show(answer, choice)
    if looked.failed or answer[FAILED] or answer["compaction"]["failed"]:
        raise typer.Exit(_FAILED)


def _sources(options: SettingOptions, now: str | None) -> list[str]:
    """The options that say where settings come from, without --set, and the moment, as given."""
    given: list[str] = []
    values = {
        "--config-file": options.config_file,
        "--server-properties": options.server_properties,
        "--metadata-dir": options.metadata_dir,
        "--now": now,
    }
    for name, value in values.items():
        if value is not None:
            given += [name, str(value)]
    return [*given, "--defaults"] if options.defaults else given


def _show(answer: Value, choice: Choice) -> None:
    for each in answer["log_dirs"]:
        total, free = each["disk_bytes"], each["disk_free_bytes"]
        share = f"{100 * (total - free) / max(1, total):.0f} %"
        print_text(each["log_dir"])
        used = f"{format_bytes(total - free)} used ({share}), {format_bytes(free)} free"
        print_text(f"disk of {format_bytes(total)}: {used}", indent="  ")
    unread = sum(each["bytes_not_read"] for each in answer["topics"])
    rest = f", {format_bytes(unread)} of them not looked into" if unread else ""
    print_text(
        f"{counted(len(answer['topics']), 'topic')}, "
        f"{counted(answer['partitions'], 'partition')}, "
        f"{format_bytes(answer['bytes'])} of logs{rest}"
    )
    typer.echo()
    if answer["summary"]["partitions"]:
        show_outlook("What retention removes", answer["summary"])
        print_text(_compaction_line(answer["compaction"]))
    else:
        print_text("What goes is not known: no log was looked into.")
    typer.echo()
    listing = _LISTING
    if unread:
        listing = replace(listing, measures=(*listing.measures, _NOT_READ))
    listing.show("Topics", answer["topics"], choice)
    if answer["problems"]:
        typer.echo("\nTo know")
        for each in answer["problems"]:
            print_text(each["text"], indent="  ")
    typer.echo("\nNext")
    for each in answer["next"]:
        # A command is not wrapped: it is to be copied.
        typer.echo(f"  {each['command']}")
        print_text(each["what"], indent="      ")


def _compaction_line(compaction: Value) -> str:
    due = compaction["partitions"]
    if not due:
        return "No compaction is due."
    line = f"Compaction is due of {counted(due, 'partition')}"
    if compaction["bytes_freed"] is None:
        read = format_bytes(compaction["bytes_to_read"])
        return (
            f"{line}, with {read} to read; what it would free is not counted: "
            f"{compaction['why_not']}"
        )
    freed = with_error(compaction["bytes_freed"], compaction["bytes_error"])
    rest = f"; {compaction['why_not']}" if compaction["why_not"] else ""
    about = "" if compaction["is_exact"] else "~"
    return f"{line}, which would free {about}{freed}{rest}"


def _sum(*names: str) -> Callable[[Sequence[Value]], str]:
    def text(topics: Sequence[Value]) -> str:
        return format_bytes(sum(each[name] for each in topics for name in names))

    return text


def _number(title: str, *names: str) -> Measure[Value]:
    return Measure(column=Column(title, is_number=True), text=_sum(*names))


_LISTING: Final[Listing[Value]] = Listing(
    heading="topic",
    name=lambda topic: str(topic["topic"]),
    keys={
        "size": lambda topic: int(topic["bytes"]),
        "now": lambda topic: int(topic[When.NOW]),
        "24h": lambda topic: int(topic[When.NOW] + topic[When.DAY]),
    },
    measures=(
        Measure(
            column=Column("policy", is_optional=True),
            text=lambda topics: topics[0]["policy"] or "unknown",
            is_summed=False,
        ),
        Measure(
            column=Column("partitions", is_number=True, is_optional=True),
            text=lambda topics: f"{sum(each['partitions'] for each in topics):,}",
        ),
        _number("size", "bytes"),
        _number("goes now", When.NOW),
        _number("in 24 h", When.DAY),
        _number(LEFT, When.LATER, When.STAYS),
        _number("dirty", "dirty_bytes"),
    ),
)
_NOT_READ: Final = _number("not read", "bytes_not_read")
