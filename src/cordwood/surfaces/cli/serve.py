"""`cordwood serve`: a broker in the foreground.

Source: kafka.Kafka (bin/kafka-server-start.sh).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    DirectoryInUseError,
    NoSpaceError,
)
from cordwood.model.held_signals import STOP_SIGNALS
from cordwood.surfaces.cli import load_progress
from cordwood.surfaces.cli.log_options import (
    AuditLogOption,
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    LogOptions,
    logging_to,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.serve_listening import (
    AdvertiseOption,
    BindOption,
    HttpBindOption,
    HttpPlace,
    HttpPortOption,
    HttpRemoteChangesOption,
    PortOption,
    listening_settings,
    require_ports,
    say,
    without_reached,
)
from cordwood.surfaces.cli.service_manager import ServiceManager
from cordwood.surfaces.cli.setting_values import setting_value
from cordwood.surfaces.cli.values import parse_duration

if TYPE_CHECKING:
    from cordwood.configs.server_properties import BrokerSettings
    from cordwood.model.clock import Clock
    from cordwood.node.controller_node import ControllerNode
    from cordwood.node.node import Node
    from cordwood.surfaces.http.observed import ObservedNode

_USAGE = 2
_IN_USE = 3
_FAILED = 1

EPILOG = """\b
Examples:
  cordwood serve --log-dir /tmp/logs               127.0.0.1:9092, formatted if empty
  cordwood serve --log-dir /tmp/logs --bind 0.0.0.0 --advertise kafka.test
  cordwood serve --config server.properties        as kafka-server-start
  cordwood serve --config server.properties --override log.cleaner.threads=2
  cordwood serve --log-dir /tmp/logs --port 0 --test-clock
  cordwood serve --log-dir /tmp/logs --log-format json --log-file /tmp/serve.log

\b
Exit codes: 0 stopped by a signal; 1 it could not start, or its disks
failed; 2 usage or a setting; 3 the directory is in use."""

_log = logging.getLogger("cordwood.serve")


def serve_command(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server.properties file, as for kafka-server-start."),
    ] = None,
    log_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A log directory (log.dirs), formatted if empty; may be repeated. Default: that "
            "of --config, else /tmp/kafka-logs.",
        ),
    ] = None,
    bind: BindOption = None,
    port: PortOption = None,
    advertise: AdvertiseOption = None,
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Overrides a key of the server.properties."),
    ] = None,
    http_bind: HttpBindOption = "127.0.0.1",
    http_port: HttpPortOption = None,
    http_remote_changes: HttpRemoteChangesOption = False,
    test_clock: Annotated[
        bool,
        typer.Option(
            "--test-clock",
            help="Use a clock that `cordwood clock --advance` advances, for retention and expiry.",
        ),
    ] = False,
    clock_ahead: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="With --test-clock: the clock starts so far ahead of the machine's, as 7d or 90s.",
        ),
    ] = "0ms",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="The same as --log-level DEBUG.")
    ] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    audit_log: AuditLogOption = None,
) -> None:
    """Runs a Kafka broker or controller, until it is stopped by SIGTERM or Ctrl-C."""
    from cordwood.configs.server_properties import (  # noqa: PLC0415
        SINGLE_BROKER_DEFAULTS,
        BrokerSettings,
    )
    from cordwood.format.properties import parse_properties  # noqa: PLC0415
    from cordwood.model.clock import MovableClock, SystemClock  # noqa: PLC0415

    screen = context.with_resource(Screen())
    level = log_level or (LogLevel.DEBUG if verbose else LogLevel.INFO)
    try:
        require_ports(port, http_port)
        http = HttpPlace(host=http_bind, port=http_port, remote_changes=http_remote_changes)
        log = LogOptions(
            level=level, format=log_format, file=log_file, audit=audit_log, is_service=True
        )
        context.with_resource(logging_to(screen.line, log))
        given: dict[str, str] = {}
        source = "the command line"
        if config is not None:
            source = str(config)
            given = dict(parse_properties(_read(config).decode("latin-1"), name=source))
        given |= listening_settings(bind, port, advertise)
        given = without_reached(given | _from_options(log_dir, override or []))
        if config is None:
            given = {**SINGLE_BROKER_DEFAULTS, **given}
        settings = BrokerSettings(given, source=source)
        ahead_ms = parse_duration(clock_ahead, option="--clock-ahead")
        if ahead_ms and not test_clock:
            raise ConfigError("--clock-ahead needs --test-clock")
    except CordwoodError as error:
        typer.echo(f"cordwood serve: {error}", err=True)
        raise typer.Exit(_USAGE) from error
    say(settings, http)
    clock: Clock = MovableClock(ahead_ms) if test_clock else SystemClock()
    try:
        _run_until_stopped(settings, clock, http, screen)
    except DirectoryInUseError as error:
        typer.echo(f"cordwood serve: {error}", err=True)
        raise typer.Exit(_IN_USE) from error
    except CordwoodError as error:
        typer.echo(f"cordwood serve: {error}{_advice(error, settings)}", err=True)
        raise typer.Exit(_FAILED) from error


def _advice(error: CordwoodError, settings: BrokerSettings) -> str:
    """Advice for a full disk; empty for any other error."""
    from cordwood.model.kafka_errors import StorageError  # noqa: PLC0415

    is_full = isinstance(error, NoSpaceError) or (
        isinstance(error, StorageError) and error.is_out_of_space
    )
    if not is_full:
        return ""
    log_dirs = shlex.join(settings.log_dirs)
    return (
        ". Free a few megabytes on that disk, and start again: "
        f"`cordwood clean {log_dirs} --retention-only` removes expired segments and needs no space"
    )


def _read(config: Path) -> bytes:
    """The file's bytes: Java reads properties as Latin-1.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return config.read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {config}: {error.strerror}") from error


def _from_options(log_dirs: list[Path] | None, overrides: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    if log_dirs:
        given["log.dirs"] = ",".join(str(each) for each in log_dirs)
    for each in overrides:
        key, equals, value = each.partition("=")
        if not equals:
            raise CordwoodError(f"--override {each} is not of the form key=value")
        given[key.strip()] = setting_value(key.strip(), value.strip())
    return given


def _run_until_stopped(
    settings: BrokerSettings, clock: Clock, http: HttpPlace, screen: Screen
) -> None:
    """Makes the node, and all that it loads, before there is an event loop to hold up."""
    from cordwood.node.controller_node import ControllerNode  # noqa: PLC0415
    from cordwood.node.node import Node  # noqa: PLC0415
    from cordwood.serving import event_loop  # noqa: PLC0415
    from cordwood.surfaces.http import endpoint  # noqa: F401, PLC0415
    from cordwood.surfaces.http.observed import (  # noqa: PLC0415
        ObservedBroker,
        ObservedController,
    )

    if settings.is_broker:
        broker = Node(settings, clock=clock, owns_process=True)
        serving = _serve_broker(broker, ObservedBroker(broker), http, screen)
    else:
        controller = ControllerNode(settings, clock=clock)
        serving = _serve_controller(controller, ObservedController(controller), http)
    try:
        event_loop.run(serving)
    finally:
        # It has stopped in order: a signal that comes now has nothing left to stop.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


async def _start(node: Node, stopped: asyncio.Event, screen: Screen) -> None:
    """Starts the node; shows how many logs are loaded, and loads no more once it is stopped."""
    if screen.is_terminal:
        with screen.bars(transient=True) as progress:
            bars = load_progress.LoadBars(progress)
            await node.start(load_progress.StoppableLoading(bars, stopped.is_set))
    else:
        lines = load_progress.LoadLines()
        await node.start(load_progress.StoppableLoading(lines, stopped.is_set))


async def _serve_broker(
    broker: Node, observed: ObservedNode, http: HttpPlace, screen: Screen
) -> None:
    stopped = asyncio.Event()
    start = _start(broker, stopped, screen)
    await _serve_node(broker, observed, start, stopped, http)


async def _serve_controller(
    controller: ControllerNode, observed: ObservedNode, http: HttpPlace
) -> None:
    await _serve_node(controller, observed, controller.start(), asyncio.Event(), http)


def _stop_by_signal(stop: Callable[[], None]) -> None:
    """Has a signal that ends the process call `stop`."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)


async def _serve_node(
    node: Node | ControllerNode,
    observed: ObservedNode,
    start: Coroutine[Any, Any, None],
    stopped: asyncio.Event,
    http: HttpPlace,
) -> None:
    """Starts a node, and stops it when a signal comes or its disks have failed.

    The port for HTTP is taken first: a node that cannot have it does not start.
    """
    from cordwood.queries.identity import runtime_files  # noqa: PLC0415
    from cordwood.surfaces.http.endpoint import HttpEndpoint, listen  # noqa: PLC0415

    try:
        sock = None
        if http.port is None or http.port >= 0:
            sock = listen(http.port, http.host)
    except BaseException:
        start.close()
        raise
    manager = ServiceManager.of_environment(os.environ)
    manager.status("Starting")
    starting = asyncio.get_running_loop().create_task(start)

    def stop() -> None:
        if not stopped.is_set():
            manager.stopping()
            stopped.set()
            starting.cancel()  # it may wait for other nodes

    _stop_by_signal(stop)
    try:
        await starting
    except BaseException as error:
        if sock is not None:
            sock.close()
        if not isinstance(error, asyncio.CancelledError | load_progress.StoppedLoadingError):
            raise
        _log.info("Shut down completed, before the start had ended")
        return
    endpoint = None
    try:
        if sock is not None:
            endpoint = HttpEndpoint(observed, sock, remote_changes=http.remote_changes)
            _log.info("Metrics and status are at %s", endpoint.url)
        with runtime_files(observed.identity(endpoint.url if endpoint else None)):
            _log.info("Kafka Server started (%s)", _addresses(node))
            manager.ready(f"Serving at {_addresses(node)}")
            node.failure.add_done_callback(lambda _: stopped.set())
            await stopped.wait()
            if node.failure.done():
                raise CordwoodError(node.failure.result())
            _log.info("Shutting down")
    finally:
        manager.stopping()
        if endpoint is not None:
            endpoint.close()
        await node.stop()
    _log.info("Shut down completed")


def _addresses(node: Node | ControllerNode) -> str:
    settings = node.settings
    listeners = settings.listeners if settings.is_broker else settings.controller_listeners
    return ", ".join(
        f"{each.name}://{each.host or '*'}:{node.ports[each.name]}" for each in listeners
    )
