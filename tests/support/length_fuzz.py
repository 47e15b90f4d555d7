"""Requests with a string, an array or bytes of an unusual length: every field of every API.

Role: whatever a broker answers to them, it must start again on its directory.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.primitives import STRING_BYTES_MAX, write_uvarint
from cordwood.format.messages.schema import LAYOUTS, Field
from cordwood.protocol.apis import APIS
from cordwood.protocol.messages import encode, request_codec
from support.message_fields import nested
from support.wire import NO_UUID, request_frame

LENGTHS: Final = (32_766, 32_767, 32_768, 40_000, 65_535, 70_000)
_MARK: Final = b"the text at hand"
_ANSWER_S: Final = 30.0

_TEXTS: Final[Mapping[str, str | None]] = {
    "entity_type": "user",
    "group_id": "g",
    "group_instance_id": None,
    "host": "*",
    "key": "producer_byte_rate",
    "member_id": "",
    "name": "t",
    "principal": "User:p",
    "protocol_name": "range",
    "protocol_type": "consumer",
    "resource_name": "t",
    "topic": "t",
    "topic_name": "t",
    "transactional_id": None,
    "value": "1000",
}
_NUMBERS: Final[Mapping[str, int]] = {
    "acks": -1,
    "count": 2,
    "max_bytes": 1 << 20,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "num_partitions": 1,
    "rebalance_timeout_ms": 6_000,
    "replication_factor": 1,
    "resource_type": 2,
    "session_timeout_ms": 6_000,
    "timeout_ms": 1_000,
    "validate_only": 0,
}
_BY_API: Final[Mapping[str, Mapping[str, Any]]] = {
    "alter_configs": {"name": "retention.ms"},
    "create_topics": {"assignments": [], "configs": [{"name": "retention.ms", "value": "9"}]},
    "describe_client_quotas": {"match_type": 0, "entity_type": "user"},
    "fetch": {"session_id": 0, "session_epoch": -1, "replica_id": -1},
    "incremental_alter_configs": {"name": "retention.ms"},
    "list_offsets": {"replica_id": -1, "timestamp": -1},
    "offset_commit": {"generation_id_or_member_epoch": -1, "member_id": ""},
    "unregister_broker": {"broker_id": 99},
    "unregister_controller": {"controller_id": 99},
    "update_features": {"upgrade_type": 1},
}
_ELSEWHERE: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "incremental_alter_configs": (
        {"resource_type": 32, "name": "consumer.session.timeout.ms", "value": "50000"},
        {"resource_type": 16, "name": "interval.ms", "value": "50000"},
        {"resource_type": 4, "resource_name": "", "name": "log.retention.ms"},
    ),
    "alter_client_quotas": (
        {"entity_type": "client-id"},
        {"entity_type": "ip", "key": "connection_creation_rate"},
    ),
}
"""Other values of the same request under which a field is taken for something else."""


class LengthCase(NamedTuple):
    """A request, and the one field of it that is as long as `length` says: a text or another."""

    api: str
    version: int
    field: str
    length: int
    frame: bytes
    is_text: bool

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.api} v{self.version} {self.field} {self.length}"


def length_cases(
    api_key: int, version: int, lengths: Iterable[int] = LENGTHS
) -> Iterator[LengthCase]:
    """Every string, array and bytes of a request in each of these lengths, in bytes.

    Strings of versions without compact lengths go no further than their length can say.
    """
    api = APIS[api_key].snake_name
    message = request_codec(api_key, version)
    for number, given in enumerate(({}, *_ELSEWHERE.get(api, ()))):
        known = {**_BY_API.get(api, {}), **given}
        for path, is_text in _paths(message):
            name = (
                ".".join(each.attribute for each in path) + ("[]" if is_text else "") + "'" * number
            )
            for length in lengths:
                if is_text and length > STRING_BYTES_MAX and not message.is_flexible:
                    continue
                body = encode(message, _values(message, known, path, length, is_text=is_text))
                if is_text:
                    body = _lengthened(body, length, flexible=message.is_flexible)
                frame = request_frame(api_key, version, 1, "fuzz", body)
                yield LengthCase(api, version, name, length, frame, is_text)


def usual_fields(api_key: int, version: int) -> dict[str, Any]:
    """The fields of a request as the cases have them, but for the one that is long."""
    known = _BY_API.get(APIS[api_key].snake_name, {})
    return _values(request_codec(api_key, version), known, (), 0, is_text=False)


def client_id_cases(api_key: int, version: int) -> Iterator[LengthCase]:
    """A request with client ids of the greatest lengths that there are."""
    api = APIS[api_key].snake_name
    message = request_codec(api_key, version)
    body = encode(message, _values(message, _BY_API.get(api, {}), (), 0, is_text=False))
    for length in (32_730, 32_731, STRING_BYTES_MAX):
        frame = request_frame(api_key, version, 1, "c" * length, body)
        yield LengthCase(api, version, "client_id", length, frame, is_text=True)


def _lengthened(body: bytes, length: int, *, flexible: bool) -> bytes:
    """The message with a text of `length` bytes in the place of the mark."""
    at = body.index(_MARK)
    size = bytearray()
    if flexible:
        write_uvarint(size, length + 1)
    else:
        size += struct.pack(">h", length)
    before = at - (1 if flexible else 2)
    return body[:before] + size + b"x" * length + body[at + len(_MARK) :]


def _paths(
    message: MessageCodec, before: tuple[Field, ...] = ()
) -> Iterator[tuple[tuple[Field, ...], bool]]:
    """The ways to all fields with a length, and whether the text is meant or the array."""
    for field in message.fields:
        path = (*before, field)
        if field.kind == "string":
            yield path, True
        if field.is_array or field.kind in {"bytes", "records"}:
            yield path, False
        if field.kind == "struct":
            yield from _paths(nested(message, field), path)


def _values(
    message: MessageCodec,
    known: Mapping[str, Any],
    path: tuple[Field, ...],
    length: int,
    *,
    is_text: bool,
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in message.fields:
        is_on_path = bool(path) and path[0].attribute == field.attribute
        if is_on_path and len(path) == 1:
            values[field.attribute] = _long(message, field, known, length, is_text=is_text)
        elif is_on_path or field.attribute not in known:
            rest = path[1:] if is_on_path else ()
            values[field.attribute] = _value(message, field, known, rest, length, is_text=is_text)
        else:
            values[field.attribute] = known[field.attribute]
    return values


def _value(
    message: MessageCodec,
    field: Field,
    known: Mapping[str, Any],
    path: tuple[Field, ...],
    length: int,
    *,
    is_text: bool,
) -> Any:
    single: Any
    if field.kind == "struct":
        single = _values(nested(message, field), known, path, length, is_text=is_text)
    elif field.kind == "string":
        single = _TEXTS.get(field.attribute, "x")
        if single is None and not field.is_nullable(message.version):
            single = ""
    elif field.kind in {"bytes", "records"}:
        single = b""
    elif field.kind == "uuid":
        single = NO_UUID
    else:
        single = _NUMBERS.get(field.attribute, 0)
    return [single] if field.is_array else single


def _long(
    message: MessageCodec, field: Field, known: Mapping[str, Any], length: int, *, is_text: bool
) -> Any:
    if is_text:
        return [_MARK.decode()] if field.is_array else _MARK.decode()
    if not field.is_array:
        return b"x" * length
    (element,) = _value(message, field, known, (), 0, is_text=False)
    if field.kind == "struct":
        size = len(encode(nested(message, field), element))
    elif field.kind in LAYOUTS:
        size = struct.calcsize(">" + LAYOUTS[field.kind])
    else:
        size = len(element) + 1
    return [element] * (length // size)


# ---- their outcomes


def send(port: int, frame: bytes, *, timeout_s: float = _ANSWER_S) -> str:
    """Sends a request on a connection of its own: "closed", "answered" or "waiting"."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as sock:
        try:
            sock.sendall(frame)
            head = _receive(sock, 4)
            if len(head) < 4:
                return "closed"
            (size,) = struct.unpack(">i", head)
            return "answered" if len(_receive(sock, size)) == size else "closed"
        except TimeoutError:
            return "waiting"
        except ConnectionError:
            return "closed"


def _receive(sock: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = sock.recv(min(size - len(found), 1 << 20))
        if not part:
            break
        found += part
    return bytes(found)


def written(log_dir: Path) -> dict[str, int]:
    """The sizes of the logs that a start reads, by name."""
    return {
        str(path.relative_to(log_dir)): path.stat().st_size
        for topic in ("__cluster_metadata", "__consumer_offsets")
        for path in log_dir.glob(f"{topic}-*/*.log")
    }
