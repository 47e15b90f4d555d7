"""`cordwood explain`: why each segment is still there, by which setting, and when it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.brokers import find_brokers
from cordwood.queries.explain.directories import (
    DirectoryQuestion,
    RecordQuestion,
    explain_directories,
)
from cordwood.queries.explain.question import explain_question, merged
from cordwood.surfaces.cli import explain_tables
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption, sort_option
from cordwood.surfaces.cli.command import (
    FAILED,
    JsonOption,
    PlaceOptions,
    SettingSourceOptions,
    asks_directories,
    command,
    print_brokers,
    print_document,
    require_absent,
    sources_given,
)
from cordwood.surfaces.cli.explain_summary import SORTS
from cordwood.surfaces.cli.explain_tables import Detail
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument, TopicsOption
from cordwood.surfaces.cli.textfile import (
    METRICS_TEXTFILE,
    MetricsTextfileOption,
    textfile_metrics,
)
from cordwood.surfaces.cli.values import parse_time

EPILOG = """\b
Examples:
  cordwood explain /var/lib/kafka/data
  cordwood explain /var/lib/kafka/data --topic 'orders*' --segments
  cordwood explain /var/lib/kafka/data --record orders:0:4711
  cordwood explain /var/lib/kafka/data --topic orders --key customer-17
  cordwood explain --bootstrap-server localhost:9092 --json

\b
LOG_DIR may be in use by a broker or a Kafka: its files are only read.

\b
Exit codes: 0 shown; 1 a partition or the broker could not be asked; 2 usage."""

_PARTS = 3


@command("explain")
def explain_command(
    context: typer.Context,
    log_dirs: OptionalLogDirsArgument = None,
    topic: TopicsOption = None,
    record: Annotated[
        str | None,
        typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="When is this record gone?"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="When are the records of a key gone?")
    ] = None,
    segments: Annotated[
        bool,
        typer.Option("--segments", help="Of each partition shown, its settings and segments."),
    ] = False,
    all_segments: Annotated[
        bool, typer.Option("--all-segments", help="The same, with a row for every segment.")
    ] = False,
    sort: Annotated[str, sort_option("partitions", SORTS)] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    *,
    settings: SettingSourceOptions,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to explain: ms or ISO 8601.")
    ] = None,
    place: PlaceOptions,
    as_json: JsonOption = False,
    metrics_textfile: MetricsTextfileOption = None,
) -> None:
    """Explains, for each segment, why it is kept or deleted, and when it goes.

    With LOG_DIR from the files of log directories, which are only read; settings come from the same
    places as those of `cordwood clean`. Or from the memory of a running broker, given by --log-dir,
    --bootstrap-server or --url.
    """
    screen = context.with_resource(Screen())
    choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
    topics = tuple(topic or ())
    if asks_directories(log_dirs, place):
        metrics = context.with_resource(
            textfile_metrics(
                "explain", metrics_textfile, log_dirs or (), clock=SystemClock(), screen=screen
            )
        )
        question = DirectoryQuestion(
            options=replace(settings, log_dirs=log_dirs or ()),
            topics=topics,
            now_ms=None if now is None else parse_time(now, option="--now"),
            records=parse_records(record, key, topics=topics),
        )
        answer = explain_directories(question, lambda total: _bar(screen, total))
        metrics.result, metrics.is_success = answer, not answer.failed
    else:
        require_absent(
            {"--record": record, "--key": key, "--now": now, METRICS_TEXTFILE: metrics_textfile}
            | {"--set": settings.set_options, **sources_given(settings)}
        )
        brokers = find_brokers(place, or_directory=True)
        answer = merged(brokers.ask(explain_question(topics)))
        print_brokers(brokers, as_json=as_json)
    if as_json:
        print_document(answer)
    else:
        detail = Detail.of(segments=segments, all_segments=all_segments)
        explain_tables.show(answer, screen, choice, detail)
    if answer.failed:
        raise typer.Exit(FAILED)


def parse_records(
    record: str | None, key: str | None, *, topics: Sequence[str]
) -> RecordQuestion | None:
    """The records that --record or --key asks for; None without either.

    Raises:
        ConfigError: both are given, or a value cannot be understood.
    """
    if record is not None and key is not None:
        raise ConfigError("--record and --key exclude each other")
    if key is not None:
        if not topics:
            raise ConfigError("--key needs --topic: which topic has the key?")
        return RecordQuestion(key=key.encode("utf-8", "surrogateescape"))
    if record is None:
        return None
    parts = record.rsplit(":", 2)
    if len(parts) != _PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ConfigError(f"--record {record}: expected TOPIC:PARTITION:OFFSET")
    return RecordQuestion(partition=TopicPartition(parts[0], int(parts[1])), offset=int(parts[2]))


@contextmanager
def _bar(screen: Screen, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over bytes, where standard error is a terminal."""
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("reading records"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with screen.bars(*columns, transient=True) as bars:
        task = bars.add_task("", total=total)
        yield lambda count: bars.advance(task, count)
