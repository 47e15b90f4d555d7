"""A connection to one node, for requests that are tried once.

Another part decides what to do after an error: there is no retry here.

Source: org.apache.kafka.raft.KafkaNetworkChannel, server.NodeToControllerChannelManagerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from cordwood.client.async_connection import AsyncConnection
from cordwood.client.errors import ClientError, DisconnectedError
from cordwood.client.session import Versions
from cordwood.client.transport import Transports
from cordwood.format.messages.message import R, Request
from cordwood.model.security_protocol import SecurityProtocol


class NodeAddress(NamedTuple):
    """A host and a port, and the security protocol of the listener there."""

    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


class NodeConnection:
    """Requests to a node, on a connection that is opened when first needed.

    Requests may run at the same time: the node answers them in their order. A request that has no
    answer in time closes the connection, for the others, too; the next request opens another. So
    does a request after the address has changed.
    """

    def __init__(
        self,
        address: Callable[[], NodeAddress | None],
        *,
        client_id: str,
        timeout_s: float,
        transports: Transports | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: where the node is now; None while that is not known.
            client_id: what requests say of their sender.
            timeout_s: how long to wait for a connection, and for an answer, unless a call says.
            transports: of the node that connects; without properties if None.
        """
        self._address = address
        self._transports = transports or Transports()
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._link: _Link | None = None

    @property
    def versions(self) -> Versions:
        """The versions of the node that was asked last; empty if none has answered."""
        return {} if self._link is None else self._link.versions

    async def call(
        self,
        request: Request[R],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Sends a request and waits for the answer, whose error is not looked at.

        Raises:
            DisconnectedError: the address is not known, nobody listens there, or the connection
                ended.
            TimedOutError: no answer came in time.
            NotSupportedError: the node has no version of the API in common with this client.
            UnservedProtocolError: there is no transport for the listener's security protocol.
        """
        wait_s = timeout_s or self._timeout_s
        connection = await self._current().connected(self._client_id, self._transports, wait_s)
        frame = connection.session.request(request, version_max=version_max)
        try:
            answer: R = await connection.exchange(frame, timeout_s=wait_s)
        except ClientError:
            connection.close()
            raise
        return answer

    def close(self) -> None:
        """Closes the connection: requests that wait fail with DisconnectedError."""
        if self._link is not None:
            self._link.close()

    def _current(self) -> _Link:
        address = self._address()
        if address is None:
            raise DisconnectedError("the address of the node is not known")
        if self._link is None or self._link.address != address:
            self.close()
            self._link = _Link(address)
        return self._link


class _Link:
    """The connection to an address, and the versions of the node there."""

    def __init__(self, address: NodeAddress) -> None:
        self.address = address
        self.versions: Versions = {}
        self._connection: AsyncConnection | None = None
        self._opening = asyncio.Lock()

    async def connected(
        self, client_id: str, transports: Transports, timeout_s: float
    ) -> AsyncConnection:
        host, port, protocol = self.address
        transport = transports.of(protocol)
        loop = asyncio.get_running_loop()
        try:
            # The time of those that wait for the same attempt counts, too.
            async with asyncio.timeout(timeout_s), self._opening:
                if self._connection is None or not self._connection.is_open:
                    found = await transport.connect_in(
                        loop, lambda: AsyncConnection(client_id), host, port
                    )
                    await found.handshake(timeout_s=timeout_s)
                    self._connection = found
                    self.versions = found.session.versions
                return self._connection
        except OSError as error:  # TimeoutError is one of them
            raise DisconnectedError(f"no connection to {host}:{port}: {error}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
