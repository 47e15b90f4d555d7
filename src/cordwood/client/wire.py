"""The bytes of one connection to a broker: requests out, answers in. No I/O.

Requests may be pipelined: a broker answers the requests of a connection in their order.

Source: KIP-482 (request and response headers); org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any

from cordwood.client.errors import DisconnectedError
from cordwood.format.messages.message import Message
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.headers import API_VERSIONS, request_header
from cordwood.protocol.messages import encode, read, request_codec, response_codec

# A broker's own limit on a fetch is lower than this.
_RESPONSE_BYTES_MAX = 1 << 30
_SIZE = struct.Struct(">i")
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A request to encode."""

    api_key: int
    version: int
    message: Message
    is_answered: bool = True


@dataclass(frozen=True, slots=True)
class ResponseFrame:
    """An answer to `request` as it was received."""

    correlation_id: int
    request: RequestFrame
    data: bytes

    def read(self) -> Any:
        """The answer's message.

        Raises:
            MalformedMessageError: the bytes are not such a message.
        """
        request = self.request
        start = _SIZE.size
        if request.api_key == API_VERSIONS:
            # The answer has the oldest header in every version, and the oldest form where the node
            # does not know that of the request (KIP-511).
            is_unknown = self.data[start : start + 2] == _UNSUPPORTED_VERSION
            version = 0 if is_unknown else request.version
            return read(response_codec(API_VERSIONS, version), self.data, start)
        response = response_codec(request.api_key, request.version)
        return read(response, self.data, start + (1 if response.is_flexible else 0))


class Wire:
    """Frames and correlation ids of one connection.

    Invariant: `_pending` holds the requests that wait for an answer, in the order of sending.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._pending: deque[tuple[int, RequestFrame]] = deque()
        self._received = bytearray()

    def send(self, request: RequestFrame) -> tuple[int, bytes]:
        """The correlation id of the request, and its bytes to send."""
        codec = request_codec(request.api_key, request.version)
        body = encode(codec, request.message)
        self._correlation_id += 1
        header = request_header(
            request.api_key,
            request.version,
            self._correlation_id,
            self._client_id,
            flexible=codec.is_flexible,
        )
        if request.is_answered:
            self._pending.append((self._correlation_id, request))
        return self._correlation_id, _SIZE.pack(len(header) + len(body)) + header + body

    def receive(self, data: bytes) -> list[ResponseFrame]:
        """The answers that are complete once `data` has arrived.

        Raises:
            DisconnectedError: the bytes are no answer to the next request; close the connection.
        """
        self._received += data
        answers = []
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if not _SIZE.size <= size <= _RESPONSE_BYTES_MAX:
                raise DisconnectedError(f"the broker announced an answer of {size} bytes")
            end = _SIZE.size + size
            if len(self._received) < end:
                break
            with memoryview(self._received) as view:
                frame = bytes(view[_SIZE.size : end])
            del self._received[:end]
            answers.append(self._answer(frame))
        return answers

    def _answer(self, frame: bytes) -> ResponseFrame:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._pending:
            raise DisconnectedError(f"the broker answered request {correlation_id}, not sent")
        expected, request = self._pending.popleft()
        if correlation_id != expected:
            raise DisconnectedError(f"the broker answered request {correlation_id}, not {expected}")
        return ResponseFrame(correlation_id, request, frame)
