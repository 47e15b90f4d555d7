"""The asyncio client of a cluster: carries out the effects of `client.core` in an event loop.

Calls may run at the same time; those to one broker share its connection and are pipelined.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from cordwood.client.async_connection import AsyncConnection
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
from cordwood.client.errors import ClientError, DisconnectedError
from cordwood.model.clock import Clock, SystemClock

T = TypeVar("T")


class AsyncCluster:
    """Connections to the brokers of one cluster, opened when first needed; for one event loop.

    Used as `async with AsyncCluster(...)`, which resolves the addresses.
    """

    def __init__(self, settings: ClientSettings, *, warn: Warn, clock: Clock | None = None) -> None:
        self.settings = settings
        self._warn = warn
        self._clock = clock or SystemClock()
        self._core = ClientCore(settings, (), warn=warn, clock=self._clock)
        self._connections: dict[int, AsyncConnection] = {}
        self._shared: dict[int, asyncio.Task[Any]] = {}

    async def __aenter__(self) -> Self:
        """Resolves the addresses; connects to none yet.

        Raises:
            BadAddressError: `bootstrap_servers` holds no address that can be resolved.
        """
        steps = resolve_addresses(self.settings.bootstrap_servers, warn=self._warn)
        addresses = await self._run(steps)
        self._core = ClientCore(self.settings, addresses, warn=self._warn, clock=self._clock)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = list(self._shared.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def call(
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
        name: str | None = None,
    ) -> Any:
        """Sends a request and waits for the answer, as `ClientCore.call` describes."""
        return await self._run(
            self._core.call(
                api,
                fields,
                node_id=node_id,
                coordinator=coordinator,
                version_max=version_max,
                is_answered=is_answered,
                is_single=is_single,
                timeout_ms=timeout_ms,
                name=name,
            )
        )

    async def versions(self, node_id: int, *, is_single: bool = False) -> Versions:
        """The lowest and highest version, both inclusive, of each API that a broker serves."""
        return await self._run(self._core.versions(node_id, is_single=is_single))

    async def find_coordinator(self, of: Coordinator) -> BrokerEndpoint:
        """The broker that looks after a group or a transactional id, waiting until there is one."""
        return await self._run(self._core.find_coordinator(of))

    async def supports(self, api: str, version: int = 0) -> bool:
        """True if the broker that answers next serves that version of the API."""
        return await self._run(self._core.supports(api, version))

    def learn(self, nodes: Sequence[BrokerEndpoint]) -> None:
        """Replaces the known brokers by those of an answer."""
        self._core.learn(nodes)

    async def _run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    result = await self._carry_out(effect)
                except ClientError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Exchange():
                return await self._exchange(effect)
            case Open():
                return await self._open(effect)
            case Close():
                connection = self._connections.pop(effect.connection, None)
                if connection is not None:
                    connection.close()
            case Pause():
                await asyncio.sleep(effect.seconds)
            case Once():
                return await self._once(effect)
            case Resolve():
                return await _resolve(effect)
        return None

    async def _exchange(self, effect: Exchange) -> Any:
        connection = self._connections.get(effect.connection)
        if connection is None:
            # Another call found it broken and closed it.
            raise DisconnectedError("the client closed the connection")
        return await connection.exchange(effect.request, timeout_s=effect.timeout_s)

    async def _open(self, effect: Open) -> bool | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(effect.timeout_s):
                _, connection = await loop.create_connection(
                    lambda: AsyncConnection(self.settings.client_id), effect.ip, effect.port
                )
        except ConnectionRefusedError:
            return None
        except OSError:
            # TimeoutError is one of them.
            return False
        self._connections[effect.connection] = connection
        return True

    async def _once(self, effect: Once) -> Any:
        task = self._shared.get(effect.key)
        if task is None:
            task = asyncio.create_task(self._run(effect.steps))
            self._shared[effect.key] = task
            task.add_done_callback(lambda _: self._shared.pop(effect.key))
        # When one call is cancelled, the others that share the task still wait for it.
        return await asyncio.shield(task)


async def _resolve(effect: Resolve) -> str | None:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(effect.host, effect.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0])
