"""One blocking connection to a broker: framed requests out, their answers back in order.

Source: KIP-482 (request and response headers), org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from cordwood.protocol.messages import encode, read, request_class, response_class
from cordwood.surfaces.client.errors import DisconnectedError, TimedOutError

API_VERSIONS_KEY = 18

# Larger answers than a broker's own bound on a fetch come from no broker.
_RESPONSE_BYTES_MAX = 1 << 30
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_RECEIVE_BYTES = 1 << 16


Decode = Callable[[bytes], Any]


class Connection:
    """A TCP connection on which requests are answered one after another."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float) -> None:
        """Connects.

        Raises:
            OSError: nobody listens there.
        """
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id.encode()
        self._correlation_id = 0

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._socket.close()

    def call(
        self,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        *,
        timeout_s: float,
        is_answered: bool = True,
        decode: Decode | None = None,
    ) -> Any:
        """Sends a request and waits for its answer; gives None where none is to come.

        `decode` reads the answer's body where kio is not to.

        Raises:
            TimedOutError: no answer came in time.
            DisconnectedError: the connection ended first.
        """
        request = request_class(api_key, version)
        self._correlation_id += 1
        header = _HEADER.pack(api_key, version, self._correlation_id)
        header += struct.pack(">h", len(self._client_id)) + self._client_id
        if request.__flexible__:
            header += b"\0"
        body = encode(request, fields)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
            if not is_answered:
                return None
            answer = self._receive()
        except TimeoutError as error:
            raise TimedOutError(f"Call timed out: no answer after {timeout_s:.0f} s") from error
        except OSError as error:
            raise DisconnectedError(f"the broker closed the connection: {error}") from error
        return self._read(api_key, version, answer, decode)

    def _read(self, api_key: int, version: int, answer: bytes, decode: Decode | None) -> Any:
        (correlation_id,) = _SIZE.unpack_from(answer)
        if correlation_id != self._correlation_id:
            raise DisconnectedError(
                f"the broker answered request {correlation_id}, not {self._correlation_id}"
            )
        response = response_class(api_key, version)
        # An ApiVersions answer has the oldest header in every version (KIP-511).
        has_tags = response.__flexible__ and api_key != API_VERSIONS_KEY
        start = _SIZE.size + (1 if has_tags else 0)
        return read(response, answer, start) if decode is None else decode(answer[start:])

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if not _SIZE.size <= size <= _RESPONSE_BYTES_MAX:
            raise DisconnectedError(f"the broker announced an answer of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), _RECEIVE_BYTES))
            if not part:
                raise DisconnectedError("the broker closed the connection")
            parts += part
        return bytes(parts)
