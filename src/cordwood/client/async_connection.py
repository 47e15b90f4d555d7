"""Connections of an event loop, on which any number of requests wait for their answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from cordwood.client.errors import DisconnectedError, TimedOutError
from cordwood.client.session import ClientSession
from cordwood.client.wire import RequestFrame, ResponseFrame


class AsyncConnection(asyncio.Protocol):
    """A connection, whose session is READY once `handshake` has returned."""

    def __init__(self, client_id: str) -> None:
        self.session = ClientSession(client_id)
        self._waiting: dict[int, asyncio.Future[ResponseFrame]] = {}
        self._transport: asyncio.Transport | None = None

    async def handshake(self, *, timeout_s: float) -> None:
        """Agrees with the node on the session; closes the connection if that fails.

        Args:
            timeout_s: of each answer.

        Raises:
            TimedOutError, DisconnectedError: as `exchange`.
            RefusedError: the node refuses.
        """
        try:
            while (request := self.session.next_request()) is not None:
                self.session.on_answer(await self.exchange(request, timeout_s=timeout_s))
        except BaseException:
            self.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes asyncio's transport; this and the next two methods are its callbacks."""
        # uvloop's is no subclass of it.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Completes the requests whose responses have arrived; other bytes fail all."""
        try:
            answers = self.session.wire.receive(data)
        except DisconnectedError as error:
            self._fail(error)
            return
        for answer in answers:
            waiting = self._waiting.pop(answer.correlation_id, None)
            # A cancelled call no longer waits.
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails the requests in flight with DisconnectedError."""
        self._fail(DisconnectedError("the broker closed the connection"))

    def close(self) -> None:
        """Closes the connection: requests that wait fail with DisconnectedError."""
        self._fail(DisconnectedError("the client closed the connection"))

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    async def exchange(self, request: RequestFrame, *, timeout_s: float) -> Any:
        """Sends a request and waits for its answer.

        Raises:
            TimedOutError: no answer came in time.
            DisconnectedError: the connection ended first.
        """
        if self._transport is None:
            raise DisconnectedError("the broker closed the connection")
        correlation_id, data = self.session.wire.send(request)
        self._transport.write(data)
        waiting: asyncio.Future[ResponseFrame] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiting
        try:
            async with asyncio.timeout(timeout_s):
                answer = await waiting
        except TimeoutError as error:
            raise TimedOutError(f"Call timed out: no answer after {timeout_s:.0f} s") from error
        finally:
            self._waiting.pop(correlation_id, None)
        return answer.read()

    def _fail(self, error: DisconnectedError) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()
