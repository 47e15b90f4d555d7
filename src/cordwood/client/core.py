"""What a client does to reach a cluster, without I/O: addresses, brokers, versions, retries.

A call is a generator of effects. A shell carries out each effect and sends its result back, or
throws the `ClientError` with which it failed; the generator returns the call's result. The same
generators run under `client.cluster` (blocking) and `client.async_cluster` (asyncio).

Source: org.apache.kafka.clients.ClientUtils, NetworkClient, admin.KafkaAdminClient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from cordwood import __version__
from cordwood.client.errors import (
    BadAddressError,
    ClientError,
    DisconnectedError,
    NobodyListensError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
    require,
)
from cordwood.client.retry import Action, Backoff, repeated
from cordwood.client.wire import Request
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis import APIS
from cordwood.protocol.headers import API_VERSIONS

API_TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 30_000
RETRY_BACKOFF_MS = 100
RETRY_BACKOFF_MAX_MS = 1_000
_CONNECT_BACKOFF_MS, _CONNECT_BACKOFF_MAX_MS = 50, 1_000
_WAIT_MIN_S = 0.001
_API_VERSIONS_VERSION = 3

_KEYS: Mapping[str, int] = {api.module: key for key, api in APIS.items()}
ADDRESS = re.compile(r"(?:.*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
"""A host and a port (Utils.getPort)."""

Warn = Callable[[str], None]
Versions = Mapping[int, tuple[int, int]]
"""The lowest and highest version, both inclusive, of each API that a broker serves."""


class BrokerEndpoint(NamedTuple):
    """Where a broker listens; an id below 0 is a bootstrap address with an unknown broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Coordinator(NamedTuple):
    """What looks after a key: `GROUP`, or `TRANSACTION` for a transactional id."""

    kind: int
    key: str


GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have a coordinator (FindCoordinatorRequest.CoordinatorType)."""


class Address(NamedTuple):
    """A bootstrap address as given, and its IP address."""

    host: str
    ip: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach the cluster; times in ms.

    `name` is the client in warnings, such as `AdminClient clientId=adminclient-1`. `refused_ms` is
    how long the first connection is tried while all addresses refuse it, None as long as a call.
    """

    bootstrap_servers: str
    client_id: str = "adminclient-1"
    name: str = "AdminClient clientId=adminclient-1"
    api_timeout_ms: int = API_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
    refused_ms: int | None = None

    def named(self, name: str) -> ClientSettings:
        """The same, with another name in warnings."""
        return replace(self, name=name)

    def backoff(self) -> Backoff:
        """The times between the attempts of a call that begins now."""
        return Backoff(first_ms=self.retry_backoff_ms, max_ms=self.retry_backoff_max_ms)


# ---- effects


@dataclass(frozen=True, slots=True)
class Resolve:
    """Look a host up. Result: its first IP address, None if there is none."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Open:
    """Open a TCP connection, to be known by the number `connection`.

    Result: True if it opened, None if it was refused, else False.
    """

    connection: int
    ip: str
    port: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send a request. Result: the answer's message, None where none is to come.

    Fails with TimedOutError or DisconnectedError.
    """

    connection: int
    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection. Result: None."""

    connection: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait. Result: None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Once:
    """Run `steps`; calls that ask for the same key meanwhile share the run. Result: theirs."""

    key: int
    steps: Generator[Effect, Any, Any]


Effect = Resolve | Open | Exchange | Close | Pause | Once
T = TypeVar("T")
Steps = Generator[Effect, Any, T]


def resolve_addresses(text: str, *, warn: Warn) -> Steps[list[Address]]:
    """The addresses of `host:port,...` that can be resolved.

    Raises:
        BadAddressError: one has no port, or none can be resolved.
    """
    found = []
    for url in (part.strip() for part in text.split(",")):
        if not url:
            continue
        match = ADDRESS.fullmatch(url)
        if match is None:
            raise BadAddressError(f"Invalid url in bootstrap.servers: {url}")
        host, port = match[1], int(match[2])
        ip = yield Resolve(host, port)
        if ip is None:
            warn(
                f"Couldn't resolve server {url} from bootstrap.servers as DNS resolution "
                f"failed for {host}"
            )
        else:
            found.append(Address(host, ip, port))
    if not found:
        raise BadAddressError("No resolvable bootstrap urls given in bootstrap.servers")
    return found


def api_name(key: int) -> str | None:
    """An API's name as Kafka writes it, such as `DescribeConfigs`; None if it is unknown."""
    api = APIS.get(key)
    return None if api is None else api.name


VERSIONS_REQUEST = Request(
    API_VERSIONS,
    _API_VERSIONS_VERSION,
    {"client_software_name": "cordwood", "client_software_version": __version__},
)
"""What is asked first on each connection."""


def versions_of(answer: Any) -> Versions:
    """The versions in the answer to `VERSIONS_REQUEST`.

    Raises:
        RefusedError: it is an error.
    """
    require(answer.error_code)
    return {
        int(entry.api_key): (int(entry.min_version), int(entry.max_version))
        for entry in answer.api_keys
    }


def api_key(api: str) -> int:
    """The key of an API by the name of its module."""
    return _KEYS[api]


def usable_version(api: str, versions: Versions, version_max: int | None = None) -> int:
    """The highest version of an API that a node serves and this client knows.

    Raises:
        NotSupportedError: there is none, at most `version_max`.
    """
    low, high = versions.get(_KEYS[api], (0, -1))
    known = APIS[_KEYS[api]]
    usable = [
        version
        for version in range(known.min_version, known.max_version + 1)
        if low <= version <= high and (version_max is None or version <= version_max)
    ]
    if not usable:
        raise NotSupportedError(f"The node does not support {api.upper()}")
    return max(usable)


class ClientCore:
    """The brokers of one cluster, which of them are connected, and calls that find their broker.

    Invariant: every node of `_connections` has an entry in `_versions`.
    """

    def __init__(
        self, settings: ClientSettings, addresses: Sequence[Address], *, warn: Warn, clock: Clock
    ) -> None:
        self.settings = settings
        self._addresses = addresses
        self._warn = warn
        self._clock = clock
        self._are_all_refused = settings.refused_ms is not None
        self._connections: dict[int, int] = {}
        self._connections_opened = 0
        self._versions: dict[int, Versions] = {}
        self._nodes: dict[int, BrokerEndpoint] = {}
        self._coordinators: dict[Coordinator, BrokerEndpoint] = {}

    def deadline(self) -> float:
        """The end of a call that begins now, on the monotonic clock."""
        return self._clock.monotonic_s() + self.settings.api_timeout_ms / 1000

    def _left_s(self, deadline: float, limit_s: float) -> float:
        """The time for an effect: `limit_s`, but no more than is left until the deadline."""
        return min(limit_s, max(deadline - self._clock.monotonic_s(), _WAIT_MIN_S))

    def _wait(self, backoff: Backoff, deadline: float) -> Steps[bool]:
        """Pauses before the next attempt. Result: False if there is no time for one."""
        left_s = deadline - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        pause_s = backoff.next_s()
        yield Pause(min(pause_s, left_s))
        return pause_s < left_s

    def learn(self, nodes: Sequence[BrokerEndpoint]) -> None:
        """Replaces the known brokers by those of an answer."""
        self._nodes = {node.id: node for node in nodes}

    def call(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        node_id: int | None = None,
        coordinator: Coordinator | None = None,
        version_max: int | None = None,
        is_answered: bool = True,
        is_single: bool = False,
        timeout_ms: int | None = None,
        deadline: float | None = None,
        name: str | None = None,
    ) -> Steps[Any]:
        """Sends a request to a node, to a coordinator, or to any broker, and returns the answer.

        It is sent again as `client.retry` says, and after a timeout or a lost connection, until
        the call's deadline; then the last answer is returned with its error.

        Args:
            api: the name of its module.
            fields: of the request.
            node_id: of the broker or bootstrap address to ask.
            coordinator: what the broker to ask looks after; it is found first.
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
        backoff = self.settings.backoff()
        call_name = name or _java_name(api)
        while True:
            lost: tuple[int, int] | None = None
            try:
                target = node_id
                if coordinator is not None:
                    found = yield from self.find_coordinator(
                        coordinator, is_single=is_single, deadline=end
                    )
                    target = found.id
                is_tried_once = is_single or coordinator is not None
                node = yield from self.connected(target, end, call_name, is_single=is_tried_once)
                version = usable_version(api, self._versions[node], version_max)
                request = Request(_KEYS[api], version, fields, is_answered)
                lost = (node, self._connections[node])
                timeout_s = self._left_s(end, self.settings.request_timeout_ms / 1000)
                if timeout_ms is not None:
                    timeout_s = timeout_ms / 1000
                answer = yield Exchange(lost[1], request, timeout_s)
            except (DisconnectedError, TimedOutError):
                if lost is not None:
                    yield from self._drop(*lost)
                self._forget(coordinator)
                if is_single or not (yield from self._wait(backoff, end)):
                    raise
            else:
                action = repeated(api, answer)
                if action is Action.COORDINATOR:
                    self._forget(coordinator)
                if action is None or is_single:
                    return answer
                if not (yield from self._wait(backoff, end)):
                    return answer

    def find_coordinator(
        self, of: Coordinator, *, is_single: bool = False, deadline: float | None = None
    ) -> Steps[BrokerEndpoint]:
        """The broker that looks after a group or a transactional id.

        It waits until there is one, or with `is_single` asks once; `deadline` as with `call`.

        Raises:
            RefusedError: there is none in time, or it may not be asked for.
        """
        known = self._coordinators.get(of)
        if known is None:
            answer = yield from self.call(
                "find_coordinator",
                {"key": of.key, "key_type": of.kind, "coordinator_keys": [of.key]},
                is_single=is_single,
                deadline=deadline,
            )
            found: Any = answer
            if getattr(answer, "coordinators", None):
                (found,) = answer.coordinators
            require(int(found.error_code), getattr(found, "error_message", None))
            known = BrokerEndpoint(int(found.node_id), found.host, found.port)
            self._coordinators[of] = self._nodes[known.id] = known
        # The lists of brokers that came since may lack it.
        self._nodes.setdefault(known.id, known)
        return known

    def _forget(self, coordinator: Coordinator | None) -> None:
        if coordinator is not None:
            self._coordinators.pop(coordinator, None)

    def connected(
        self, node_id: int | None, deadline: float, name: str, *, is_single: bool = False
    ) -> Steps[int]:
        """Connects to a broker, and returns its id; below 0 is a bootstrap address.

        Raises:
            TimedOutError: none could be reached by the deadline.
            NobodyListensError: all addresses refuse the first connection, for `refused_ms`.
            DisconnectedError: none could be reached at once, with `is_single`.
        """
        began_s = self._clock.monotonic_s()
        backoff = Backoff(first_ms=_CONNECT_BACKOFF_MS, max_ms=_CONNECT_BACKOFF_MAX_MS)
        if is_single and node_id is not None and node_id >= 0 and node_id not in self._nodes:
            raise DisconnectedError(f"node {node_id} is not known")
        while True:
            for node, host, ip, port in self._candidates(node_id):
                timeout_s = self._left_s(deadline, self.settings.request_timeout_ms / 1000)
                is_connected = node in self._connections or (
                    yield Once(node, self._connect(node, host, ip, port, timeout_s))
                )
                if is_connected:
                    return node
            if is_single:
                raise DisconnectedError(f"no node could be reached. Call: {name}")
            self._require_listener(began_s)
            if not (yield from self._wait(backoff, deadline)):
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

    def versions(
        self, node_id: int, *, is_single: bool = False, deadline: float | None = None
    ) -> Steps[Versions]:
        """The versions of the APIs that a broker serves.

        `is_single` as with `connected`, `deadline` as with `call`.
        """
        end = self.deadline() if deadline is None else deadline
        yield from self.connected(node_id, end, "apiVersions", is_single=is_single)
        return self._versions[node_id]

    def supports(self, api: str, version: int = 0) -> Steps[bool]:
        """True if the broker that answers next serves that version of the API."""
        node = yield from self.connected(None, self.deadline(), "listNodes")
        low, high = self._versions[node].get(_KEYS[api], (0, -1))
        return low <= version <= high or version < low <= high

    def _candidates(self, node_id: int | None) -> list[tuple[int, str, str, int]]:
        """Ids with the host to show and where they listen, the connected ones first."""
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

    def _connect(self, node: int, host: str, ip: str, port: int, timeout_s: float) -> Steps[bool]:
        self._connections_opened += 1
        connection = self._connections_opened
        is_open = yield Open(connection, ip, port, timeout_s)
        self._are_all_refused = self._are_all_refused and is_open is None
        if not is_open:
            shown = f"/{ip}" if host == ip else f"{host}/{ip}"
            self._warn(
                f"[{self.settings.name}] Connection to node {node} ({shown}:{port}) could not "
                "be established. Node may not be available."
            )
            return False
        try:
            found = versions_of((yield Exchange(connection, VERSIONS_REQUEST, timeout_s)))
        except (DisconnectedError, TimedOutError):
            yield Close(connection)
            return False
        except ClientError:
            yield Close(connection)
            raise
        self._versions[node] = found
        self._connections[node] = connection
        return True

    def _drop(self, node: int, connection: int) -> Steps[None]:
        # Another call may have connected to the node again meanwhile.
        if self._connections.get(node) == connection:
            del self._connections[node]
        yield Close(connection)


def _java_name(api: str) -> str:
    first, *rest = api.split("_")
    return first + "".join(part.capitalize() for part in rest)
