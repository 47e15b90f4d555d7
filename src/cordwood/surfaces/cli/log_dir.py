"""`cordwood LOG_DIR`: what is in a log directory, what goes, what is wrong, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer

from cordwood.model.clock import SystemClock
from cordwood.queries.log_dirs import (
    DueCompactions,
    LogDirsSummary,
    TopicSize,
    readable,
    summary_of,
)
from cordwood.queries.settings import SettingOptions
from cordwood.surfaces.cli.biggest import (
    AllOption,
    Choice,
    Listing,
    Measure,
    TopOption,
    sort_option,
)
from cordwood.surfaces.cli.clean_estimate import estimator_for, with_error
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.command import (
    FAILED,
    JsonOption,
    SettingSourceOptions,
    command,
    print_document,
    sources_given,
)
from cordwood.surfaces.cli.explain_summary import LEFT, show_outlook
from cordwood.surfaces.cli.log_dir_problems import next_commands, problems_of
from cordwood.surfaces.cli.setting_options import LogDirsArgument
from cordwood.surfaces.cli.tables import Column, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, parse_time

SORTS: Final = ("size", "now", "24h", "name")
_TOP: Final = 10

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


@command("")
def log_dir_command(
    log_dirs: LogDirsArgument,
    *,
    settings: SettingSourceOptions,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to look at: ms or ISO 8601.")
    ] = None,
    no_estimate: Annotated[
        bool, typer.Option("--no-estimate", help="Read no records to estimate a compaction.")
    ] = False,
    sort: Annotated[str, sort_option("topics", SORTS)] = SORTS[0],
    top: TopOption = _TOP,
    all_: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shows what is in log directories, what goes, what is wrong, and which commands follow."""
    choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
    clock = SystemClock()
    looked = readable(log_dirs)
    answer = summary_of(
        replace(settings, log_dirs=looked.log_dirs),
        now_ms=clock.now_ms() if now is None else parse_time(now, option="--now"),
        clock=clock,
        estimator=None if no_estimate else estimator_for(CleanProgress(None)),
    )
    answer = replace(
        answer,
        problems=problems_of(answer, looked.failed),
        next=next_commands(
            answer,
            looked.log_dirs,
            sources=_sources(settings, now),
            changes=[word for each in settings.set_options for word in ("--set", each)],
        ),
    )
    if as_json:
        print_document(answer)
    else:
        _show(answer, choice)
    if looked.failed or answer.failed or answer.compaction.failed:
        raise typer.Exit(FAILED)


def _sources(options: SettingOptions, now: str | None) -> list[str]:
    """The options that say where settings come from, without --set, and the moment, as given."""
    given: list[str] = []
    for name, value in ({"--now": now} | sources_given(options)).items():
        if value is True:
            given.append(name)
        elif value:
            given += [name, str(value)]
    return given


def _show(answer: LogDirsSummary, choice: Choice) -> None:
    for each in answer.log_dirs:
        total, free = each.disk_bytes, each.disk_free_bytes
        print_text(each.log_dir)
        if total < 0:
            print_text("object storage", indent="  ")
            continue
        share = f"{100 * (total - free) / max(1, total):.0f} %"
        used = f"{format_bytes(total - free)} used ({share}), {format_bytes(free)} free"
        print_text(f"disk of {format_bytes(total)}: {used}", indent="  ")
    unread = sum(each.bytes_not_read for each in answer.topics)
    rest = f", {format_bytes(unread)} of them not looked into" if unread else ""
    print_text(
        f"{counted(len(answer.topics), 'topic')}, "
        f"{counted(answer.partitions, 'partition')}, "
        f"{format_bytes(answer.bytes)} of logs{rest}"
    )
    typer.echo()
    if answer.summary.partitions:
        show_outlook("What retention removes", answer.summary)
        print_text(_compaction_line(answer.compaction))
    else:
        print_text("What goes is not known: no log was looked into.")
    typer.echo()
    listing = _LISTING
    if unread:
        listing = replace(listing, measures=(*listing.measures, _NOT_READ))
    listing.show("Topics", answer.topics, choice)
    if answer.problems:
        typer.echo("\nTo know")
        for problem in answer.problems:
            print_text(problem.text, indent="  ")
    typer.echo("\nNext")
    for command_ in answer.next or ():
        # A command is not wrapped: it is to be copied.
        typer.echo(f"  {command_.command}")
        print_text(command_.what, indent="      ")


def _compaction_line(compaction: DueCompactions) -> str:
    due = compaction.partitions
    if not due:
        return "No compaction is due."
    line = f"Compaction is due of {counted(due, 'partition')}"
    if compaction.bytes_freed is None:
        read = format_bytes(compaction.bytes_to_read)
        return (
            f"{line}, with {read} to read; what it would free is not counted: {compaction.why_not}"
        )
    freed = with_error(compaction.bytes_freed, compaction.bytes_error or 0)
    rest = f"; {compaction.why_not}" if compaction.why_not else ""
    about = "" if compaction.is_exact else "~"
    return f"{line}, which would free {about}{freed}{rest}"


def _number(title: str, size_of: Callable[[TopicSize], int]) -> Measure[TopicSize]:
    def text(topics: Sequence[TopicSize]) -> str:
        return format_bytes(sum(map(size_of, topics)))

    return Measure(column=Column(title, is_number=True), text=text)


_LISTING: Final[Listing[TopicSize]] = Listing(
    heading="topic",
    name=lambda topic: topic.topic,
    keys={
        "size": lambda topic: topic.bytes,
        "now": lambda topic: topic.now,
        "24h": lambda topic: topic.now + topic.next_24h,
    },
    measures=(
        Measure(
            column=Column("policy", is_optional=True),
            text=lambda topics: topics[0].policy or "unknown",
            is_summed=False,
        ),
        Measure(
            column=Column("partitions", is_number=True, is_optional=True),
            text=lambda topics: f"{sum(each.partitions for each in topics):,}",
        ),
        _number("size", lambda topic: topic.bytes),
        _number("goes now", lambda topic: topic.now),
        _number("in 24 h", lambda topic: topic.next_24h),
        _number(LEFT, lambda topic: topic.later + topic.stays),
        _number("dirty", lambda topic: topic.dirty_bytes),
    ),
)
_NOT_READ: Final = _number("not read", lambda topic: topic.bytes_not_read)
