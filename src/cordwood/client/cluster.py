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
    Coordinator,
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
from cordwood.client.retry import Backoff
from cordwood.model.clock import Clock, SystemClock, pause

T = TypeVar("T")


class Retries:
    """The attempts of one call, with a back-off between them, as long as its time lasts.

    `deadline` is its end on the monotonic clock, for the calls that are parts of it.
    """

    def __init__(self, backoff: Backoff, clock: Clock, limit_s: float) -> None:
        self._backoff = backoff
        self._clock = clock
        self.deadline = clock.monotonic_s() + limit_s

    def wait(self) -> bool:
        """Pauses before the next attempt; False if there is no time for one."""
        left_s = self.deadline - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        pause_s = self._backoff.next_s()
        pause(min(pause_s, left_s))
        return pause_s < left_s


class Cluster:
    """Connections to the brokers of one cluster, opened when first needed; for one thread."""

    def __init__(self, settings: ClientSettings, *, warn: Warn, clock: Clock | None = None) -> None:
        """Resolves the addresses; connects to none yet.

        Raises:
            BadAddressError: `bootstrap_servers` holds no address that can be resolved.
        """
        self.settings = settings
        self._connections: dict[int, Connection] = {}
        self._clock = clock or SystemClock()
        addresses = self._run(resolve_addresses(settings.bootstrap_servers, warn=warn))
        self._core = ClientCore(settings, addresses, warn=warn, clock=self._clock)

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

    def retries(self, timeout_s: float | None = None) -> Retries:
        """The attempts of a caller that repeats requests, by default as long as a call lasts."""
        limit_s = self.settings.api_timeout_ms / 1000 if timeout_s is None else timeout_s
        return Retries(self.settings.backoff(), self._clock, limit_s)

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
    ) -> Any:
        """Sends a request and waits for the answer, as `ClientCore.call` describes."""
        return self._run(
            self._core.call(
                api,
                fields,
                node_id=node_id,
                coordinator=coordinator,
                version_max=version_max,
                is_answered=is_answered,
                is_single=is_single,
                timeout_ms=timeout_ms,
                deadline=deadline,
                name=name,
            )
        )

    def any_node(self, *, name: str = "listNodes") -> int:
        """A broker that can be reached: below 0 one of the bootstrap addresses."""
        return self._run(self._core.connected(None, self.deadline(), name))

    def versions(
        self, node_id: int, *, is_single: bool = False, deadline: float | None = None
    ) -> Versions:
        """The lowest and highest version, both inclusive, of each API that a broker serves."""
        return self._run(self._core.versions(node_id, is_single=is_single, deadline=deadline))

    def find_coordinator(self, of: Coordinator, *, deadline: float | None = None) -> BrokerEndpoint:
        """The broker that looks after a group or a transactional id, waiting until there is one."""
        return self._run(self._core.find_coordinator(of, deadline=deadline))

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

    def _open(self, effect: Open) -> bool | None:
        try:
            self._connections[effect.connection] = Connection(
                effect.ip,
                effect.port,
                client_id=self.settings.client_id,
                timeout_s=effect.timeout_s,
            )
        except ConnectionRefusedError:
            return None
        except OSError:
            return False
        return True


def _resolve(effect: Resolve) -> str | None:
    try:
        found = socket.getaddrinfo(effect.host, effect.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0])
