"""The blocking client of a cluster: carries out the effects of `client.core` with sockets."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from cordwood.client.connection import Connection
from cordwood.client.core import (
    BrokerEndpoint,
    ClientCore,
    ClientSettings,
    Close,
    Effect,
    Exchange,
    Once,
    Open,
    Pause,
    Resolve,
    Steps,
    Versions,
    Warn,
    resolve_addresses,
)
from cordwood.client.errors import ClientError
from cordwood.model.clock import Clock, SystemClock, pause

T = TypeVar("T")


class Cluster:
    """Connections to the brokers of one cluster, opened when first needed; for one thread."""

    def __init__(self, settings: ClientSettings, *, warn: Warn, clock: Clock | None = None) -> None:
        """Resolves the addresses; connects to none yet.

        Raises:
            BadAddressError: `bootstrap_servers` holds no address that can be resolved.
        """
        self.settings = settings
        self._connections: dict[int, Connection] = {}
        addresses = self._run(resolve_addresses(settings.bootstrap_servers, warn=warn))
        self._core = ClientCore(settings, addresses, warn=warn, clock=clock or SystemClock())

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
        """The end of a call that begins now, on the monotonic clock."""
        return self._core.deadline()

    def is_past(self, deadline: float) -> bool:
        """True once `deadline` is reached."""
        return self._core.is_past(deadline)

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
    ) -> Any:
        """Sends a request and waits for the answer, as `ClientCore.call` describes."""
        return self._run(
            self._core.call(
                api,
                fields,
                node_id=node_id,
                version_max=version_max,
                is_answered=is_answered,
                timeout_ms=timeout_ms,
                name=name,
            )
        )

    def any_node(self, *, name: str = "listNodes") -> int:
        """A broker that can be reached: below 0 one of the bootstrap addresses."""
        return self._run(self._core.connected(None, self.deadline(), name))

    def versions(self, node_id: int) -> Versions:
        """The lowest and highest version, both inclusive, of each API that a broker serves."""
        return self._run(self._core.versions(node_id))

    def supports(self, api: str, version: int = 0) -> bool:
        """True if the broker that answers next serves that version of the API."""
        return self._run(self._core.supports(api, version))

    def learn(self, nodes: Sequence[BrokerEndpoint]) -> None:
        """Replaces the known brokers by those of an answer."""
        self._core.learn(nodes)

    def _run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    result = self._carry_out(effect)
                except ClientError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Exchange():
                connection = self._connections[effect.connection]
                return connection.exchange(effect.request, timeout_s=effect.timeout_s)
            case Open():
                return self._open(effect)
            case Close():
                self._connections.pop(effect.connection).close()
            case Pause():
                pause(effect.seconds)
            case Once():
                return self._run(effect.steps)
            case Resolve():
                return _resolve(effect)
        return None

    def _open(self, effect: Open) -> bool:
        try:
            self._connections[effect.connection] = Connection(
                effect.ip,
                effect.port,
                client_id=self.settings.client_id,
                timeout_s=effect.timeout_s,
            )
        except OSError:
            return False
        return True


def _resolve(effect: Resolve) -> str | None:
    try:
        found = socket.getaddrinfo(effect.host, effect.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0])
