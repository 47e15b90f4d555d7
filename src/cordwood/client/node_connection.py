"""A connection to one node at a known address, for requests that are tried once.

Another part decides what to do after an error: there is no retry here.

Source: org.apache.kafka.raft.KafkaNetworkChannel, server.NodeToControllerChannelManagerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cordwood.client.async_connection import AsyncConnection
from cordwood.client.core import VERSIONS_REQUEST, Versions, api_key, usable_version, versions_of
from cordwood.client.errors import ClientError, DisconnectedError
from cordwood.client.wire import Request


class NodeAddress(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class NodeConnection:
    """Requests to the node at an address, on a connection that is opened when first needed.

    Requests may run at the same time: the node answers them in their order. A request that has no
    answer in time closes the connection, for the others, too; the next request opens another.
    """

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float) -> None:
        """Connects to nothing yet.

        Args:
            host: a name or an address.
            port: where it listens.
            client_id: what requests say of their sender.
            timeout_s: how long to wait for a connection, and for an answer, unless a call says.
        """
        self.host = host
        self.port = port
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connection: AsyncConnection | None = None
        self._versions: Versions = {}
        self._opening = asyncio.Lock()

    @property
    def versions(self) -> Versions:
        """What the node serves; empty before the first connection."""
        return self._versions

    async def call(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Sends a request and waits for the answer, whose error is not looked at.

        Raises:
            DisconnectedError: nobody listens there, or the connection ended.
            TimedOutError: no answer came in time.
            NotSupportedError: the node has no version of the API in common with this client.
        """
        wait_s = timeout_s or self._timeout_s
        connection = await self._open(wait_s)
        version = usable_version(api, self._versions, version_max)
        try:
            return await connection.exchange(
                Request(api_key(api), version, fields), timeout_s=wait_s
            )
        except ClientError:
            connection.close()
            raise

    def close(self) -> None:
        """Closes the connection: requests that wait fail with DisconnectedError."""
        if self._connection is not None:
            self._connection.close()

    async def _open(self, timeout_s: float) -> AsyncConnection:
        try:
            # The time of those that wait for the same attempt counts, too.
            async with asyncio.timeout(timeout_s), self._opening:
                known = self._connection
                if known is not None and known.is_open:
                    return known
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: AsyncConnection(self._client_id), self.host, self.port
                )
                try:
                    answer = await connection.exchange(VERSIONS_REQUEST, timeout_s=timeout_s)
                    self._versions = versions_of(answer)
                except BaseException:
                    connection.close()
                    raise
                self._connection = connection
                return connection
        except OSError as error:  # TimeoutError is one of them
            raise DisconnectedError(f"no connection to {self.host}:{self.port}: {error}") from error


class MovingNodeConnection:
    """Requests to a node whose address may change, as `NodeConnection`."""

    def __init__(
        self, address: Callable[[], NodeAddress | None], *, client_id: str, timeout_s: float
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: where the node is now; None while that is not known.
            client_id: as `NodeConnection`.
            timeout_s: as `NodeConnection`.
        """
        self._address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connection: NodeConnection | None = None

    @property
    def versions(self) -> Versions:
        """What the node serves that was asked last; empty if none has answered."""
        return {} if self._connection is None else self._connection.versions

    async def call(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """As `NodeConnection.call`.

        Raises:
            DisconnectedError: the address is not known, or as there.
            ClientError: as there.
        """
        return await self._current().call(api, fields, version_max=version_max, timeout_s=timeout_s)

    def close(self) -> None:
        """Closes the connection: requests that wait fail with DisconnectedError."""
        if self._connection is not None:
            self._connection.close()

    def _current(self) -> NodeConnection:
        address = self._address()
        if address is None:
            raise DisconnectedError("the address of the node is not known")
        known = self._connection
        if known is None or (known.host, known.port) != address:
            self.close()
            self._connection = known = NodeConnection(
                *address, client_id=self._client_id, timeout_s=self._timeout_s
            )
        return known
