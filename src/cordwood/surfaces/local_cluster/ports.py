"""Ports of 127.0.0.1 that are kept for processes which get them as a setting."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from cordwood.model.errors import CordwoodError

HOST: Final = "127.0.0.1"
_PORT_MAX: Final = 65_535


class PortTakenError(CordwoodError):
    """Another process uses a port that was asked for."""


class Ports:
    """Reserves ports until `close`.

    Each is bound by a socket that does not listen. The system gives such a port to no process that
    asks for any, while a process that binds it by its number, with SO_REUSEADDR as servers do, gets
    it; it may do so again after a restart.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def reserve(self, port: int = 0) -> int:
        """Reserves a port, any free one for 0, and returns it.

        Raises:
            PortTakenError: another process uses it, or there is no such port.
        """
        if not 0 <= port <= _PORT_MAX:
            raise PortTakenError(f"port {port}: expected 0 to {_PORT_MAX}")
        reserved = socket.socket()
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((HOST, port))
        except OSError as error:
            reserved.close()
            raise PortTakenError(f"port {port} of {HOST} is not free: {error.strerror}") from error
        self._sockets.append(reserved)
        found: int = reserved.getsockname()[1]
        return found

    def close(self) -> None:
        """Reserves none any more."""
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().close()
