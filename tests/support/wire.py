"""Kafka's protocol message by message: any API in any version, on one connection, as plain values.

Role: tests ask brokers what no client library would. Requests and responses are mappings with the
names of kio's schemas; nothing here comes from `cordwood.protocol`, which is under test.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import io
import socket
import struct
import types
import typing
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from cordwood.model.errors import CordwoodError

API_KEYS: Final[Mapping[str, int]] = {name: key for key, name in api_key_map.items()}
"""API keys by kio's names, such as `create_topics`."""

API_VERSIONS: Final = API_KEYS["api_versions"]
NO_UUID: Final = uuid.UUID(int=0)
FRAME_BYTES_MAX: Final = 1 << 28

Plain = dict[str, Any]


class ConnectionClosedError(CordwoodError):
    """The broker closed the connection instead of answering."""


def known_versions(api_key: int) -> range:
    """The versions of an API that this module can speak."""
    versions = schema_name_map[api_key_map[api_key]]
    return range(min(versions), max(versions) + 1)


def build(cls: Any, values: Mapping[str, Any]) -> Any:
    """An entity of kio's from plain values.

    What the version lacks is left out, what is missing takes its default, or else zero, "", an
    empty array, or null. Durations are ms.
    """
    given = {}
    for known in _fields(cls):
        if known.name in values:
            given[known.name] = _from_plain(_types(cls)[known.name], values[known.name])
        elif known.default is MISSING and known.default_factory is MISSING:
            given[known.name] = _zero(_types(cls)[known.name])
    return cls(**given)


def plain(value: Any) -> Any:
    """The plain values of an entity: errors by name, durations and times in ms, UUIDs as they are.

    Kafka's zero UUID is `NO_UUID`.
    """
    if is_dataclass(value) and not isinstance(value, type):
        types_of = _types(type(value))
        return {
            known.name: _plain_field(types_of[known.name], getattr(value, known.name))
            for known in _fields(type(value))
        }
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def _plain_field(kind: Any, value: Any) -> Any:
    if value is None and uuid.UUID in typing.get_args(kind):
        return NO_UUID
    return plain(value)


@functools.cache
def _fields(cls: Hashable) -> tuple[Field[Any], ...]:
    return fields(typing.cast("type[Any]", cls))


@functools.cache
def _types(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _options(kind: Any) -> list[Any]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return list(typing.get_args(kind))
    return [kind]


def _from_plain(kind: Any, value: Any) -> Any:
    options = _options(kind)
    if value is None and type(None) in options:
        return None
    (kind,) = [option for option in options if option is not type(None)]
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_from_plain(item, one) for one in value)
    if is_dataclass(kind):
        return build(typing.cast("type[Any]", kind), value)
    if kind is uuid.UUID:
        return None if value == NO_UUID else value
    if isinstance(kind, type) and issubclass(kind, dt.timedelta):
        return dt.timedelta(milliseconds=value)
    if "TZAware" in repr(kind):
        return dt.datetime.fromtimestamp(value / 1000, dt.UTC)
    return value


def _zero(kind: Any) -> Any:
    options = _options(kind)
    if type(None) in options:
        return None
    (kind,) = options
    if typing.get_origin(kind) is tuple:
        return ()
    if is_dataclass(kind):
        return build(typing.cast("type[Any]", kind), {})
    if isinstance(kind, type):
        for base, zero in ((bool, False), (int, 0), (float, 0.0), (str, ""), (bytes, b"")):
            if issubclass(kind, base):
                return zero
        if issubclass(kind, dt.timedelta):
            return dt.timedelta()
    return 0


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A request with its length before it; `body` is whatever is to be sent.

    The header is that of the nearest version that exists.
    """
    known = known_versions(api_key)
    nearest = min(max(version, known[0]), known[-1])
    schema = load_request_schema(api_key, nearest)
    header = struct.pack(">hhi", api_key, version, correlation_id)
    name = None if client_id is None else client_id.encode()
    header += struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name
    if schema.__header_schema__.__flexible__:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def request_body(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    """The bytes of a request after its header."""
    schema = load_request_schema(api_key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, build(schema, values))
    return out.getvalue()


def read_response(api_key: int, version: int, answer: bytes) -> Plain:
    """The plain values of a response; `answer` begins with its header."""
    schema = load_response_schema(api_key, version)
    offset = 4
    if api_key != API_VERSIONS and schema.__header_schema__.__flexible__:
        offset += 1
    entity, used = entity_reader(schema)(answer, offset)
    assert offset + used == len(answer), f"{len(answer) - offset - used} bytes too many"
    return typing.cast("Plain", plain(entity))


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
            if (key := api["api_key"]) in api_key_map:
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
