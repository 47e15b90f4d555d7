"""A cluster of processes: one controller of Cordwood's, and brokers of Cordwood and of Kafka.

Below its directory each node has one of its own, `controller-100` and `broker-1` on, with its
server.properties, its log and its log directory. A cluster that is started again on the directory
continues with what is there.

A start launches the controller, then all brokers, and returns when these are not fenced and each
of them knows all. A stop goes the other way: brokers do a controlled shutdown, for which they need
the controller. Whatever happens, nothing is left running (see `child_process`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cordwood.client.admin import Admin, PartitionFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.client.settings import ClientSettings
from cordwood.metadata.formatting import read_directory
from cordwood.model.clock import SystemClock, pause
from cordwood.model.errors import ConfigError
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import fresh_uuid, uuid_text
from cordwood.storage.filesystem import OS
from cordwood.surfaces.local_cluster.kafka_installation import KafkaInstallation
from cordwood.surfaces.local_cluster.local_node import (
    Listening,
    LocalNode,
    NodeError,
    NodePlace,
    Role,
    State,
)
from cordwood.surfaces.local_cluster.ports import Ports

CONTROLLER_ID: Final = 100
BROKERS_MAX: Final = 50

_REPLICAS: Final = 3
_START_S: Final = 120.0
_STOP_S: Final = 60.0
#: A broker that asks for a controlled shutdown, and is not answered, waits for longer.
_STOP_WITHOUT_CONTROLLER_S: Final = 5.0
_POLL_S: Final = 0.05
_CALL_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Composition of a cluster.

    `kafka` runs the last `kafka_brokers` of the brokers. With `base_port` the brokers listen there
    and at the ports after it, then the controller; otherwise at free ports. `properties` are lines
    of server.properties of every node.
    """

    brokers: int = 3
    kafka_brokers: int = 0
    kafka: KafkaInstallation | None = None
    base_port: int = 0
    has_test_clock: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise ConfigError(f"{self.brokers} brokers: expected 1 to {BROKERS_MAX}")
        if not 0 <= self.kafka_brokers <= self.brokers:
            raise ConfigError(
                f"{self.kafka_brokers} brokers of Kafka: expected 0 to {self.brokers}, the number "
                "of all brokers"
            )


class Wiring(Protocol):
    """Connections between nodes: direct, or through a proxy that may cut them off."""

    def advertised_port(self, node_id: int, port: int) -> int:
        """The port at which others reach a node that listens at `port`."""

    def started(self, node_id: int, pid: int) -> None:
        """Registers the process that runs a node from now on."""

    def is_cut_off(self, node_id: int) -> bool:
        """Whether neither clients nor other nodes reach the node."""


class DirectWiring:
    """A `Wiring` without proxies: nodes reach each other where they listen."""

    def advertised_port(self, _node_id: int, port: int) -> int:
        """The node's own port."""
        return port

    def started(self, node_id: int, pid: int) -> None:
        """Does nothing."""

    def is_cut_off(self, _node_id: int) -> bool:
        """False: nothing is between the nodes."""
        return False


class ClusterListener(Protocol):
    """Callbacks while a cluster starts and stops; they may raise an error to end a start."""

    def waiting(self) -> None:
        """Runs repeatedly during a wait."""

    def started(self, node: LocalNode) -> None:
        """Shows that a node serves."""

    def stopped(self, node: LocalNode) -> None:
        """Shows that a node has ended, in the state that it has now."""


class SilentListener:
    """A `ClusterListener` that does nothing."""

    def waiting(self) -> None:
        """Does nothing."""

    def started(self, node: LocalNode) -> None:
        """Does nothing."""

    def stopped(self, node: LocalNode) -> None:
        """Does nothing."""


class LocalCluster:
    """A controller and its brokers, by their ids; `start`, then `close`."""

    def __init__(
        self,
        directory: Path,
        options: ClusterOptions,
        *,
        wiring: Wiring | None = None,
        listener: ClusterListener | None = None,
    ) -> None:
        """Makes what is missing of the directory; nothing runs yet.

        Args:
            directory: kept at the end.
            options: what it consists of.
            wiring: how nodes reach each other; directly if None.
            listener: is called while it starts and stops.

        Raises:
            DirectoryInUseError: another cluster runs there.
            CordwoodError: a port is not free, or the directory holds something else.
        """
        self.directory = directory.absolute()
        self.options = options
        self.ahead_ms = 0
        self._wiring = wiring or DirectWiring()
        self._listener = listener or SilentListener()
        self._clock = SystemClock()
        self._ports = Ports()
        OS.make_directory_durably(self.directory)
        self._lock = OS.lock(self.directory)
        try:
            self.cluster_id = self._find_cluster_id()
            self.controller, self.brokers = self._make_nodes()
        except BaseException:
            self.close()
            raise

    # ---- nodes

    def _find_cluster_id(self) -> str:
        found = read_directory(self._directory_of(CONTROLLER_ID) / "data")
        known = None if found is None else found.cluster_id
        return known or uuid_text(fresh_uuid(SystemRng()))

    def _directory_of(self, node_id: int) -> Path:
        role = Role.CONTROLLER if node_id == CONTROLLER_ID else Role.BROKER
        return self.directory / f"{role.value}-{node_id}"

    def _make_nodes(self) -> tuple[LocalNode, dict[int, LocalNode]]:
        options = self.options
        ids = [*range(1, options.brokers + 1), CONTROLLER_ID]
        places = {}
        for index, node_id in enumerate(ids):
            port = self._ports.reserve(options.base_port + index if options.base_port else 0)
            advertised_port = self._wiring.advertised_port(node_id, port)
            is_broker = node_id != CONTROLLER_ID
            is_kafka = is_broker and node_id > options.brokers - options.kafka_brokers
            places[node_id] = NodePlace(
                node_id=node_id,
                role=Role.BROKER if is_broker else Role.CONTROLLER,
                directory=self._directory_of(node_id),
                listening=Listening(port, advertised_port),
                http_port=None if is_kafka else self._ports.reserve(),
                kafka=options.kafka if is_kafka else None,
            )
        voters = f"{CONTROLLER_ID}@{places[CONTROLLER_ID].listening.address}"
        properties = {
            **default_properties(options.brokers),
            "controller.quorum.voters": voters,
            **options.properties,
        }
        nodes = {
            node_id: LocalNode(
                place,
                cluster_id=self.cluster_id,
                properties=properties,
                has_test_clock=options.has_test_clock and place.kafka is None,
            )
            for node_id, place in places.items()
        }
        return nodes.pop(CONTROLLER_ID), nodes

    @property
    def nodes(self) -> list[LocalNode]:
        """The controller, then the brokers."""
        return [self.controller, *self.brokers.values()]

    def node(self, node_id: int) -> LocalNode:
        """A node by its id.

        Raises:
            NodeError: there is no such node.
        """
        for each in self.nodes:
            if each.node_id == node_id:
                return each
        known = ", ".join(each.name for each in self.nodes)
        raise NodeError(f"there is no node {node_id}, but {known}")

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.address for each in self.brokers.values())

    # ---- start

    def start(self) -> None:
        """Returns when all brokers serve, and each knows all.

        Raises:
            NodeError: a node did not start, or not in time.
        """
        self.launch([self.controller])
        self.launch(self.brokers.values())
        self.wait_until_known(self.brokers)

    def launch(self, nodes: Iterable[LocalNode]) -> None:
        """Starts nodes, and returns when each serves.

        Raises:
            NodeError: a node runs already, did not start, or not in time.
        """
        waiting = list(nodes)
        for node in waiting:
            self._wiring.started(node.node_id, node.launch(self.ahead_ms))
        deadline = self._clock.monotonic_s() + _START_S
        while waiting:
            for node in [each for each in waiting if each.is_serving()]:
                waiting.remove(node)
                self._listener.started(node)
            if waiting:
                names = ", ".join(each.name for each in waiting)
                self._pause(deadline, f"{names} did not start: {waiting[0].end_of_log}")

    def wait_until_known(self, broker_ids: Collection[int]) -> None:
        """Returns when each of these brokers knows that all of them are not fenced."""
        for broker_id in broker_ids:
            self.wait_until(
                lambda broker_id=broker_id: self._known_to(broker_id) >= {*broker_ids},  # type: ignore[misc]
                what=f"broker {broker_id} knows brokers {', '.join(map(str, broker_ids))}",
                timeout_s=_START_S,
            )

    def _known_to(self, broker_id: int) -> set[int]:
        """The brokers that a broker returns to clients; none if it does not answer."""
        self.brokers[broker_id].require_process()
        try:
            with self.admin_at(self.brokers[broker_id].address) as admin:
                return {each.id for each in Admin(admin).describe_cluster().nodes}
        except ClientError:
            return set()

    def reachable(self) -> list[LocalNode]:
        """The brokers that run and are not cut off."""
        return [
            each
            for each in self.brokers.values()
            if each.state is State.RUNNING and not self._wiring.is_cut_off(each.node_id)
        ]

    def unfenced(self) -> set[int]:
        """The brokers that are not fenced, as the first broker that answers knows."""
        for broker in self.reachable():
            found = self._known_to(broker.node_id)
            if found:
                return found
        return set()

    # ---- use

    def admin_at(self, servers: str) -> ClusterClient:
        """A client of these brokers, which does not wait for long."""
        settings = ClientSettings(
            bootstrap_servers=servers, api_timeout_ms=_CALL_MS, request_timeout_ms=_CALL_MS
        )
        return ClusterClient(settings, warn=lambda _: None)

    def _topics_of(self, broker: LocalNode) -> dict[str, tuple[PartitionFacts, ...]]:
        """The partitions of all topics, as a broker knows them.

        Raises:
            ClientError: it does not answer.
        """
        with self.admin_at(broker.address) as client:
            return {each.name: each.partitions for each in Admin(client).topics()}

    def leader(self, topic: str, partition: int, timeout_s: float) -> int:
        """The broker that leads a partition, and is not stopped, paused or cut off.

        A broker that was cut off may not know of the election: the newest leader epoch counts.

        Raises:
            NodeError: there was none in time.
        """
        found: list[int] = []

        def is_led() -> bool:
            reachable = self.reachable()
            known = []
            for broker in reachable:
                with suppress(ClientError):
                    partitions = self._topics_of(broker).get(topic, ())
                    known += [each for each in partitions if each.partition == partition]
            newest = max(known, key=lambda each: each.leader_epoch, default=None)
            if newest is not None and newest.leader in {each.node_id for each in reachable}:
                found.append(newest.leader)
            return bool(found)

        what = f"{topic}-{partition} is led by a broker that runs and is not cut off"
        self.wait_until(is_led, what=what, timeout_s=timeout_s)
        return found[0]

    def wait_until_in_sync(self, topics: Collection[str], timeout_s: float) -> None:
        """Returns when topics are there, and all replicas of theirs, or of all, are in sync.

        All brokers that can be reached must know so, and no replica is on another one.

        Raises:
            NodeError: this is not so in time.
        """

        def is_so() -> bool:
            reachable = self.reachable()
            try:
                known = [self._topics_of(broker) for broker in reachable]
            except ClientError:
                return False
            ids = {each.node_id for each in reachable}
            return bool(known) and all(
                each == known[0] and are_in_sync(each, topics, ids) for each in known
            )

        what = f"all replicas of {', '.join(topics) or 'all topics'} are in sync"
        self.wait_until(is_so, what=what, timeout_s=timeout_s)

    def wait_until(
        self, is_so: Callable[[], bool], *, what: str, timeout_s: float = _START_S
    ) -> None:
        """Polls a condition.

        Raises:
            NodeError: it did not become true in time; the text says what was waited for.
        """
        deadline = self._clock.monotonic_s() + timeout_s
        while not is_so():
            self._pause(deadline, f"waited {timeout_s:g} s in vain: {what}")

    def _pause(self, deadline_s: float, what: str) -> None:
        self._listener.waiting()
        if self._clock.monotonic_s() > deadline_s:
            raise NodeError(what)
        pause(_POLL_S)

    def health(self, node: LocalNode, unfenced: Collection[int]) -> str:
        """The health of a node in a word or two."""
        if node.state is not State.RUNNING:
            return str(node.state.value)
        if node.place.role is Role.BROKER and node.node_id not in unfenced:
            return "fenced"
        if node.http_url is not None:
            health = node.health(_CALL_MS / 1000)
            return "disk failed" if health["offline_log_dirs"] else "ok"
        return "ok"

    # ---- end

    def stop(self, node: LocalNode) -> None:
        """Stops a node by a controlled shutdown.

        Raises:
            NodeError: it does not run, or did not end in time; it was killed then.
        """
        node.ask_to_stop()
        self._wait_until_stopped([node], _STOP_S)
        if node.state is not State.STOPPED:
            raise NodeError(f"{node.name} did not stop in {_STOP_S:g} s and was killed")

    def _wait_until_stopped(self, nodes: Iterable[LocalNode], timeout_s: float) -> None:
        deadline = self._clock.monotonic_s() + timeout_s
        for node in nodes:
            node.wait_until_stopped(max(0.0, deadline - self._clock.monotonic_s()))
            self._listener.stopped(node)

    def close(self) -> None:
        """Stops what runs, brokers first; kills what does not stop in time. May be called again."""
        nodes = [*self.brokers.values(), self.controller] if hasattr(self, "controller") else []
        try:
            brokers = [each for each in nodes[:-1] if self._ask_to_stop(each)]
            has_controller = bool(nodes) and self._controls()
            self._wait_until_stopped(
                brokers, _STOP_S if has_controller else _STOP_WITHOUT_CONTROLLER_S
            )
            if nodes and self._ask_to_stop(self.controller):
                self._wait_until_stopped([self.controller], _STOP_S)
        finally:
            for node in nodes:
                if node.has_process and not node.notice_end():
                    node.kill()
                    self._listener.stopped(node)
            self._ports.close()
            self._lock.release()

    def _controls(self) -> bool:
        """Whether the controller runs and can be reached."""
        controller = self.controller
        controller.notice_end()
        is_cut_off = self._wiring.is_cut_off(controller.node_id)
        return controller.state is State.RUNNING and not is_cut_off

    def _ask_to_stop(self, node: LocalNode) -> bool:
        """Asks a node to stop; whether it ran."""
        node.notice_end()
        if node.has_process:
            node.ask_to_stop()
            return True
        return False


def are_in_sync(
    known: Mapping[str, tuple[PartitionFacts, ...]], topics: Collection[str], ids: Collection[int]
) -> bool:
    """Whether these topics, or all, have all replicas in sync, and on these brokers."""
    wanted = {*topics} or known.keys()
    return wanted <= known.keys() and all(
        each.leader >= 0 and {*each.isr} == {*each.replicas} and {*each.replicas} <= {*ids}
        for topic in wanted
        for each in known[topic]
    )


def default_properties(brokers: int) -> dict[str, str]:
    """Settings for a cluster that is made for development: topics have replicas from the start.

    A broker that is gone is fenced after 6 s (Kafka: 9 s), the internal topics have few partitions,
    and a consumer of a new group does not wait for others.
    """
    replicas = str(min(_REPLICAS, brokers))
    internal = str(min(_REPLICAS - 1, brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": internal,
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": internal,
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }
