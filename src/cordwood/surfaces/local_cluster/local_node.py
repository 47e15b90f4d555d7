"""A node of a local cluster: its directory, its settings, and its process."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from cordwood.metadata.formatting import Voters, format_directories
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.queries.http_client import ask, read
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.surfaces.local_cluster.child_process import ChildProcess
from cordwood.surfaces.local_cluster.kafka_installation import KafkaInstallation, write_logging
from cordwood.surfaces.local_cluster.ports import HOST

#: What both Kafka and Cordwood log when they serve; a broker is not fenced then.
_STARTED: Final = "Kafka Server started"


class NodeError(CordwoodError):
    """A node did not start or stop, or is in a state in which the call makes no sense."""


class NodeEndedError(NodeError):
    """A node's process has ended by itself; the end of its log is in the text."""


class Role(enum.Enum):
    """Role of a node."""

    BROKER = "broker"
    CONTROLLER = "controller"


class State(enum.Enum):
    """State of a node's process."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    ENDED = "ended"


class Listening(NamedTuple):
    """Port on which a node listens, and the port for others: the same, or that of a proxy."""

    port: int
    advertised_port: int

    @property
    def address(self) -> str:
        """The address for clients and other nodes."""
        return f"{HOST}:{self.advertised_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Identity and place of a node; `http_port` is None for a node of Kafka's."""

    node_id: int
    role: Role
    directory: Path
    listening: Listening
    http_port: int | None
    kafka: KafkaInstallation | None = None


class LocalNode:
    """A node, which may be started, ended and started again on its directory.

    Its state is changed by the methods only: `ended` is a process that ended without one of them,
    and is noticed by `notice_end`.
    """

    def __init__(
        self,
        place: NodePlace,
        *,
        cluster_id: str,
        properties: Mapping[str, str],
        has_test_clock: bool,
        fs: FileSystem = OS,
    ) -> None:
        """Formats the directory unless it is; nothing runs yet.

        Args:
            place: who and where it is.
            cluster_id: of the cluster.
            properties: lines of server.properties, besides those that follow from `place`.
            has_test_clock: whether its clock can be advanced; never that of a node of Kafka's.
            fs: where its files are.
        """
        self.place = place
        self.state = State.STOPPED
        self.ahead_ms = 0
        self._properties = properties
        self._has_test_clock = has_test_clock
        self._process: ChildProcess | None = None
        self._fs = fs
        format_directories(
            [self.log_dir],
            node_id=place.node_id,
            cluster_id=cluster_id,
            clock=SystemClock(),
            controller_endpoints=[],
            voters=Voters.STATIC,
            fs=fs,
        )

    # ---- where it is

    @property
    def node_id(self) -> int:
        """Its id."""
        return self.place.node_id

    @property
    def name(self) -> str:
        """Its role and id, such as `broker 1`."""
        return f"{self.place.role.value} {self.node_id}"

    @property
    def kind(self) -> str:
        """The program of the node: Cordwood or Kafka."""
        return "Cordwood" if self.place.kafka is None else "Kafka"

    @property
    def address(self) -> str:
        """The address for clients and other nodes."""
        return self.place.listening.address

    @property
    def http_url(self) -> str | None:
        """Its HTTP endpoint; None of a node of Kafka's."""
        port = self.place.http_port
        return None if port is None else f"http://{HOST}:{port}"

    @property
    def log_dir(self) -> Path:
        """Its log directory."""
        return self.place.directory / "data"

    @property
    def log_file(self) -> Path:
        """The node's log file."""
        return self.place.directory / "server.log"

    @property
    def properties_file(self) -> Path:
        """Its settings, which are written at each start."""
        return self.place.directory / "server.properties"

    # ---- its process

    @property
    def has_process(self) -> bool:
        """Whether it runs or is paused."""
        return self.state in {State.RUNNING, State.PAUSED}

    @property
    def pid(self) -> int | None:
        """The number of its process; None without one."""
        return self._process.pid if self._process is not None and self.has_process else None

    @property
    def end_of_log(self) -> str:
        """The last lines that its process has logged."""
        return "" if self._process is None else self._process.end_of_log

    def launch(self, ahead_ms: int) -> int:
        """Starts the process, and does not wait until it serves; the process's number.

        Args:
            ahead_ms: how far its clock is ahead of the machine's, if it can be advanced.

        Raises:
            NodeError: it runs already.
        """
        if self.has_process:
            raise NodeError(f"{self.name} runs already")
        lines = {**self._roles(), **self._properties}
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        self._fs.write_file(self.properties_file, text.encode("latin-1", "replace"))
        if self.place.kafka is None:
            command = self._serve(ahead_ms)
        else:
            write_logging(self.place.directory, fs=self._fs)
            command = self.place.kafka.command(self.properties_file, os.environ)
        self.ahead_ms = ahead_ms
        self._process = ChildProcess(command, log_file=self.log_file)
        self.state = State.RUNNING
        return self._process.pid

    def is_serving(self) -> bool:
        """Whether the process has started; a broker is then not fenced.

        Raises:
            NodeEndedError: the process has ended instead.
        """
        self.require_process()
        assert self._process is not None, "it was launched"
        return _STARTED in self._process.log

    def require_process(self) -> None:
        """Raises unless the process runs or is paused.

        Raises:
            NodeError: it was stopped or killed, or not started.
            NodeEndedError: it has ended by itself.
        """
        if self.notice_end() or self.state is State.ENDED:
            raise NodeEndedError(f"{self.name} has ended by itself; {self.how_it_ended}")
        if not self.has_process:
            raise NodeError(f"{self.name} does not run: it was {self.state.value}")

    def notice_end(self) -> bool:
        """Whether the process has ended by itself since the last call."""
        if not self.has_process or self._process is None or self._process.exit_code is None:
            return False
        self.state = State.ENDED
        return True

    @property
    def how_it_ended(self) -> str:
        """The exit code, and the end of the log, of a process that has ended by itself."""
        code = None if self._process is None else self._process.exit_code
        if code is None:
            return "it runs"
        how = f"its exit code is {code}" if code >= 0 else f"signal {-code} ended it"
        return f"{how}; the end of {self.log_file}:\n{self.end_of_log}"

    def pause(self) -> None:
        """Suspends the process."""
        self._running().pause()
        self.state = State.PAUSED

    def resume(self) -> None:
        """Continues a process that was suspended."""
        self._running().resume()
        self.state = State.RUNNING

    def ask_to_stop(self) -> None:
        """Begins a controlled shutdown; `wait_until_stopped` waits for its end."""
        self._running().ask_to_stop()
        self.state = State.RUNNING

    def wait_until_stopped(self, timeout_s: float) -> bool:
        """Whether the process has ended within this time; it is killed if not."""
        assert self._process is not None, "it was asked to stop"
        is_over = self._process.wait(timeout_s) is not None
        self._process.kill()
        self.state = State.STOPPED if is_over else State.KILLED
        return is_over

    def kill(self) -> None:
        """Ends the process at once (SIGKILL)."""
        self._running().kill()
        self.state = State.KILLED

    def advance(self, ahead_ms: int, *, compact: bool) -> None:
        """Advances the clock until it is so far ahead of the machine's; does what is due by then.

        Raises:
            EndpointError: something that is due could not be compacted, or it does not answer.
        """
        ms = ahead_ms - self.ahead_ms
        if self.http_url is not None and self._has_test_clock:
            self.ahead_ms = ahead_ms
            wait = str(compact).lower()
            ask(self.http_url, f"/clock/advance?ms={ms}&wait={wait}", "POST")

    def health(self, timeout_s: float) -> Any:
        """The node's health, from its endpoint.

        Raises:
            EndpointError: it does not answer.
        """
        assert self.http_url is not None, "a node of Cordwood's"
        return ask(self.http_url, "/health", timeout_s=timeout_s)

    def metrics(self, timeout_s: float) -> str:
        """Its metrics, as Prometheus takes them; none of a node of Kafka's.

        Raises:
            EndpointError: it does not answer.
        """
        return "" if self.http_url is None else read(self.http_url, "/metrics", timeout_s=timeout_s)

    def _running(self) -> ChildProcess:
        self.require_process()
        assert self._process is not None, "it was launched"
        return self._process

    # ---- its settings

    def _serve(self, ahead_ms: int) -> list[str]:
        clock = ["--test-clock", "--clock-ahead", f"{ahead_ms}ms"] if self._has_test_clock else []
        return [
            *(sys.executable, "-m", "cordwood", "serve", "--config", str(self.properties_file)),
            *("--http-port", str(self.place.http_port), *clock),
        ]

    def _roles(self) -> dict[str, str]:
        place = self.place
        is_broker = place.role is Role.BROKER
        listener = "PLAINTEXT" if is_broker else "CONTROLLER"
        return {
            "process.roles": place.role.value,
            "node.id": str(place.node_id),
            "log.dirs": str(self.log_dir),
            "listeners": f"{listener}://{HOST}:{place.listening.port}",
            "advertised.listeners": f"{listener}://{place.listening.address}",
            "controller.listener.names": "CONTROLLER",
        }
