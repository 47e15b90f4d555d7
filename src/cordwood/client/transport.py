"""Transports of a client's bytes: one for each security protocol that is served.

No other module of the client knows sockets. What is encrypted, and how, is decided here alone.

Source: org.apache.kafka.common.network.ChannelBuilders, SelectableChannel (4.3.0).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cordwood.client.errors import UnservedProtocolError
from cordwood.model.security_protocol import SecurityProtocol

if TYPE_CHECKING:  # commands that block need no event loop
    import asyncio

P = TypeVar("P", bound="asyncio.BaseProtocol")


class Stream(Protocol):
    """The bytes of a connection, for one thread; each method raises OSError when it fails."""

    def settimeout(self, seconds: float, /) -> None:
        """Sets how long each of the calls below may take; then it raises TimeoutError."""

    def sendall(self, data: bytes, /) -> None:
        """Sends bytes."""

    def recv(self, size: int, /) -> bytes:
        """Waits for bytes, at most `size`; none if the node has closed the connection."""

    def close(self) -> None:
        """Closes the connection; idempotent."""


class Transport(Protocol):
    """Opens connections; both methods raise OSError where nobody listens."""

    def connect(self, host: str, ip: str, port: int, *, timeout_s: float) -> Stream:
        """Opens a connection that blocks its thread to an IP address; `host` is the node's name."""

    async def connect_in(
        self, loop: asyncio.AbstractEventLoop, made: Callable[[], P], host: str, port: int
    ) -> P:
        """Opens a connection in an event loop, whose bytes go to the protocol that `made` makes."""


class PlainTransport:
    """TCP without encryption."""

    def connect(self, _host: str, ip: str, port: int, *, timeout_s: float) -> Stream:
        """Connects a blocking socket with TCP_NODELAY."""
        found = socket.create_connection((ip, port), timeout_s)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    async def connect_in(
        self, loop: asyncio.AbstractEventLoop, made: Callable[[], P], host: str, port: int
    ) -> P:
        """Connects within an event loop, by the loop's own sockets."""
        _, protocol = await loop.create_connection(made, host, port)
        return protocol


TRANSPORTS: Final[Mapping[SecurityProtocol, Callable[[Mapping[str, str]], Transport]]] = {
    SecurityProtocol.PLAINTEXT: lambda _: PlainTransport(),
}
"""A function for each security protocol: it makes the transport, by a client's properties."""


def transport_of(protocol: SecurityProtocol, properties: Mapping[str, str]) -> Transport:
    """The transport for a security protocol.

    Args:
        protocol: of the listener to connect to.
        properties: of the client or the broker.

    Raises:
        UnservedProtocolError: there is none. A connection is never plain instead.
    """
    make = TRANSPORTS.get(protocol)
    if make is None:
        served = ", ".join(each.name for each in TRANSPORTS)
        raise UnservedProtocolError(f"{protocol.name} is not supported: use {served}")
    return make(properties)


class Transports:
    """The transports of a node, each made once by its properties."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """`properties` are those of server.properties."""
        self._properties = properties or {}
        self._made: dict[SecurityProtocol, Transport] = {}

    def of(self, protocol: SecurityProtocol) -> Transport:
        """The transport of a security protocol, made when it is first asked for."""
        found = self._made.get(protocol)
        if found is None:
            found = self._made[protocol] = transport_of(protocol, self._properties)
        return found


def resolve(host: str, port: int) -> str | None:
    """The first IP address of a host; None if it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0])
