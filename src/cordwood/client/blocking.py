"""Connections that block their thread, on which requests are answered one after another."""

from __future__ import annotations

from typing import Any, Final

from cordwood.client.errors import DisconnectedError, TimedOutError
from cordwood.client.session import ClientSession, NodeIdentity
from cordwood.client.settings import ClientSettings
from cordwood.client.transport import Stream, resolve
from cordwood.client.wire import RequestFrame, ResponseFrame
from cordwood.model.clock import pause

_RECEIVE_BYTES: Final = 1 << 16


class BlockingConnection:
    """An open connection, whose session is READY once `handshake` has returned."""

    def __init__(self, stream: Stream, client_id: str, identity: NodeIdentity | None) -> None:
        """Takes the stream, and closes it with `close`; `identity` as of a `ClientSession`."""
        self._stream = stream
        self.session = ClientSession(client_id, identity)

    def handshake(self, *, timeout_s: float) -> None:
        """Agrees with the node on the session; closes the connection if that fails.

        Args:
            timeout_s: of each answer.

        Raises:
            TimedOutError, DisconnectedError: as `exchange`.
            RefusedError: the node refuses.
        """
        try:
            while (request := self.session.next_request()) is not None:
                self.session.on_answer(self.exchange(request, timeout_s=timeout_s))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._stream.close()

    def exchange(self, request: RequestFrame, *, timeout_s: float) -> Any:
        """Sends a request and waits for its answer; None where none is to come.

        Raises:
            TimedOutError: no answer came in time.
            DisconnectedError: the connection ended first.
        """
        _, data = self.session.wire.send(request)
        try:
            self._stream.settimeout(timeout_s)
            self._stream.sendall(data)
            answer = self._receive() if request.is_answered else None
        except TimeoutError as error:
            raise TimedOutError(f"Call timed out: no answer after {timeout_s:.0f} s") from error
        except OSError as error:
            raise DisconnectedError(f"the broker closed the connection: {error}") from error
        return None if answer is None else answer.read()

    def _receive(self) -> ResponseFrame:
        while True:
            data = self._stream.recv(_RECEIVE_BYTES)
            if not data:
                raise DisconnectedError("the broker closed the connection")
            for answer in self.session.wire.receive(data):
                # One request is sent at a time, so the first answer is the only one.
                return answer


class BlockingNetwork:
    """A `Network` of the system's connections."""

    def __init__(self, settings: ClientSettings) -> None:
        """Takes the transport and the client's id from the settings."""
        self._transport = settings.transport
        self._client_id = settings.client_id

    def resolve(self, host: str, port: int) -> str | None:
        """Resolves by the system's resolver, blocking."""
        return resolve(host, port)

    def pause(self, seconds: float) -> None:
        """Sleeps in this thread."""
        pause(seconds)

    def connect(
        self, host: str, ip: str, port: int, *, timeout_s: float, identity: NodeIdentity | None
    ) -> BlockingConnection:
        """Connects, and negotiates versions within the same timeout."""
        stream = self._transport.connect(host, ip, port, timeout_s=timeout_s)
        found = BlockingConnection(stream, self._client_id, identity)
        found.handshake(timeout_s=timeout_s)
        return found
