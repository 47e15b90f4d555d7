"""`cordwood cluster up`: a cluster on this machine for development, until it is stopped.

kafka-cluster has no such command. The first SIGINT, SIGTERM or SIGHUP stops the nodes in order, or
gives a start up; a second one kills them. Whatever happens to this process, no node outlives it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from rich.progress import Progress, TaskID

from cordwood.configs.unknown import unknown_settings
from cordwood.model.clock import pause
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.held_signals import STOP_SIGNALS
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.tables import Column, output_width, table_lines
from cordwood.surfaces.cli.tools.options import COMMON, INT_MAX, Option, Options, Usage
from cordwood.surfaces.cli.tools.tool import Terminal, run_tool
from cordwood.surfaces.local_cluster.described import DescribedCluster, described
from cordwood.surfaces.local_cluster.kafka_installation import HOME_VARIABLE, KafkaInstallation
from cordwood.surfaces.local_cluster.local_cluster import ClusterOptions, LocalCluster
from cordwood.surfaces.local_cluster.local_node import LocalNode, State

_LOOK_S: Final = 0.2

USAGE = Usage(
    tool="cluster up",
    summary="Cordwood's own: starts a controller and brokers on this machine for development, "
    "shows where they are, and stops them at Ctrl-C or SIGTERM.",
    options=(
        Option("brokers", "How many brokers; their ids are 1 on.", "N", default="3"),
        Option(
            "controllers", "How many controllers; 1 is served. Its id is 100.", "N", default="1"
        ),
        Option(
            "dir",
            "Where all files are; kept, and used again by the next start. Without it, a temporary "
            "directory, which is removed at the end unless a node has failed.",
            "DIR",
        ),
        Option(
            "port",
            "The port of broker 1; the other brokers and the controller follow. 0 for any free "
            "ones.",
            "BASE",
            default="9092",
        ),
        Option("with-kafka", "How many of the brokers, the last ones, are Kafka's.", "K"),
        Option(
            "kafka-home",
            f"The installation of Kafka 4.3 or 4.4 for --with-kafka. Without it, {HOME_VARIABLE}.",
            "DIR",
        ),
        Option("test-clock", "Use clocks that `cordwood clock --advance` advances."),
        Option("set", "A setting of all nodes; may be repeated.", "KEY=VALUE"),
        *COMMON,
    ),
    notes="Exit codes: 0 stopped by a signal; 1 it could not start, the usage was wrong, or a node "
    "has\nended by itself meanwhile.",
    examples="""\
  cordwood cluster up
  cordwood cluster up --brokers 5 --dir /tmp/cluster --port 19092
  cordwood cluster up --with-kafka 1 --kafka-home ~/kafka_2.13-4.3.0
  cordwood cluster up --set default.replication.factor=1 --test-clock
  cordwood cluster up --port 0 --json > cluster.json
""",
)

_COLUMNS: Final = (
    Column("node", is_number=True),
    *(Column("role"), Column("kind"), Column("address"), Column("health")),
    *(Column("pid", is_number=True), Column("HTTP"), Column("log")),
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the command with these flags; returns the exit code."""
    return run_tool(USAGE, arguments or [""], terminal, _body, on_error=_explain)


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    terminal.error(f"cordwood cluster up: {error}")


class Request(NamedTuple):
    """Values of the flags; a `directory` of None is a temporary one."""

    options: ClusterOptions
    directory: Path | None


def requested(options: Options) -> Request:
    """Values of the flags, checked.

    Raises:
        ConfigError: a value is not served or out of its bounds, or there is no Kafka.
    """
    if options.number("controllers") != 1:
        raise ConfigError("--controllers: a cluster of Cordwood's has 1 controller")
    properties = {}
    for text in options.values("set"):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {text}: expected KEY=VALUE")
        properties[key.strip()] = value.strip()
    kafka_brokers = options.number("with-kafka") or 0
    home = options.value("kafka-home")
    kafka = None
    if kafka_brokers > 0:
        given = None if home is None else Path(home)
        kafka = KafkaInstallation.find(given, os.environ)
    directory = options.value("dir")
    return Request(
        ClusterOptions(
            brokers=options.number("brokers") or 0,
            kafka_brokers=kafka_brokers,
            kafka=kafka,
            base_port=options.number("port", bound=INT_MAX) or 0,
            has_test_clock=options.has("test-clock"),
            properties=properties,
        ),
        None if directory is None else Path(directory),
    )


def _body(options: Options, terminal: Terminal) -> int:
    request = requested(options)
    for name, advice in unknown_settings(request.options.properties).items():
        terminal.error(f"WARN --set {name} is ignored; {advice}")
    with ExitStack() as stack:
        screen = stack.enter_context(Screen())
        stop = stack.enter_context(_stopped_by_signal())
        directory = request.directory
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="cordwood-cluster-"))
        run = _Run(stop, screen, is_temporary=request.directory is None)
        try:
            return run.until_stopped(directory, request.options, options, terminal)
        except _StopRequestedError:
            run.has_failed = False
            return 0
        finally:
            if run.is_temporary and not run.has_failed:
                OS.remove_tree(directory)
            elif run.is_temporary:
                screen.line(f"The logs of all nodes are in {directory}")


class _StopRequestedError(CordwoodError):
    """A signal came while the cluster started."""


class _Stop:
    """Whether a signal has asked for the end."""

    is_requested = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Asks for the end; the second signal interrupts a controlled shutdown."""
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def _stopped_by_signal() -> Iterator[_Stop]:
    """Signals that end the process only ask for it, until the context ends."""
    stop = _Stop()
    before = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop.on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Run:
    """A cluster from its start to its end, as it is shown."""

    def __init__(self, stop: _Stop, screen: Screen, *, is_temporary: bool) -> None:
        self._stop = stop
        self._screen = screen
        self._progress: tuple[Progress, TaskID] | None = None
        self.is_temporary = is_temporary
        self.has_failed = False

    def until_stopped(
        self, directory: Path, asked: ClusterOptions, options: Options, terminal: Terminal
    ) -> int:
        """Runs the cluster; the exit code."""
        cluster = LocalCluster(directory, asked, listener=self)
        self.has_failed = True
        try:
            with self._shown(asked.brokers + 1):
                cluster.start()
            self.has_failed = False
            facts = described(cluster)
            if options.has("json"):
                terminal.document(facts)
            else:
                for line in summary(facts, width=output_width(), is_temporary=self.is_temporary):
                    terminal.line(line)
            terminal.flush()
            while not self._stop.is_requested:
                self._look_at(cluster)
                pause(_LOOK_S)
            return 1 if self.has_failed else 0
        finally:
            cluster.close()

    def _look_at(self, cluster: LocalCluster) -> None:
        for node in cluster.nodes:
            if node.notice_end():
                self.has_failed = True
                self._screen.line(
                    f"{node.name} has ended by itself: {node.how_it_ended}", style="red"
                )

    @contextmanager
    def _shown(self, nodes: int) -> Iterator[None]:
        """Shows how many nodes have started: a bar on a terminal."""
        if not self._screen.is_terminal:
            yield
            return
        with self._screen.bars(transient=True) as progress:
            self._progress = progress, progress.add_task("Starting the controller", total=nodes)
            try:
                yield
            finally:
                self._progress = None

    # ---- ClusterListener

    def waiting(self) -> None:
        """Gives the start up after a signal."""
        if self._stop.is_requested:
            raise _StopRequestedError("stopped by a signal")

    def started(self, node: LocalNode) -> None:
        """Shows that a node serves."""
        self._screen.line(f"{node.name} ({node.kind}) serves at {node.address}")
        if self._progress is not None:
            progress, task = self._progress
            progress.update(task, advance=1, description="Starting the brokers")

    def stopped(self, node: LocalNode) -> None:
        """Shows how a node has ended."""
        how = "has stopped" if node.state is State.STOPPED else "was killed"
        self._screen.line(f"{node.name} {how}")


def summary(cluster: DescribedCluster, *, width: int | None, is_temporary: bool) -> list[str]:
    """The lines that show a cluster."""
    rows = [
        [
            *(str(node.node_id), node.role, node.kind, node.address, node.health),
            *(str(node.pid), node.http_url or "", node.log_file),
        ]
        for node in cluster.nodes
    ]
    where = cluster.directory + (", removed at the end" if is_temporary else "")
    title = f"Cluster {cluster.cluster_id} in {where}"
    return [
        *table_lines(title, _COLUMNS, rows, width=width),
        f"For clients: --bootstrap-server {cluster.bootstrap_servers}",
        "Ctrl-C stops it.",
    ]
