"""The bytes between clients and a node: a transport for each security protocol that is served.

No other module of a node knows sockets. What is encrypted, and how, is decided here alone.

Source: org.apache.kafka.common.network.TransportLayer, PlaintextTransportLayer,
kafka.network.Acceptor (4.3.0).
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from cordwood.configs.listeners import Listener
from cordwood.model.errors import CordwoodError
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.serving.addresses import Address, unmapped
from cordwood.storage.reading.batch_heads import FileRange

_BACKLOG = 1024


class PortInUseError(CordwoodError):
    """Another process listens at the address."""


class Transport(Protocol):
    """The bytes of one connection; no method blocks.

    A method raises BlockingIOError or InterruptedError where it has to wait for the client, and
    another OSError where the connection is broken.
    """

    @property
    def fd(self) -> int:
        """The descriptor to watch; another connection may have it once this one is closed."""

    @property
    def has_input(self) -> bool:
        """Whether bytes can be received, or their end."""

    @property
    def holds_input(self) -> bool:
        """Whether there is input, though the descriptor does not become readable for it."""

    @property
    def reached(self) -> Address:
        """The address at which the client has reached this machine."""

    def handshake(self) -> None:
        """Agrees with the client on what is needed before bytes are exchanged, if anything."""

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receives bytes; returns their number, 0 at their end."""

    def send(self, data: bytes | memoryview, /, *, more: bool) -> int:
        """Sends what can be sent now; returns the number of bytes. `more` follows at once."""

    def send_file(self, part: FileRange, /) -> int:
        """Sends what can be sent now of a range of a file; returns the number of bytes."""

    def close(self) -> None:
        """Closes the connection; idempotent."""


class PlainTransport:
    """TCP without encryption, as `Transport`; files are sent by the kernel."""

    __slots__ = ("_socket", "fd")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fd = sock.fileno()

    @property
    def has_input(self) -> bool:
        """Whether bytes can be received, or their end."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def holds_input(self) -> bool:
        """Never: the kernel has all input that is not received."""
        return False

    @property
    def reached(self) -> Address:
        """The address of the socket's near end."""
        host, port = self._socket.getsockname()[:2]
        return Address(unmapped(str(host)), int(port))

    def handshake(self) -> None:
        """Does nothing: plain TCP has no handshake."""

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receives bytes; returns their number, 0 at their end."""
        return self._socket.recv_into(buffer)

    def send(self, data: bytes | memoryview, /, *, more: bool) -> int:
        """Sends what the socket takes; with `more` in one packet with what follows."""
        return self._socket.send(data, socket.MSG_MORE if more else 0)

    def send_file(self, part: FileRange, /) -> int:
        """Sends what the socket takes, by sendfile."""
        return os.sendfile(self.fd, part.file.fileno(), part.position, part.size_bytes)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


Accept = Callable[[socket.socket], Transport]
"""Makes the transport of an accepted connection."""

TRANSPORTS: Final[Mapping[SecurityProtocol, Callable[[Mapping[str, str]], Accept]]] = {
    SecurityProtocol.PLAINTEXT: lambda _: PlainTransport
}
"""Makers of the transports of a security protocol, by the properties of a node."""


class Accepted(NamedTuple):
    """A connection that a client has opened, and the client's address."""

    transport: Transport
    host: str
    port: int


class Acceptor:
    """The address of a listener, bound from the construction to `close`."""

    def __init__(
        self,
        listener: Listener,
        *,
        properties: Mapping[str, str],
        receive_buffer_bytes: int | None,
    ) -> None:
        """Binds; clients can connect from `listen` on.

        Args:
            listener: its address; port 0 is any that is free.
            properties: those of server.properties.
            receive_buffer_bytes: of accepted connections; the system's if None.

        Raises:
            PortInUseError: it is taken.
            CordwoodError: the address is none of this machine's.
        """
        self.listener = listener.name
        self._transport_of = TRANSPORTS[listener.protocol](properties)
        try:
            found = socket.getaddrinfo(
                listener.host or None,
                listener.port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )
            family, _, _, _, address = found[0]
            sock = self._socket = socket.socket(family, socket.SOCK_STREAM)
            try:
                _bind(sock, address, receive_buffer_bytes)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            where = f"{listener.host or '0.0.0.0'}:{listener.port}"  # noqa: S104  # in the text
            if error.errno == errno.EADDRINUSE:
                raise _in_use(where) from error
            raise CordwoodError(
                f"Socket server failed to bind to {where}: {error.strerror}"
            ) from error
        self.fd = sock.fileno()
        self.port = int(sock.getsockname()[1])

    def listen(self) -> None:
        """Has clients connect from now on; before, they are refused, and try again.

        A connection that waits to be accepted for longer than a client waits for ApiVersions makes
        clients of librdkafka hang that were asking for a commit when the broker was killed.

        Raises:
            PortInUseError: another process listens there since.

        Source: kafka.network.Acceptor.start, which opens the socket as late.
        """
        try:
            self._socket.listen(_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # two may have bound it before one listens
                host, port, *_ = self._socket.getsockname()
                raise _in_use(f"{host}:{port}") from error
            raise

    def accept(self, *, send_buffer_bytes: int | None) -> Accepted | None:
        """The next connection; None if none waits.

        Raises:
            OSError: no file descriptor is left.
        """
        try:
            sock, address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        return Accepted(self._transport_of(sock), str(address[0]), int(address[1]))

    def close(self) -> None:
        """Gives the address up; connections that wait are refused."""
        self._socket.close()


def _bind(sock: socket.socket, address: Any, receive_buffer_bytes: int | None) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if receive_buffer_bytes is not None:  # accepted sockets inherit it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.bind(address)
    sock.setblocking(False)


def _in_use(where: str) -> PortInUseError:
    return PortInUseError(
        f"Socket server failed to bind to {where}: Address already in use. Another process listens "
        "there: stop it, or choose another port with --port or in `listeners`."
    )
