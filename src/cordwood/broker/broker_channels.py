"""Requests to the other brokers of the cluster.

Source: org.apache.kafka.server.util.InterBrokerSendThread (4.3.0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cordwood.broker.replication.replication import ImageBrokers
from cordwood.client.node_connection import NodeConnection
from cordwood.client.session import api_key
from cordwood.client.transport import Transports
from cordwood.format.messages.message import R, Request
from cordwood.model.errors import CordwoodError
from cordwood.protocol.apis import APIS
from cordwood.serving.node_thread import NodeThread

_log = logging.getLogger(__name__)


class BrokerChannels:
    """A connection to each broker that is asked; belongs to the event loop's thread."""

    def __init__(
        self,
        brokers: ImageBrokers,
        thread: NodeThread,
        *,
        node_id: int,
        listener: str,
        timeout_ms: int,
        transports: Transports | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            brokers: says where each is.
            thread: the event loop's.
            node_id: of this broker.
            listener: inter.broker.listener.name.
            timeout_ms: request.timeout.ms.
            transports: of this node.
        """
        self._brokers = brokers
        self._thread = thread
        self._client_id = f"broker-{node_id}"
        self._listener = listener
        self._timeout_s = timeout_ms / 1000
        self._transports = transports
        self._connections: dict[int, NodeConnection] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def ask(self, broker_id: int, request: Request[R]) -> R:
        """Sends a request to a broker; returns the response, whatever its error code.

        Raises:
            ClientError: it has not answered.
        """
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = NodeConnection(
                lambda: self._brokers.address_of(broker_id, self._listener),
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                transports=self._transports,
            )
        return await connection.call(request)

    def ask_soon(
        self, broker_id: int, request: Request[R], answered: Callable[[R | None], object]
    ) -> None:
        """Sends a request, from slices, too; `answered` gets the response, or None without one."""

        api = APIS[api_key(request)].snake_name

        async def ask() -> None:
            answer = None
            try:
                answer = await self.ask(broker_id, request)
            except CordwoodError as error:
                _log.info("No answer to %s from broker %d: %s", api, broker_id, error)
            except Exception:  # who waits must not wait for ever
                _log.exception("Error while asking broker %d for %s", broker_id, api)
            answered(answer)

        def begin() -> None:
            task = self._thread.loop.create_task(ask())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

        self._thread.call_soon(begin)

    def close(self) -> None:
        """Closes the connections; requests in flight get no response."""
        for task in self._asking:
            task.cancel()
        for connection in self._connections.values():
            connection.close()
