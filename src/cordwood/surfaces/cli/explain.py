"""`cordwood explain`: why each segment is still there, by which setting, and when it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.queries.explain.outlook import outlook
from cordwood.queries.http_client import query_of
from cordwood.queries.settings import SettingOptions
from cordwood.surfaces.cli import explain_tables
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption
from cordwood.surfaces.cli.explain_files import DirectoryQuestion, RecordQuestion, explain_files
from cordwood.surfaces.cli.explain_summary import SORTS
from cordwood.surfaces.cli.explain_tables import Detail
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)
from cordwood.surfaces.cli.running_broker import (
    BootstrapServerOption,
    LogDirOption,
    UrlOption,
    broker_command,
    find_broker,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import (
    ConfigFileOption,
    DefaultsOption,
    MetadataDirOption,
    OptionalLogDirsArgument,
    ServerPropertiesOption,
    SetOption,
    TopicsOption,
)
from cordwood.surfaces.cli.tables import print_text
from cordwood.surfaces.cli.textfile import (
    METRICS_TEXTFILE,
    MetricsTextfileOption,
    textfile_metrics,
)

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

_FAILED = 1


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
    sort: Annotated[
        str, typer.Option(metavar="KEY", help=f"Sort partitions by {', '.join(SORTS)}.")
    ] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    set_: SetOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to explain: ms or ISO 8601.")
    ] = None,
    log_dir: LogDirOption = None,
    bootstrap_server: BootstrapServerOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    metrics_textfile: MetricsTextfileOption = None,
) -> None:
    """Explains, for each segment, why it is kept or deleted, and when it goes.

    With LOG_DIR from the files of log directories, which are only read; settings come from the same
    places as those of `cordwood clean`. Or from the memory of a running broker, given by --log-dir,
    --bootstrap-server or --url.
    """
    with broker_command(
        context, "explain", log_level=log_level, log_format=log_format, log_file=log_file
    ):
        screen = context.with_resource(Screen())
        choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
        options = SettingOptions(
            log_dirs=log_dirs or (),
            set_options=set_ or (),
            config_file=config_file,
            server_properties=server_properties,
            metadata_dir=metadata_dir,
            defaults=defaults,
        )
        if log_dirs:
            if log_dir or bootstrap_server or url:
                raise ConfigError("give LOG_DIR, or a running broker, not both")
            metrics = context.with_resource(
                textfile_metrics(
                    "explain", metrics_textfile, log_dirs, clock=SystemClock(), screen=screen
                )
            )
            question = DirectoryQuestion(
                options=options,
                topics=tuple(topic or ()),
                now=now,
                records=RecordQuestion.parse(record, key, topics=tuple(topic or ())),
            )
            answer = explain_files(question, screen)
            metrics.result, metrics.is_success = answer, not answer["failed"]
        else:
            _require_none(options, now=now, record=record, key=key, textfile=metrics_textfile)
            broker = find_broker(
                log_dir=log_dir, bootstrap_server=bootstrap_server, url=url, or_directory=True
            )
            parts = [broker.ask(query_of("/explain", topic=glob)) for glob in topic or ["*"]]
            answer = _joined(parts) | {"broker": broker.to_json()}
            if not as_json:
                print_text(broker.line)
    answer["summary"] = outlook(answer["partitions"], now_ms=answer["now_ms"]).to_json()
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        detail = Detail.of(segments=segments, all_segments=all_segments)
        explain_tables.show(answer, screen, choice, detail)
    if answer.get("failed"):
        raise typer.Exit(_FAILED)


def _require_none(
    options: SettingOptions,
    *,
    now: str | None,
    record: str | None,
    key: str | None,
    textfile: Path | None,
) -> None:
    """A running broker knows its settings and the time; records are looked for in its files.

    Raises:
        ConfigError: an option is given that needs LOG_DIR.
    """
    given = {
        "--record": record,
        "--key": key,
        "--now": now,
        METRICS_TEXTFILE: textfile,
        "--set": options.set_options,
        "--config-file": options.config_file,
        "--server-properties": options.server_properties,
        "--metadata-dir": options.metadata_dir,
        "--defaults": options.defaults,
    }
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"{name} needs LOG_DIR: the log directory of a running broker may be given, too"
            )


def _joined(parts: list[Any]) -> dict[str, Any]:
    """The answers for several globs as one, each partition once."""
    found = {(p["topic"], p["partition"]): p for part in parts for p in part["partitions"]}
    return {"now_ms": parts[0]["now_ms"], "partitions": [found[name] for name in sorted(found)]}
