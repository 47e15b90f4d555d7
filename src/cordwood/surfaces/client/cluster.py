"""A cluster as a client sees it: bootstrap, nodes, versions, and calls that find their broker.

Brokers are retried with Kafka's backoff until the call's time is over; what could not be reached is
reported in the words of Kafka's NetworkClient.

Source: org.apache.kafka.clients.ClientUtils, NetworkClient, admin.KafkaAdminClient.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from kio.schema.index import api_key_map, schema_name_map

from cordwood import __version__
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.error_codes import ErrorCode
from cordwood.surfaces.client.connection import API_VERSIONS_KEY, Connection, Decode
from cordwood.surfaces.client.errors import (
    BadAddressError,
    DisconnectedError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
    require,
)

API_TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 30_000
_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0
_API_VERSIONS_VERSION = 3

_KEYS: Mapping[str, int] = {name: key for key, name in api_key_map.items()}
ADDRESS = re.compile(r"(?:.*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
"""A host and a port (Utils.getPort)."""

Warn = Callable[[str], None]


class Node(NamedTuple):
    """A broker; an id below 0 is a bootstrap address whose broker is not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Address(NamedTuple):
    """A bootstrap address as given, and the IP it stands for."""

    host: str
    ip: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach the cluster; times in ms.

    `name` is the client in warnings, such as `AdminClient clientId=adminclient-1`.
    """

    bootstrap_servers: str
    client_id: str = "adminclient-1"
    name: str = "AdminClient clientId=adminclient-1"
    api_timeout_ms: int = API_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS

    def named(self, name: str) -> ClientSettings:
        """The same, with another name in warnings."""
        return replace(self, name=name)


def parse_addresses(text: str, *, warn: Warn) -> list[Address]:
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
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            warn(
                f"Couldn't resolve server {url} from bootstrap.servers as DNS resolution "
                f"failed for {host}"
            )
            continue
        found.append(Address(host, str(resolved[0][4][0]), port))
    if not found:
        raise BadAddressError("No resolvable bootstrap urls given in bootstrap.servers")
    return found


def api_name(key: int) -> str | None:
    """An API's name as Kafka writes it, such as `DescribeConfigs`; None if it is unknown."""
    name = api_key_map.get(key)
    return None if name is None else "".join(part.capitalize() for part in name.split("_"))


class Cluster:
    """Connections to the brokers of one cluster, opened when first needed."""

    def __init__(self, settings: ClientSettings, *, warn: Warn, clock: Clock | None = None) -> None:
        """Resolves the addresses; connects to none yet.

        Raises:
            BadAddressError: they are no addresses.
        """
        self.settings = settings
        self._warn = warn
        self._clock = clock or SystemClock()
        self._addresses = parse_addresses(settings.bootstrap_servers, warn=warn)
        self._connections: dict[int, Connection] = {}
        self._versions: dict[int, dict[int, tuple[int, int]]] = {}
        self._nodes: dict[int, Node] = {}

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

    def deadline(self) -> float:
        """When a call that begins now has taken all the time it may, on the monotonic clock."""
        return self._clock.monotonic_s() + self.settings.api_timeout_ms / 1000

    def is_past(self, deadline: float) -> bool:
        """True once `deadline` is over."""
        return self._clock.monotonic_s() >= deadline

    def call(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        node_id: int | None = None,
        version_max: int | None = None,
        is_answered: bool = True,
        timeout_ms: int | None = None,
        name: str | None = None,
        decode: Decode | None = None,
    ) -> Any:
        """Sends a request to `node_id`, or to any broker, and gives the answer.

        A connection that was closed since is opened again. `name` is the call in errors,
        `decode` reads the answer's body where kio is not to.

        Raises:
            TimedOutError: no broker could be reached, or none answered.
            NotSupportedError: the broker has no version of the API in common with this client.
        """
        deadline = self.deadline()
        timeout_s = (timeout_ms or self.settings.request_timeout_ms) / 1000
        while True:
            node = self._connected(node_id, deadline, name or _java_name(api))
            version = self._version(node, api, version_max)
            try:
                return self._connections[node].call(
                    _KEYS[api],
                    version,
                    fields,
                    timeout_s=timeout_s,
                    is_answered=is_answered,
                    decode=decode,
                )
            except (DisconnectedError, TimedOutError):
                self._drop(node)
                if self.is_past(deadline):
                    raise
                pause(_BACKOFF_FIRST_S)

    def any_node(self, *, name: str = "listNodes") -> int:
        """A broker that can be reached: below 0 one of the bootstrap addresses."""
        return self._connected(None, self.deadline(), name)

    def versions(self, node_id: int) -> dict[int, tuple[int, int]]:
        """The lowest and highest version, both inclusive, of each API that a broker serves."""
        self._connected(node_id, self.deadline(), "apiVersions")
        return self._versions[node_id]

    def supports(self, api: str, version: int = 0) -> bool:
        """True if the broker that answers next serves that version of the API."""
        node = self.any_node()
        low, high = self._versions[node].get(_KEYS[api], (0, -1))
        return low <= version <= high or version < low <= high

    def learn(self, nodes: list[Node]) -> None:
        """Takes over what an answer said of the brokers."""
        self._nodes = {node.id: node for node in nodes}

    def _version(self, node: int, api: str, version_max: int | None) -> int:
        low, high = self._versions[node].get(_KEYS[api], (0, -1))
        known = schema_name_map[api]
        usable = [
            version
            for version in known
            if low <= version <= high and (version_max is None or version <= version_max)
        ]
        if not usable:
            raise NotSupportedError(f"The node does not support {api.upper()}")
        return max(usable)

    def _candidates(self, node_id: int | None) -> list[tuple[int, str, str, int]]:
        """Ids with how to show them and where they listen, the connected ones first."""
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
        return sorted(wanted, key=lambda entry: entry[0] not in self._connections)

    def _connected(self, node_id: int | None, deadline: float, name: str) -> int:
        backoff = _BACKOFF_FIRST_S
        while True:
            for candidate, host, ip, port in self._candidates(node_id):
                if candidate in self._connections or self._connect(candidate, host, ip, port):
                    return candidate
            if self.is_past(deadline):
                raise TimedOutError(f"Timed out waiting for a node assignment. Call: {name}")
            pause(backoff)
            backoff = min(backoff * 2, _BACKOFF_MAX_S)

    def _connect(self, node_id: int, host: str, ip: str, port: int) -> bool:
        timeout_s = self.settings.request_timeout_ms / 1000
        try:
            connection = Connection(
                ip, port, client_id=self.settings.client_id, timeout_s=timeout_s
            )
        except OSError:
            shown = f"/{ip}" if host == ip else f"{host}/{ip}"
            self._warn(
                f"[{self.settings.name}] Connection to node {node_id} ({shown}:{port}) could not "
                "be established. Node may not be available."
            )
            return False
        try:
            self._versions[node_id] = _ask_versions(connection, timeout_s)
        except (DisconnectedError, TimedOutError):
            connection.close()
            return False
        self._connections[node_id] = connection
        return True

    def _drop(self, node: int) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()


def _ask_versions(connection: Connection, timeout_s: float) -> dict[int, tuple[int, int]]:
    answer = connection.call(
        API_VERSIONS_KEY,
        _API_VERSIONS_VERSION,
        {"client_software_name": "cordwood", "client_software_version": __version__},
        timeout_s=timeout_s,
    )
    require(answer.error_code)
    return {
        int(entry.api_key): (int(entry.min_version), int(entry.max_version))
        for entry in answer.api_keys
    }


def _java_name(api: str) -> str:
    first, *rest = api.split("_")
    return first + "".join(part.capitalize() for part in rest)
