"""`cordwood whatif`: what a changed setting would do to the logs of a directory or a broker."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer

from cordwood.model.errors import ConfigError
from cordwood.queries.http_client import RefusedError, query_of
from cordwood.queries.settings import SettingOptions
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)
from cordwood.surfaces.cli.running_broker import (
    AddressedBroker,
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
from cordwood.surfaces.cli.whatif_tables import SORTS, show_answer

_FAILED: Final = 1
_BAD_REQUEST: Final = 400
_DAYS: Final = 7
_DAYS_MAX: Final = 366
_MASTER: Final = "local[*]"

EPILOG = """\b
Examples:
  cordwood whatif /var/lib/kafka/data --set clicks:retention.ms=1d
  cordwood whatif /var/lib/kafka/data --set '*:retention.ms=1d'
  cordwood whatif /data1 /data2 --set log.retention.bytes=1G --json
  cordwood whatif /var/lib/kafka/data --set users:cleanup.policy=compact
  cordwood whatif /data1 --set users:min.cleanable.dirty.ratio=0.1 --estimate
  cordwood whatif --bootstrap-server localhost:9092 --set clicks:retention.ms=1d

\b
LOG_DIR may be in use by a broker or a Kafka: its files are only read.

\b
Exit codes: 0 done; 1 a partition or the broker could not be asked (other
partitions are shown); 2 usage, or a value that the broker refuses."""


def whatif_command(
    context: typer.Context,
    log_dirs: OptionalLogDirsArgument = None,
    set_: SetOption = None,
    topic: TopicsOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to clean at: ms or ISO 8601.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", help="Days to look ahead.")] = _DAYS,
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Do not look at consumer groups.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all Python processes together.")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, or sc:// for Spark Connect.")
    ] = _MASTER,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Estimate compactions from a sample, without Java."),
    ] = False,
    log_dir: LogDirOption = None,
    bootstrap_server: BootstrapServerOption = None,
    url: UrlOption = None,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help=f"Sort partitions by {', '.join(SORTS)}.")
    ] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    """Compare what a cleaning would do under the settings in force, and under changed ones.

    With LOG_DIR from the files of log directories, which are only read; settings come from the same
    places as those of `cordwood clean`. Or from the memory of a running broker, given by --log-dir,
    --bootstrap-server or --url. --set gives the changed settings.
    """
    with broker_command(
        context, "whatif", log_level=log_level, log_format=log_format, log_file=log_file
    ):
        screen = context.with_resource(Screen())
        choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
        if not set_:
            raise ConfigError("nothing is changed: give a setting with --set [TOPIC:]KEY=VALUE")
        if not 0 <= days <= _DAYS_MAX:
            raise ConfigError(f"--days {days}: expected 0 to {_DAYS_MAX}")
        options = SettingOptions(
            log_dirs=log_dirs or (),
            config_file=config_file,
            server_properties=server_properties,
            metadata_dir=metadata_dir,
            defaults=defaults,
        )
        if log_dirs:
            if log_dir or bootstrap_server or url:
                raise ConfigError("give LOG_DIR, or a running broker, not both")
            # What a directory needs is not loaded to ask a broker.
            from cordwood.surfaces.cli.whatif_files import (  # noqa: PLC0415
                FilesQuestion,
                whatif_files,
            )

            question = FilesQuestion(
                options=options,
                changes=tuple(set_),
                topics=tuple(topic or ()),
                now=now,
                days=days,
                groups=not no_groups,
                memory=memory,
                master=master,
                estimate=estimate,
            )
            shows_progress = not json_ and screen.is_terminal
            answer = whatif_files(question, screen, shows_progress=shows_progress)
        else:
            _require_none(options, now=now, memory=memory, master=master, estimate=estimate)
            broker = find_broker(
                log_dir=log_dir, bootstrap_server=bootstrap_server, url=url, or_directory=True
            )
            answer = _asked(broker, set_, topic or [], days=days, groups=not no_groups)
            if not json_:
                print_text(broker.line)
    if json_:
        typer.echo(json.dumps(answer))
    else:
        show_answer(answer, screen, choice)
    if answer["failed"] or any(each["reason"] for each in answer["partitions"]):
        raise typer.Exit(_FAILED)


def _asked(
    broker: AddressedBroker, changes: list[str], topics: list[str], *, days: int, groups: bool
) -> dict[str, Any]:
    """The broker's answer.

    Raises:
        ConfigError: it refuses a setting, as it would if it were to be changed.
        EndpointError: it does not answer.
    """
    query = query_of(
        "/whatif", set=changes, topic=topics, days=str(days), groups="true" if groups else "false"
    )
    try:
        answer: dict[str, Any] = broker.ask(query)
    except RefusedError as error:
        if error.status == _BAD_REQUEST:
            raise ConfigError(error.reason) from error
        raise
    return answer | {"broker": broker.to_json()}


def _require_none(
    options: SettingOptions,
    *,
    now: str | None,
    memory: str | None,
    master: str,
    estimate: bool,
) -> None:
    """A running broker knows its settings and the time, and measures no compaction.

    Raises:
        ConfigError: an option is given that needs LOG_DIR.
    """
    given = {
        "--now": now,
        "--config-file": options.config_file,
        "--server-properties": options.server_properties,
        "--metadata-dir": options.metadata_dir,
        "--defaults": options.defaults,
        "--memory": memory,
        "--estimate": estimate,
        "--master": "" if master == _MASTER else master,
    }
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"{name} needs LOG_DIR: the log directory of a running broker may be given, too"
            )
