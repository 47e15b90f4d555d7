"""A cluster of processes for tests: a controller and brokers that a test kills, suspends, cuts off.

    with Cluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        ...
        cluster.kill(cluster.leader("orders", 0))
        cluster.advance(days=7)  # on all nodes

In pytest the fixture `cordwood_cluster` is one, with nothing to import; see
`cordwood.testing.pytest_plugin`. Linux only, as the links between nodes are found in /proc.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cordwood.configs.unknown import unknown_settings
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, CordwoodError, UnknownSettingError
from cordwood.surfaces.local_cluster.kafka_installation import KafkaInstallation
from cordwood.surfaces.local_cluster.local_cluster import (
    CONTROLLER_ID,
    ClusterOptions,
    LocalCluster,
)
from cordwood.surfaces.local_cluster.local_node import LocalNode, NodeError, State
from cordwood.testing.callers_line import shows_callers_line
from cordwood.testing.clock_span import span_ms
from cordwood.testing.setting_text import SettingValue, setting_text
from cordwood.testing.switchboard import Cut, Switchboard

__all__ = ["CONTROLLER_ID", "Cluster", "Cut", "NodeError", "NodeView"]

_IN_SYNC_S: Final = 60.0
_LEADER_S: Final = 60.0
_SETTLE_S: Final = 5.0
_METRICS_S: Final = 10.0
_LOG_START: Final = re.compile(r"^kafka_log_log_logstartoffset(\{.*\}) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of a cluster at one moment.

    `state` is `running`, `paused`, `stopped`, `killed`, or `ended` for a process that ended by
    itself; a node that is cut off runs. `pid` is None without a process, `http_url` of a broker of
    Kafka's.
    """

    node_id: int
    address: str
    state: str
    is_cut_off: bool
    pid: int | None
    directory: Path
    log_dir: Path
    log_file: Path
    http_url: str | None
    is_kafka: bool

    @property
    def log(self) -> str:
        """The lines that the node has logged, over all its starts."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")


class Cluster:
    """A context manager: a controller process and broker processes, on free ports of 127.0.0.1.

    Entering it returns when all brokers serve and know each other. Leaving it stops them, brokers
    first and by a controlled shutdown, and removes the directory if it is temporary. No process is
    left after an exception or Ctrl-C; if this process is killed, the kernel ends the others.

    How a node is cut off: clients and nodes reach each node through a proxy in this process, which
    also knows, by /proc, the node that has made a connection. `cut_off` closes all connections that
    lead to the node or come from it, and any new one, while the node runs. One port for each node
    is enough, so what the brokers return to clients is the same as without a cut, and brokers of
    Kafka can be cut off like those of Cordwood. The HTTP endpoints are not cut off: the clock of a
    node that is can be advanced.
    """

    @shows_callers_line
    def __init__(
        self,
        brokers: int = 3,
        *,
        properties: Mapping[str, SettingValue] | None = None,
        directory: Path | None = None,
        kafka_brokers: int = 0,
        kafka_home: Path | None = None,
    ) -> None:
        """Checks its arguments and starts nothing.

        Args:
            brokers: the number of brokers; their ids are 1 on, and the controller's is 100.
            properties: settings of server.properties for all nodes, over Kafka's defaults and
                `default_properties` of `cordwood.surfaces.local_cluster.local_cluster`.
            directory: where all files are; kept at the end, and used again by a cluster that is
                started on it. A temporary directory if None.
            kafka_brokers: how many of the brokers, the last ones, are real Kafka 4.3 brokers; their
                clocks cannot be advanced.
            kafka_home: Kafka's installation; the environment's KAFKA_HOME if None.

        Raises:
            UnknownSettingError: nothing asks for a setting, which Kafka would ignore.
            ConfigError: a number is out of its bounds, or there is no Kafka.
        """
        texts = {name: setting_text(name, value) for name, value in (properties or {}).items()}
        unknown = unknown_settings(texts)
        if unknown:
            raise UnknownSettingError(unknown, source="Cluster")
        self._options = ClusterOptions(
            brokers=brokers,
            kafka_brokers=kafka_brokers,
            kafka=KafkaInstallation.find(kafka_home, os.environ) if kafka_brokers else None,
            has_test_clock=True,
            properties=texts,
        )
        self._directory = directory
        self._board: Switchboard | None = None
        self._cluster: LocalCluster | None = None
        self._temporary: Path | None = None

    # ---- life

    @shows_callers_line
    def __enter__(self) -> Self:
        if self._cluster is not None:
            raise NodeError("a Cluster is entered once; make another")
        directory = self._directory
        try:
            if directory is None:
                directory = self._temporary = Path(tempfile.mkdtemp(prefix="cordwood-cluster-"))
            self._board = Switchboard()
            self._cluster = LocalCluster(directory, self._options, wiring=self._board)
            self._cluster.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        try:
            if self._board is not None:
                self._board.reconnect_all()
            if self._cluster is not None:
                self._cluster.close()
        finally:
            if self._board is not None:
                self._board.close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    # ---- what there is

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for clients."""
        return self._running.bootstrap_servers

    @property
    def directory(self) -> Path:
        """The directory of all files."""
        return self._running.directory

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._running.cluster_id

    @property
    def brokers(self) -> dict[int, NodeView]:
        """The brokers by id, as they are now."""
        return {node_id: self._view(node) for node_id, node in self._running.brokers.items()}

    @property
    def controller(self) -> NodeView:
        """The controller as it is now."""
        return self._view(self._running.controller)

    def _view(self, node: LocalNode) -> NodeView:
        node.notice_end()
        return NodeView(
            node_id=node.node_id,
            address=node.address,
            state=node.state.value,
            is_cut_off=self._switchboard.is_cut_off(node.node_id),
            pid=node.pid,
            directory=node.place.directory,
            log_dir=node.log_dir,
            log_file=node.log_file,
            http_url=node.http_url,
            is_kafka=node.place.kafka is not None,
        )

    @property
    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise NodeError("the Cluster was not entered: use it in a `with` statement")
        return self._cluster

    @property
    def _switchboard(self) -> Switchboard:
        assert self._board is not None, "the cluster was entered"
        return self._board

    # ---- nodes

    @shows_callers_line
    def start(self, node_id: int) -> None:
        """Starts a node that does not run, on its directory; returns when it serves.

        A broker that starts needs the controller.

        Raises:
            NodeError: it runs, it did not start, or there is no such node.
        """
        cluster = self._running
        cluster.launch([cluster.node(node_id)])

    @shows_callers_line
    def stop(self, node_id: int) -> None:
        """Stops a node by a controlled shutdown, after which others lead its partitions.

        Raises:
            NodeError: it does not run, or did not end in a minute and was killed.
        """
        self._running.stop(self._running.node(node_id))

    @shows_callers_line
    def kill(self, node_id: int) -> None:
        """Ends a node at once (SIGKILL): what it has not synced to disk is in the page cache."""
        self._running.node(node_id).kill()

    @shows_callers_line
    def pause(self, node_id: int) -> None:
        """Suspends a node (SIGSTOP): its connections stay, and nobody answers."""
        self._running.node(node_id).pause()

    @shows_callers_line
    def resume(self, node_id: int) -> None:
        """Continues a node that was suspended (SIGCONT), at the cluster's time."""
        node = self._running.node(node_id)
        node.resume()
        node.advance(self._running.ahead_ms, compact=False)

    @shows_callers_line
    def cut_off(self, node_id: int, how: Cut = Cut.CLOSED) -> None:
        """Cuts a node's links to the other nodes and to clients, while its process runs.

        Args:
            node_id: a broker, or the controller.
            how: with `Cut.SILENT` no connection is closed: peers wait for their timeouts.
        """
        self._switchboard.cut_off(self._running.node(node_id).node_id, how)

    @shows_callers_line
    def reconnect(self, node_id: int) -> None:
        """Takes `cut_off` back."""
        self._switchboard.reconnect(self._running.node(node_id).node_id)

    # ---- topics

    @shows_callers_line
    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; waits until one does that can be reached.

        So after a leader was killed, paused or cut off, it returns the next one.

        Raises:
            NodeError: there was none in a minute.
        """
        return self._running.leader(topic, partition, _LEADER_S)

    @shows_callers_line
    def wait_until_in_sync(self, *topics: str, timeout_s: float = _IN_SYNC_S) -> None:
        """Returns when topics are there and all replicas of theirs, or of all topics, are in sync.

        That takes all brokers that have one: each runs and is not cut off.

        Raises:
            NodeError: this is not so in time.
        """
        self._running.wait_until_in_sync(topics, timeout_s)

    # ---- the clock

    def now_ms(self) -> int:
        """The cluster's time, in ms since the epoch: for timestamps of records."""
        return SystemClock().now_ms() + self._running.ahead_ms

    @shows_callers_line
    def advance(self, ms: int = 0, *, compact: bool = True, **span: float) -> None:
        """Advances the clock of all nodes, and returns when all work that is due is done on each.

        Retention deletes only what is committed, and a replica learns with its next fetch, in half
        a second at most, what is committed and what its leader has deleted. So this returns when
        the replicas that can be reached have the same log start offsets, or after 5 s. A broker
        that has just become the leader may learn it later: `advance(0)` does what is due then.

        A node that does not run, or is paused, has the cluster's time when it starts or continues.
        Sessions of brokers and groups, fetch waits and idle connections use wall-clock time. The
        clocks of clients do not change; see `RunningBroker.advance`.

        Args:
            ms: milliseconds.
            compact: also compact what is due, which needs Java and PySpark if something is due.
            **span: as `datetime.timedelta` takes it: `days=7`, `hours=1`; added to `ms`.

        Raises:
            ConfigError: a broker of Kafka's, whose clock cannot be advanced, is in the cluster; or
                the time is none, or negative.
            EndpointError: something that is due could not be compacted.
            NodeError: a node has ended by itself.
        """
        cluster = self._running
        if self._options.kafka_brokers:
            raise ConfigError("the clock of a broker of Kafka's cannot be advanced")
        cluster.ahead_ms += span_ms({"milliseconds": ms}) + span_ms(span)
        self._do_due(compact=compact)
        with suppress(NodeError):
            cluster.wait_until(
                lambda: self._has_equal_starts() or self._do_due(compact=compact),
                what="replicas have equal log start offsets",
                timeout_s=_SETTLE_S,
            )
        self._do_due(compact=compact)

    def _do_due(self, *, compact: bool) -> bool:
        """Has all nodes that run do what is due at the cluster's time; false."""
        cluster = self._running
        running = []
        for node in cluster.nodes:
            if node.state is State.RUNNING:
                node.require_process()
                running.append(node)
        with ThreadPoolExecutor(max_workers=max(1, len(running))) as workers:
            done = [
                workers.submit(node.advance, cluster.ahead_ms, compact=compact) for node in running
            ]
        errors = [error for each in done if (error := each.exception()) is not None]
        if errors:
            raise _first(errors)
        return False

    def _has_equal_starts(self) -> bool:
        starts: dict[str, set[str]] = {}
        for node in self._running.reachable():
            for partition, offset in _LOG_START.findall(node.metrics(_METRICS_S)):
                starts.setdefault(partition, set()).add(offset)
        return all(len(each) == 1 for each in starts.values())


def _first(errors: list[BaseException]) -> BaseException:
    """The first error that says what is wrong, with the number of the others."""
    first = errors[0]
    if len(errors) > 1 and isinstance(first, CordwoodError):
        first.add_note(f"and {len(errors) - 1} nodes more")
    return first
