"""The listeners of a node, and their connections.

Source: org.apache.kafka.network.SocketServer.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cordwood.configs.listeners import Listener
from cordwood.serving.connection import Connection, RequestHandler
from cordwood.serving.session import Session
from cordwood.serving.transport import Acceptor

_log = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_ACCEPTS_PER_TURN = 64
_IDLE_CHECK_S = 5.0
_ACCEPT_RETRY_S = 1.0
_INPUT_TURNS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of what connections may ask for; None for none. Sizes are in bytes.

    `connections_max_by_ip` holds addresses with a bound of their own; a negative time of silence is
    none, and buffers of None are the system's.
    """

    max_request_bytes: int = 104_857_600
    connections_max: int | None = None
    connections_max_per_ip: int | None = None
    connections_max_by_ip: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


class ListenerCounters:
    """Connections of one listener since the start: accepted, closed, of these for being idle."""

    __slots__ = ("closed", "created", "expired")

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0
        self.expired = 0


class Server:
    """Accepts connections on any number of listeners, and has their requests answered."""

    def __init__(
        self,
        *,
        limits: ServerLimits,
        properties: Mapping[str, str] | None = None,
        notes_reached: bool = False,
    ) -> None:
        """Nothing is bound yet.

        Args:
            limits: bounds of connections.
            properties: those of server.properties, for transports.
            notes_reached: whether sessions have the address that they reached.
        """
        self._limits = limits
        self._properties = properties or {}
        self._notes_reached = notes_reached
        self._answer: RequestHandler
        self._connections: dict[int, Connection] = {}
        # Says which clients have closed; of a connection that is not read from nothing else does.
        self._closed_clients: select.epoll
        self._per_ip: Counter[str] = Counter()
        self.counters: dict[str, ListenerCounters] = {}
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._idle_check: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acceptors: list[Acceptor] = []
        self._accepting = False
        self._accept_retry: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> ServerLimits:
        """The current limits; changes apply to new connections."""
        return self._limits

    @limits.setter
    def limits(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._resume_accepting()

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def sessions(self) -> list[Session]:
        """The sessions of all open connections."""
        return [connection.session for connection in self._connections.values()]

    @property
    def connections(self) -> Collection[Connection]:
        """The open connections."""
        return self._connections.values()

    def bind(self, listener: Listener) -> int:
        """Binds the address of a listener; clients can connect from `start` on.

        Returns:
            The port.

        Raises:
            PortInUseError: it is taken.
            CordwoodError: the address is none of this machine's.
        """
        acceptor = Acceptor(
            listener,
            properties=self._properties,
            receive_buffer_bytes=self._limits.receive_buffer_bytes,
        )
        self._acceptors.append(acceptor)
        self.counters[listener.name] = ListenerCounters()
        return acceptor.port

    def start(self, loop: asyncio.AbstractEventLoop, answer: RequestHandler) -> None:
        """Serves on every address that was bound, by `answer`.

        Raises:
            PortInUseError: another process listens at one of them since.
        """
        for each in self._acceptors:
            each.listen()
        self._loop = loop
        self._answer = answer
        self._resume_accepting()
        self._closed_clients = select.epoll()
        loop.add_reader(self._closed_clients.fileno(), self._note_closed_clients)
        self._idle_check = loop.call_later(_IDLE_CHECK_S, self._close_idle)

    def _resume_accepting(self) -> None:
        if self._loop is None or self._accepting:
            return
        self._accepting = True
        for each in self._acceptors:
            self._loop.add_reader(each.fd, self._accept, each)

    def _pause_accepting(self) -> None:
        """Lets new connections wait; a watched socket would be reported continuously."""
        if self._loop is None or not self._accepting:
            return
        self._accepting = False
        for each in self._acceptors:
            self._loop.remove_reader(each.fd)

    def _accept(self, acceptor: Acceptor) -> None:
        assert self._loop is not None
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._accepting:
                return
            if self._is_full():
                self._pause_accepting()
                return
            try:
                accepted = acceptor.accept(send_buffer_bytes=self._limits.send_buffer_bytes)
            except OSError as error:  # no file descriptor left: waiting clients are accepted later
                _log.warning("Cannot accept a connection on %s: %s", acceptor.listener, error)
                self._pause_accepting()
                self._accept_retry = self._loop.call_later(_ACCEPT_RETRY_S, self._resume_accepting)
                return
            if accepted is None:
                return
            transport, host, port = accepted
            if self._is_one_too_many(host):
                transport.close()
                continue
            self._per_ip[host] += 1
            self.counters[acceptor.listener].created += 1
            self._connections[transport.fd] = Connection(
                transport,
                Session(
                    host,
                    f"{host}:{port}",
                    acceptor.listener,
                    reached=transport.reached if self._notes_reached else None,
                ),
                loop=self._loop,
                answer=self._answer,
                scratch=self._scratch,
                max_request_bytes=self._limits.max_request_bytes,
                on_close=self._forget,
            )
            # Once for each connection; the kernel forgets a descriptor that is closed.
            self._closed_clients.register(transport.fd, select.EPOLLRDHUP | select.EPOLLET)

    def _note_closed_clients(self) -> None:
        for fd, _ in self._closed_clients.poll(0):
            connection = self._connections.get(fd)
            if connection is not None:
                connection.client_closed()

    def _is_full(self) -> bool:
        """Whether max.connections are open: more wait until one is closed, as in Kafka."""
        total = self._limits.connections_max
        return total is not None and len(self._connections) >= total

    def _is_one_too_many(self, host: str) -> bool:
        """Source: kafka.network.ConnectionQuotas.inc."""
        limits = self._limits
        per_ip = limits.connections_max_by_ip.get(host, limits.connections_max_per_ip)
        if per_ip is None or self._per_ip[host] < per_ip:
            return False
        _log.info(
            "Rejected connection from /%s, address already has the configured maximum of %s "
            "connections.",
            host,
            per_ip,
        )
        return True

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.fd]
        self.counters[connection.session.listener].closed += 1
        host = connection.session.host
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        self._resume_accepting()  # a connection or a file descriptor is free

    def _close_idle(self) -> None:
        assert self._loop is not None
        self.close_idle(self._loop.time())
        self._idle_check = self._loop.call_later(_IDLE_CHECK_S, self._close_idle)

    def close_idle(self, now_s: float) -> None:
        """Closes what has been silent for connections.max.idle.ms at `now_s` of the loop's time.

        As in Kafka, that includes connections whose requests wait for other clients.
        """
        if self._limits.connections_max_idle_ms < 0:
            return
        line = now_s - self._limits.connections_max_idle_ms / 1000
        for connection in list(self._connections.values()):
            if connection.last_active_s < line and not connection.is_working:
                connection.close("it was idle for connections.max.idle.ms")

    def after_input(self, run: Callable[[], None]) -> None:
        """Calls `run` when the requests that have arrived by now have been read.

        Those behind a request that is not answered yet are not waited for; nor is a client that
        sends faster than it is served, after so many turns of the loop.
        """
        self._read_first(
            [each for each in self.connections if each.has_input], _INPUT_TURNS_MAX, run
        )

    def _read_first(
        self, connections: list[Connection], turns: int, run: Callable[[], None]
    ) -> None:
        assert self._loop is not None
        waiting = [each for each in connections if each.has_input]
        if waiting and turns:
            self._loop.call_soon(self._read_first, waiting, turns - 1, run)
        else:
            run()

    def stop(self) -> None:
        """Closes listeners and connections."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._accept_retry is not None:
            self._accept_retry.cancel()
        self._pause_accepting()
        for each in self._acceptors:
            each.close()
        self._acceptors.clear()
        for connection in list(self._connections.values()):
            connection.close(None, abandon=True)
        if self._loop is not None and not self._closed_clients.closed:
            self._loop.remove_reader(self._closed_clients.fileno())
            self._closed_clients.close()
