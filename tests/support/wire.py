"""Kafka's protocol message by message: any API in any version, on one connection, as plain values.

Role: tests ask brokers what no client library would. Requests and responses are mappings of fields
by name, as `cordwood.protocol.data` has them. `tests/unit/protocol/test_messages_against_kio.py`
checks the codecs that are used here against another implementation.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, Self

from cordwood.format.messages.message import Message
from cordwood.format.messages.schema import Field, fields_of
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.apis import APIS
from cordwood.protocol.headers import API_VERSIONS, request_header
from cordwood.protocol.messages import encode, read, request_codec, response_codec

API_KEYS: Final[Mapping[str, int]] = {api.snake_name: key for key, api in APIS.items()}
"""API keys by names in snake case, such as `create_topics`."""

NO_UUID: Final = ZERO_UUID
FRAME_BYTES_MAX: Final = 1 << 28
_ERRORS: Final = frozenset({"error_code", "partition_error_code"})

Plain = dict[str, Any]


class ConnectionClosedError(CordwoodError):
    """The broker closed the connection instead of answering."""


def known_versions(api_key: int) -> range:
    """The versions of an API that Kafka 4.4 has."""
    api = APIS[api_key]
    return range(api.min_version, api.max_version + 1)


def plain(message: Message, version: int) -> Plain:
    """The fields that a version has; errors are names in small letters, no UUID is `NO_UUID`."""
    return {
        field.attribute: _plain(field, getattr(message, field.attribute), version)
        for field in fields_of(message.schema_fields, version)
    }


def _plain(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(field, each, version) for each in value]
    if isinstance(value, Message):
        return plain(value, version)
    if value is None and field.kind == "uuid":
        return NO_UUID
    if field.attribute in _ERRORS:
        return ErrorCode(value).name.lower()
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A request with its length before it; `body` is whatever is to be sent.

    The header is that of the nearest version that exists.
    """
    known = known_versions(api_key)
    nearest = min(max(version, known[0]), known[-1])
    flexible = request_codec(api_key, nearest).is_flexible
    header = request_header(api_key, version, correlation_id, client_id, flexible=flexible)
    return struct.pack(">i", len(header) + len(body)) + header + body


def request_body(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    """The bytes of a request after its header.

    What the version lacks is left out, what is missing takes its default.

    Raises:
        MalformedMessageError: a value does not fit its field.
    """
    return encode(request_codec(api_key, version), values)


def read_response(api_key: int, version: int, answer: bytes) -> Plain:
    """The plain values of a response; `answer` begins with its header."""
    codec = response_codec(api_key, version)
    has_tags = codec.is_flexible and api_key != API_VERSIONS
    return plain(read(codec, answer, 5 if has_tags else 4), version)


class Wire:
    """One connection to a broker; requests are answered one by one."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 120) -> None:
        self._address = (host, port)
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self.client_id: str | None = "wire"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api: str | int, version: int, values: Mapping[str, Any] | None = None) -> Plain:
        """The response to a request, as plain values.

        Raises:
            ConnectionClosedError: there was none.
        """
        key = API_KEYS[api] if isinstance(api, str) else api
        return self.ask_raw(key, version, request_body(key, version, values or {}))

    def ask_raw(self, api_key: int, version: int, body: bytes) -> Plain:
        """The response to a request whose bytes after the header are the caller's.

        Raises:
            ConnectionClosedError: there was none.
        """
        return read_response(api_key, version, self.exchange(api_key, version, body))

    def exchange(self, api_key: int, version: int, body: bytes) -> bytes:
        """The bytes of the response, its header included.

        Raises:
            ConnectionClosedError: there was none.
        """
        self.tell_raw(api_key, version, body)
        answer = self._receive()
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer

    def tell_raw(self, api_key: int, version: int, body: bytes) -> None:
        """Sends a request and waits for nothing."""
        self._correlation_id += 1
        frame = request_frame(api_key, version, self._correlation_id, self.client_id, body)
        try:
            self._connected().sendall(frame)
        except OSError as error:
            self.close()
            raise ConnectionClosedError("the connection was closed") from error

    def versions(self) -> dict[int, range]:
        """The versions that the broker advertises and this module can speak, by API key."""
        served = self.ask(
            "api_versions", 3, {"client_software_name": "wire", "client_software_version": "1"}
        )
        both = {}
        for api in served["api_keys"]:
            if (key := api["api_key"]) in APIS:
                known = known_versions(key)
                first = max(api["min_version"], known[0])
                both[key] = range(first, min(api["max_version"], known[-1]) + 1)
        return both

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _receive(self) -> bytes:
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            assert 0 <= size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
            return self._exactly(size)
        except (ConnectionError, TimeoutError) as error:
            self.close()
            raise ConnectionClosedError(f"no answer: {error or type(error).__name__}") from error

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._connected().recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("closed")
            parts += part
        return bytes(parts)
