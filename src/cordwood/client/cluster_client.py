"""The client of a cluster: which brokers there are, their connections, and calls that find theirs.

It decides what is sent where, and again after which failure; a `Network` connects and waits, so
that the decisions are tested without I/O.

Source: org.apache.kafka.clients.NetworkClient (4.4.0), admin.KafkaAdminClient (4.3.0); KIP-899,
KIP-1242.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from cordwood.client.blocking import BlockingNetwork
from cordwood.client.errors import (
    DisconnectedError,
    NobodyListensError,
    RefusedError,
    TimedOutError,
    require,
)
from cordwood.client.retry import Action, Backoff, repeated
from cordwood.client.session import ClientSession, NodeIdentity, Versions, api_key, supports
from cordwood.client.settings import ClientSettings, Warn, bootstrap_addresses
from cordwood.client.wire import RequestFrame
from cordwood.format.messages.message import Message, R, Request
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import FindCoordinatorRequest

_CONNECT_BACKOFF_MS, _CONNECT_BACKOFF_MAX_MS = 50, 1_000
_WAIT_MIN_S: Final = 0.001


class BrokerEndpoint(NamedTuple):
    """The address of a broker; an id below 0 is a bootstrap address with an unknown broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Coordinator(NamedTuple):
    """The coordinator of a key: of a `GROUP`, or of a transactional id (`TRANSACTION`)."""

    kind: int
    key: str


GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have a coordinator (FindCoordinatorRequest.CoordinatorType)."""


class Connection(Protocol):
    """An open connection, on which one request at a time is answered."""

    @property
    def session(self) -> ClientSession:
        """The session, which is READY."""

    def exchange(self, request: RequestFrame, *, timeout_s: float) -> Any:
        """Sends a request and waits for its answer; None where none is to come.

        Raises:
            TimedOutError: no answer came in time.
            DisconnectedError: the connection ended first.
        """

    def close(self) -> None:
        """Closes the connection; idempotent."""


class Network(Protocol):
    """Connects and waits: `BlockingNetwork`, or a table in a test."""

    def resolve(self, host: str, port: int) -> str | None:
        """The first IP address of a host; None if it has none."""

    def connect(
        self, host: str, ip: str, port: int, *, timeout_s: float, identity: NodeIdentity | None
    ) -> Connection:
        """Opens a connection to an IP address, and its session; `host` is the node's name.

        Raises:
            OSError: nobody listens there.
            TimedOutError, DisconnectedError: the node has not answered the session.
            RefusedError: the node refuses the session, as one does that has not that identity.
        """

    def pause(self, seconds: float) -> None:
        """Waits for `seconds`."""


class Retries:
    """The attempts of one call, with a back-off between them, as long as its time lasts.

    `deadline` is its end on the monotonic clock, for the calls that are parts of it.
    """

    def __init__(self, backoff: Backoff, *, clock: Clock, network: Network, deadline: float):
        self._backoff = backoff
        self._clock = clock
        self._network = network
        self.deadline = deadline

    def wait(self) -> bool:
        """Pauses before the next attempt; False if there is no time for one."""
        left_s = self.deadline - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        pause_s = self._backoff.next_s()
        self._network.pause(min(pause_s, left_s))
        return pause_s < left_s


class ClusterClient:
    """Connections to the brokers of one cluster, opened when first needed; for one thread."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        warn: Warn,
        clock: Clock | None = None,
        network: Network | None = None,
    ) -> None:
        """Resolves the addresses; connects to none yet.

        Args:
            settings: say where the cluster is.
            warn: gets what Kafka's client warns of.
            clock: the machine's if None.
            network: the system's if None.

        Raises:
            BadAddressError: `bootstrap_servers` holds no address that can be resolved.
        """
        self.settings = settings
        self._warn = warn
        self._clock = clock or SystemClock()
        self._network: Network = network or BlockingNetwork(settings)
        self._addresses = bootstrap_addresses(
            settings.bootstrap_servers, resolve=self._network.resolve, warn=warn
        )
        self._are_all_refused = settings.refused_ms is not None
        self._connections: dict[int, Connection] = {}
        self._nodes: dict[int, BrokerEndpoint] = {}
        self._cluster_id: str | None = None
        self._coordinators: dict[Coordinator, BrokerEndpoint] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; idempotent."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- time

    def deadline(self) -> float:
        """The end of a call that begins now, on the monotonic clock."""
        return self._clock.monotonic_s() + self.settings.api_timeout_ms / 1000

    def retries(self, timeout_s: float | None = None) -> Retries:
        """The attempts of a caller that repeats requests, by default as long as a call lasts."""
        end = self.deadline() if timeout_s is None else self._clock.monotonic_s() + timeout_s
        return self._retries(self.settings.backoff(), end)

    def _retries(self, backoff: Backoff, deadline: float) -> Retries:
        return Retries(backoff, clock=self._clock, network=self._network, deadline=deadline)

    def _left_s(self, deadline: float) -> float:
        """The time for an answer: that of a request, but no more than is left of the call."""
        left_s = max(deadline - self._clock.monotonic_s(), _WAIT_MIN_S)
        return min(self.settings.request_timeout_ms / 1000, left_s)

    # ---- calls

    def call(
        self,
        request: Request[R],
        *,
        node_id: int | None = None,
        coordinator: Coordinator | None = None,
        version_max: int | None = None,
        is_answered: bool = True,
        is_single: bool = False,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        name: str | None = None,
    ) -> R:
        """Sends a request to a node, to a coordinator, or to any broker, and returns the answer.

        It is sent again as `client.retry` says, and after a timeout or a lost connection, until
        the call's deadline; then the last answer is returned with its error.

        Args:
            request: an object of its class in `protocol.data`.
            node_id: of the broker or bootstrap address to ask.
            coordinator: its broker is found first, and asked.
            version_max: the highest version, inclusive.
            is_answered: whether an answer is to come.
            is_single: whether a node that cannot be reached, or does not answer, is tried once;
                so is finding the coordinator.
            timeout_ms: the time for an answer, also after the deadline; by default that of the
                settings, until the deadline.
            deadline: of the call that this one is a part of; by default it is one of its own.
            name: the call in errors.

        Raises:
            TimedOutError: no broker could be reached, or none answered.
            DisconnectedError: the connection ended, and the call's time is over.
            NotSupportedError: the broker has no version of the API in common with this client.
            RefusedError: no broker with the id `node_id` is known; no coordinator was found.
        """
        end = self.deadline() if deadline is None else deadline
        retries = self._retries(self.settings.backoff(), end)
        api = APIS[api_key(request)]
        while True:
            node: int | None = None
            try:
                target = node_id
                if coordinator is not None:
                    found = self.find_coordinator(coordinator, is_single=is_single, deadline=end)
                    target = found.id
                is_tried_once = is_single or coordinator is not None
                node = self._connected(
                    target, end, name or _java_name(api.name), is_single=is_tried_once
                )
                connection = self._connections[node]
                frame = connection.session.request(
                    request, version_max=version_max, is_answered=is_answered
                )
                timeout_s = self._left_s(end) if timeout_ms is None else timeout_ms / 1000
                answer: R = connection.exchange(frame, timeout_s=timeout_s)
            except (DisconnectedError, TimedOutError):
                if node is not None:
                    self._connections.pop(node).close()
                self._forget(coordinator)
                if is_single or not retries.wait():
                    raise
            else:
                action = repeated(api.snake_name, answer)
                if action is Action.COORDINATOR:
                    self._forget(coordinator)
                if action is None or is_single or not retries.wait():
                    return answer

    def find_coordinator(
        self, of: Coordinator, *, is_single: bool = False, deadline: float | None = None
    ) -> BrokerEndpoint:
        """The broker that is the coordinator of a group or a transactional id.

        It waits until there is one, or with `is_single` asks once; `deadline` as with `call`.

        Raises:
            RefusedError: there is none in time, or it may not be asked for.
        """
        known = self._coordinators.get(of)
        if known is None:
            answer = self.call(
                FindCoordinatorRequest(key=of.key, key_type=of.kind, coordinator_keys=[of.key]),
                is_single=is_single,
                deadline=deadline,
            )
            (found,) = answer.coordinators or (answer,)
            require(found.error_code, found.error_message)
            known = BrokerEndpoint(found.node_id, found.host, found.port)
            self._coordinators[of] = self._nodes[known.id] = known
        # The lists of brokers that came since may lack it.
        self._nodes.setdefault(known.id, known)
        return known

    def _forget(self, coordinator: Coordinator | None) -> None:
        if coordinator is not None:
            self._coordinators.pop(coordinator, None)

    # ---- nodes

    def learn(self, nodes: Sequence[BrokerEndpoint], cluster_id: str | None) -> None:
        """Replaces the known brokers, and the id of their cluster, by those of an answer."""
        self._nodes = {node.id: node for node in nodes}
        self._cluster_id = cluster_id

    def _rebootstrap(self) -> None:
        """Forgets the cluster, for the bootstrap addresses to say what is there now."""
        self.close()
        self._nodes, self._cluster_id = {}, None
        self._coordinators.clear()

    def any_node(self, *, name: str = "listNodes") -> int:
        """A broker that can be reached: below 0 one of the bootstrap addresses."""
        return self._connected(None, self.deadline(), name)

    def versions(
        self, node_id: int, *, is_single: bool = False, deadline: float | None = None
    ) -> Versions:
        """The lowest and highest version, both inclusive, of each API that a broker serves.

        `is_single` and `deadline` as with `call`.
        """
        end = self.deadline() if deadline is None else deadline
        self._connected(node_id, end, "apiVersions", is_single=is_single)
        return self._connections[node_id].session.versions

    def supports(self, request: type[Message], version: int = 0) -> bool:
        """Whether the broker that answers next serves a request in that or in a later version."""
        return supports(self._connections[self.any_node()].session.versions, request, version)

    def _connected(
        self, node_id: int | None, deadline: float, name: str, *, is_single: bool = False
    ) -> int:
        """Connects to a broker, and returns its id; below 0 is a bootstrap address.

        Raises:
            TimedOutError: none could be reached by the deadline.
            NobodyListensError: all addresses refuse the first connection, for `refused_ms`.
            DisconnectedError: none could be reached at once, with `is_single`.
        """
        began_s = self._clock.monotonic_s()
        backoff = Backoff(first_ms=_CONNECT_BACKOFF_MS, max_ms=_CONNECT_BACKOFF_MAX_MS)
        retries = self._retries(backoff, deadline)
        if is_single and node_id is not None and node_id >= 0 and node_id not in self._nodes:
            raise DisconnectedError(f"node {node_id} is not known")
        while True:
            for node, host, ip, port in self._candidates(node_id):
                if node in self._connections or self._connect(
                    node, host, ip, port, self._left_s(deadline)
                ):
                    return node
                if node >= 0 and node not in self._nodes:
                    break
            if is_single:
                raise DisconnectedError(f"no node could be reached. Call: {name}")
            self._require_listener(began_s)
            if not retries.wait():
                raise TimedOutError(f"Timed out waiting for a node assignment. Call: {name}")

    def _require_listener(self, began_s: float) -> None:
        """Raises NobodyListensError where every attempt since `began_s` was refused for long."""
        refused_ms = self.settings.refused_ms
        if refused_ms is None or not self._are_all_refused:
            return
        if self._clock.monotonic_s() - began_s >= refused_ms / 1000:
            tried = ", ".join(f"{each.host}:{each.port}" for each in self._addresses)
            raise NobodyListensError(
                f"no broker listens at {tried}: the connection is refused. Start one there, as "
                f"with `cordwood serve --port {self._addresses[0].port}`, or give the address of "
                "one that runs"
            )

    def _candidates(self, node_id: int | None) -> list[tuple[int, str, str, int]]:
        """Ids with the host to show, the host to connect to and the port; the connected first."""
        if node_id is not None and node_id >= 0:
            node = self._nodes.get(node_id)
            if node is None:
                raise RefusedError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {node_id} is not known")
            return [(node.id, node.host, node.host, node.port)]
        wanted = [
            (-1 - index, address.host, address.ip, address.port)
            for index, address in enumerate(self._addresses)
            if node_id is None or node_id == -1 - index
        ]
        if node_id is None:
            wanted += [(node.id, node.host, node.host, node.port) for node in self._nodes.values()]
        return sorted(wanted, key=lambda entry: entry[0] not in self._connections)

    def _connect(self, node: int, host: str, ip: str, port: int, timeout_s: float) -> bool:
        """Whether the node could be reached; one that is another broker has the cluster forgotten.

        Raises:
            RefusedError: it refuses the session.
        """
        identity = None
        if node >= 0 and self._cluster_id is not None:
            identity = NodeIdentity(self._cluster_id, node)
        try:
            connection = self._network.connect(
                host, ip, port, timeout_s=timeout_s, identity=identity
            )
        except OSError as error:
            if not isinstance(error, ConnectionRefusedError):
                self._are_all_refused = False
            shown = f"/{ip}" if host == ip else f"{host}/{ip}"
            self._warn(
                f"[{self.settings.name}] Connection to node {node} ({shown}:{port}) could not "
                "be established. Node may not be available."
            )
            return False
        except (DisconnectedError, TimedOutError):
            self._are_all_refused = False
            return False
        except RefusedError as error:
            if error.code != ErrorCode.REBOOTSTRAP_REQUIRED:
                raise
            self._rebootstrap()
            return False
        self._are_all_refused = False
        self._connections[node] = connection
        return True


def _java_name(api: str) -> str:
    return api[0].lower() + api[1:]
