"""Listening sockets, and their connections.

Source: org.apache.kafka.network.SocketServer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from cordwood.model.errors import CordwoodError
from cordwood.serving.addresses import reached_address
from cordwood.serving.api import Peer
from cordwood.serving.connection import Answer, Connection

_log = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_BACKLOG = 1024
_ACCEPTS_PER_TURN = 64
_IDLE_CHECK_S = 5.0
_ACCEPT_RETRY_S = 1.0
_INPUT_TURNS_MAX = 1000


class PortInUseError(CordwoodError):
    """Another process listens at the address."""


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

    def __init__(self, *, limits: ServerLimits, notes_reached: bool = False) -> None:
        """Nothing is bound yet.

        Args:
            limits: bounds of connections.
            notes_reached: whether peers have the address that they reached.
        """
        self._limits = limits
        self._notes_reached = notes_reached
        self._answer: Answer
        self._connections: dict[int, Connection] = {}
        # Says which peers have closed; of a connection that is not read from nothing else does.
        self._closed_peers: select.epoll
        self._per_ip: Counter[str] = Counter()
        self.counters: dict[str, ListenerCounters] = {}
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._idle_check: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bound: list[tuple[str, socket.socket]] = []
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
        """How many connections are open."""
        return len(self._connections)

    def peers(self) -> list[Peer]:
        """The other ends of all open connections."""
        return [connection.peer for connection in self._connections.values()]

    @property
    def connections(self) -> Collection[Connection]:
        """Those that are open."""
        return self._connections.values()

    def bind(self, listener: str, host: str, port: int) -> int:
        """Binds an address; clients can connect from `start` on.

        Args:
            listener: its name.
            host: an address or name, empty for all addresses.
            port: 0 for any that is free.

        Returns:
            The port.

        Raises:
            PortInUseError: it is taken.
            CordwoodError: the address is none of this machine's.
        """
        try:
            found = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                self._bind(sock, address)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            where = f"{host or '0.0.0.0'}:{port}"  # noqa: S104  # only in the error's text
            if error.errno == errno.EADDRINUSE:
                raise _in_use(where) from error
            raise CordwoodError(
                f"Socket server failed to bind to {where}: {error.strerror}"
            ) from error
        self._bound.append((listener, sock))
        self.counters[listener] = ListenerCounters()
        return int(sock.getsockname()[1])

    def _listen(self) -> None:
        """Has clients connect from now on; before, they are refused, and try again.

        A connection that waits to be accepted for longer than a client waits for ApiVersions makes
        clients of librdkafka hang that were asking for a commit when the broker was killed.

        Source: kafka.network.Acceptor.start, which opens the socket as late.
        """
        for _, sock in self._bound:
            try:
                sock.listen(_BACKLOG)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # two may have bound it before one listens
                    host, port, *_ = sock.getsockname()
                    raise _in_use(f"{host}:{port}") from error
                raise

    def _bind(self, sock: socket.socket, address: Any) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._limits.receive_buffer_bytes is not None:  # accepted sockets inherit it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer_bytes)
        sock.bind(address)
        sock.setblocking(False)

    def start(self, loop: asyncio.AbstractEventLoop, answer: Answer) -> None:
        """Serves on every address that was bound, by `answer`.

        Raises:
            PortInUseError: another process listens at one of them since.
        """
        self._listen()
        self._loop = loop
        self._answer = answer
        self._resume_accepting()
        self._closed_peers = select.epoll()
        loop.add_reader(self._closed_peers.fileno(), self._note_closed_peers)
        self._idle_check = loop.call_later(_IDLE_CHECK_S, self._close_idle)

    def _resume_accepting(self) -> None:
        if self._loop is None or self._accepting:
            return
        self._accepting = True
        for listener, sock in self._bound:
            self._loop.add_reader(sock.fileno(), self._accept, listener, sock)

    def _pause_accepting(self) -> None:
        """Lets new connections wait; a watched socket would be reported continuously."""
        if self._loop is None or not self._accepting:
            return
        self._accepting = False
        for _, sock in self._bound:
            self._loop.remove_reader(sock.fileno())

    def _accept(self, listener: str, listening: socket.socket) -> None:
        assert self._loop is not None
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._accepting:
                return
            if self._is_full():
                self._pause_accepting()
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor left: waiting clients are accepted later
                _log.warning("Cannot accept a connection on %s: %s", listener, error)
                self._pause_accepting()
                self._accept_retry = self._loop.call_later(_ACCEPT_RETRY_S, self._resume_accepting)
                return
            host = str(address[0])
            if self._is_one_too_many(host):
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._limits.send_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer_bytes)
            self._per_ip[host] += 1
            self.counters[listener].created += 1
            self._connections[sock.fileno()] = Connection(
                sock,
                Peer(
                    host,
                    f"{host}:{address[1]}",
                    listener,
                    reached=reached_address(sock) if self._notes_reached else None,
                ),
                loop=self._loop,
                answer=self._answer,
                scratch=self._scratch,
                max_request_bytes=self._limits.max_request_bytes,
                on_close=self._forget,
            )
            # Once for each connection; the kernel forgets a socket that is closed.
            self._closed_peers.register(sock.fileno(), select.EPOLLRDHUP | select.EPOLLET)

    def _note_closed_peers(self) -> None:
        for fd, _ in self._closed_peers.poll(0):
            connection = self._connections.get(fd)
            if connection is not None:
                connection.peer_closed()

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
        self.counters[connection.peer.listener].closed += 1
        host = connection.peer.host
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
        for _, sock in self._bound:
            sock.close()
        self._bound.clear()
        for connection in list(self._connections.values()):
            connection.close(None, abandon=True)
        if self._loop is not None and not self._closed_peers.closed:
            self._loop.remove_reader(self._closed_peers.fileno())
            self._closed_peers.close()


def _in_use(where: str) -> PortInUseError:
    return PortInUseError(
        f"Socket server failed to bind to {where}: Address already in use. Another process listens "
        "there: stop it, or choose another port with --port or in `listeners`."
    )
