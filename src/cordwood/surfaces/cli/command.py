"""Declaration of a command: options that commands share, its log, its end after an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer

from cordwood.model.documents import document_text
from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    DirectoryInUseError,
    MissingExtraError,
    NotALogDirError,
)
from cordwood.queries.brokers import AddressedBroker, Brokers, Place, find_broker
from cordwood.queries.settings import SettingOptions
from cordwood.surfaces.cli.error_text import os_error_text
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.log_options import (
    AuditLogOption,
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
    LogOptions,
    logging_to,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import (
    ConfigFileOption,
    DefaultsOption,
    MetadataDirOption,
    ServerPropertiesOption,
    SetOption,
)
from cordwood.surfaces.cli.tables import print_text

FAILED, _USAGE, IN_USE = 1, 2, 3
_IN_USE_ADVICE: Final = (
    "Nothing was changed: stop that process first; a Cordwood broker that runs is named by "
    "--log-dir"
)


CONTEXT: Final = inspect.Parameter(
    "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
)


@dataclass(frozen=True, slots=True)
class Group:
    """Options that a command takes as one value, which `value_of` makes of them."""

    value_of: Callable[..., Any]

    @property
    def options(self) -> Sequence[inspect.Parameter]:
        """The options, as parameters of a command."""
        return list(inspect.signature(self.value_of, eval_str=True).parameters.values())


def _place(
    log_dir: Annotated[
        Path | None,
        typer.Option("--log-dir", metavar="DIR", help="A log directory of the broker."),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server", metavar="HOST:PORT", help="The Kafka address of the broker."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The broker's HTTP endpoint, as its log shows it."
        ),
    ] = None,
) -> Place:
    return Place(log_dir=log_dir, bootstrap_server=bootstrap_server, url=url)


def _settings(
    set_: SetOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
) -> SettingOptions:
    return SettingOptions(
        log_dirs=(),
        set_options=set_ or (),
        config_file=config_file,
        server_properties=server_properties,
        metadata_dir=metadata_dir,
        defaults=defaults,
    )


PlaceOptions = Annotated[Place, Group(_place)]
SettingSourceOptions = Annotated[SettingOptions, Group(_settings)]
"""Where settings come from; its `log_dirs` are empty."""
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def command(name: str, *, audit: bool = False) -> Callable[[Callable[..., None]], Any]:
    """Makes a function a command: `cordwood NAME`; `name` is empty for `cordwood LOG_DIR`.

    Each group of options among its parameters is expanded, and the options of the log follow; with
    `audit` that of the audit log, too. A command of a group takes its log from the group. Errors
    end it: exit code 2 for wrong options, 3 if a directory is in use, and 1 for any other.
    """

    def declared(function: Callable[..., None]) -> Any:
        groups: dict[str, Group] = {}
        parameters = inspect.signature(function, eval_str=True).parameters
        takes_context = CONTEXT.name in parameters
        options = [] if takes_context else [CONTEXT]
        for parameter in parameters.values():
            group = _group_of(parameter.annotation)
            if group is None:
                options.append(parameter)
            else:
                groups[parameter.name] = group
                options += group.options
        log_group = Group(audited_log if audit else _log)
        is_in_group = " " in name
        if not is_in_group:
            options += log_group.options

        @wraps(function)
        def run(**given: Any) -> None:
            context: typer.Context = given[CONTEXT.name]
            if not takes_context:
                del given[CONTEXT.name]
            log = context.obj if is_in_group else _taken(log_group, given)
            with _ending(context, name, log):
                values = {each: _taken(group, given) for each, group in groups.items()}
                function(**given, **values)

        run.__signature__ = signature_of(options)  # type: ignore[attr-defined]
        return run

    return declared


def signature_of(options: Sequence[inspect.Parameter]) -> inspect.Signature:
    """The signature of a command with these options, in their order."""
    return inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    )


def audited_log(
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    audit_log: AuditLogOption = None,
) -> LogOptions:
    """The options of the log, and of the audit log."""
    return LogOptions(level=log_level, format=log_format, file=log_file, audit=audit_log)


def _log(
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> LogOptions:
    return audited_log(log_level, log_format, log_file)


def _group_of(annotation: Any) -> Group | None:
    return next((each for each in get_args(annotation)[1:] if isinstance(each, Group)), None)


def _taken(group: Group, given: dict[str, Any]) -> Any:
    """The value of a group, whose options are taken out of those `given`."""
    return group.value_of(**{each.name: given.pop(each.name) for each in group.options})


@contextmanager
def _ending(context: typer.Context, name: str, log: LogOptions) -> Iterator[None]:
    try:
        context.with_resource(logging_to(context.with_resource(Screen()).line, log))
        yield
    except (ConfigError, MissingExtraError, NotALogDirError) as error:
        fail(name, error, _USAGE)
    except DirectoryInUseError as error:
        fail(name, f"{error} {_IN_USE_ADVICE}", IN_USE)
    except CordwoodError as error:
        fail(name, error, FAILED)
    except OSError as error:
        fail(name, os_error_text(error), FAILED)


def asks_directories(log_dirs: Sequence[Path] | None, place: Place) -> bool:
    """Whether log directories are asked, and not running brokers.

    Raises:
        ConfigError: both are given.
    """
    if log_dirs and place.is_given:
        raise ConfigError("give LOG_DIR, or a running broker, not both")
    return bool(log_dirs)


def require_absent(given: dict[str, Any]) -> None:
    """Refuses options that a question to a running broker cannot have.

    Args:
        given: the value of each option; a false one was not given.

    Raises:
        ConfigError: one was given.
    """
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"{name} needs LOG_DIR: the log directory of a running broker may be given, too"
            )


def sources_given(options: SettingOptions) -> dict[str, Any]:
    """The options that say where settings come from, beside --set, by name."""
    return {
        "--config-file": options.config_file,
        "--server-properties": options.server_properties,
        "--metadata-dir": options.metadata_dir,
        "--defaults": options.defaults,
    }


def print_document(answer: Any) -> None:
    """Prints an answer as a JSON document."""
    typer.echo(document_text(answer))


def addressed_broker(place: Place, *, or_directory: bool = False) -> AddressedBroker:
    """The running broker of a place; the others of its cluster are named on stderr.

    Raises as `find_broker`.
    """
    broker = find_broker(place, or_directory=or_directory)
    if broker.not_asked_line is not None:
        typer.echo(broker.not_asked_line, err=True)
    return broker


def require_stopped(argument: str, place: Place) -> None:
    """Refuses a running broker beside an argument that is a directory of a stopped one.

    Raises:
        ConfigError: one is given.
    """
    if place.is_given:
        raise ConfigError(
            f"{argument} is of a stopped broker: leave out --log-dir, --bootstrap-server and "
            "--url, which name one that runs"
        )


def print_brokers(brokers: Brokers, *, as_json: bool) -> None:
    """Says which brokers are asked, unless a document does, and on stderr which are not."""
    if brokers.not_asked_line is not None:
        typer.echo(brokers.not_asked_line, err=True)
    if not as_json:
        for each in brokers.brokers:
            print_text(each.line)
