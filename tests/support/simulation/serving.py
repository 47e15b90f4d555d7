"""Serving of a node in place of sockets and threads: requests out of frames, and slices.

Real: the dispatcher and the handlers behind it. Simulated: `network.server.Server` (sockets) and
`network.slices.Slices` (threads), which does here in one turn what it is given.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from cordwood.serving.api import Parked, Part
from cordwood.serving.principal import ANONYMOUS
from cordwood.serving.request_errors import UnansweredRequestError
from cordwood.serving.session import Session
from cordwood.storage.reading.batch_heads import FileRange
from support.simulation.event_loop import Process, SimulatedLoop
from support.simulation.network import Network, Transport

T = TypeVar("T")
_SIZE = struct.Struct(">i")


class Slices:
    """Slices of which each is all of the work, in a later turn."""

    def __init__(self, loop: SimulatedLoop) -> None:
        """Nothing is to do."""
        self._loop = loop
        self.cpu_s = 0.0
        self.unfinished_count = 0

    def run(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """The result of `run`, when it is done."""
        done: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                found = run()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(found)

        self._loop.call_soon(work)
        return done

    async def finish(self) -> None:
        """No work is left: it never takes more than a turn."""


class SimulatedServer:
    """Server that answers the requests of connections."""

    def __init__(self, network: Network, process: Process, *ports: tuple[str, int]) -> None:
        """Listens to nobody yet.

        Args:
            network: the network.
            process: of the node.
            ports: names of listeners, and where they are.
        """
        self._network = network
        self._process = process
        self._ports = ports
        self._answer: Callable[[memoryview, Session], Any] | None = None

    def start(self, _loop: object, answer: Callable[[memoryview, Session], Any]) -> None:
        """Takes connections from now on."""
        self._answer = answer
        for name, port in self._ports:
            self._network.listen(self._process, port, self._acceptor(name))

    def _acceptor(self, listener: str) -> Callable[[Transport], asyncio.Protocol]:
        answer = self._answer
        assert answer is not None, "started"

        def accept(transport: Transport) -> asyncio.Protocol:
            session = Session("10.0.0.1", transport.process.name, listener)
            session.authenticate(ANONYMOUS)
            return _Connection(transport, answer, session)

        return accept

    @staticmethod
    def after_input(run: Callable[[], None]) -> None:
        """Runs at once: all that has arrived was read when it arrived."""
        run()


class _Connection(asyncio.Protocol):
    """Requests in, answers out, in order, one in work at a time."""

    def __init__(
        self, transport: Transport, answer: Callable[[memoryview, Session], Any], session: Session
    ) -> None:
        self._transport = transport
        self._answer = answer
        self._session = session
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._waiting: asyncio.Future[Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Collects frames."""
        received = self._received
        received += data
        while len(received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received)
            if len(received) < _SIZE.size + size:
                break
            self._frames.append(bytes(received[_SIZE.size : _SIZE.size + size]))
            del received[: _SIZE.size + size]
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives up requests."""
        self._frames.clear()
        if self._waiting is not None:
            self._waiting.cancel()

    def _work(self) -> None:
        while self._frames and self._waiting is None:
            try:
                self._reply(self._answer(memoryview(self._frames.popleft()), self._session))
            except UnansweredRequestError:
                self._transport.abort()

    def _reply(self, reply: Any) -> None:
        if isinstance(reply, Parked):
            reply = reply.answer
        if reply is None:
            return
        if isinstance(reply, list):
            self._transport.write(b"".join(map(_bytes_of, reply)))
            return
        waiting = self._waiting = asyncio.ensure_future(reply)
        waiting.add_done_callback(self._answered)

    def _answered(self, waiting: asyncio.Future[Any]) -> None:
        self._waiting = None
        if waiting.cancelled():
            return
        if waiting.exception() is not None:
            self._transport.abort()
            return
        self._reply(waiting.result())
        self._work()


def _bytes_of(part: Part) -> bytes:
    return part.read() if isinstance(part, FileRange) else bytes(part)
