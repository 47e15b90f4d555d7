"""One blocking TCP connection to a broker."""

from __future__ import annotations

import socket
from typing import Any

from cordwood.client.errors import DisconnectedError, TimedOutError
from cordwood.client.wire import Answer, Request, Wire

_RECEIVE_BYTES = 1 << 16


class Connection:
    """A connection on which requests are answered one after another."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float) -> None:
        """Connects.

        Raises:
            OSError: nobody listens there.
        """
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = Wire(client_id)

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._socket.close()

    def exchange(self, request: Request, *, timeout_s: float) -> Any:
        """Sends a request and waits for its answer; None where none is to come.

        Raises:
            TimedOutError: no answer came in time.
            DisconnectedError: the connection ended first.
        """
        _, data = self._wire.send(request)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
            answer = self._receive() if request.is_answered else None
        except TimeoutError as error:
            raise TimedOutError(f"Call timed out: no answer after {timeout_s:.0f} s") from error
        except OSError as error:
            raise DisconnectedError(f"the broker closed the connection: {error}") from error
        return None if answer is None else answer.read()

    def _receive(self) -> Answer:
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise DisconnectedError("the broker closed the connection")
            for answer in self._wire.receive(data):
                # One request is sent at a time, so the first answer is the only one.
                return answer
