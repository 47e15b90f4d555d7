"""Requests and responses of Kafka's protocol, of any API and version.

What is read and written is an object of the message's class in `cordwood.protocol.data`, one class
for all versions: fields that a version lacks are left out. Handlers name a version only where
behaviour differs. What is written may also be given as a mapping of fields by name.

Times are ints in ms, error codes ints, UUIDs `uuid.UUID`; None is written as Kafka's zero UUID.

Source: Kafka's clients/src/main/resources/common/message; KIP-482 (tagged fields).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.primitives import Records
from cordwood.format.varint import Buffer
from cordwood.model.errors import (
    CordwoodError,
    CorruptError,
    EncodingError,
    UnsupportedVersionError,
)
from cordwood.model.pauses import is_pausing
from cordwood.protocol import data
from cordwood.protocol.apis import APIS, schema_of

_READ_AT_ONCE_BYTES_MAX: Final = 16 * 1024


class MalformedMessageError(CordwoodError):
    """Bytes that are no message of the API and version, or a value that does not fit its field."""


class UnknownMessageError(CordwoodError):
    """An API, or a version of one, that has no schema."""


@cache
def _codec(api_key: int, version: int, kind: str) -> MessageCodec:
    api = APIS.get(api_key)
    if api is None:
        raise UnknownMessageError(f"no API has the key {api_key}")
    name = api.name + kind
    try:
        return MessageCodec(schema_of(name), version, getattr(data, name))
    except UnsupportedVersionError:
        raise UnknownMessageError(f"{api.name} has no version {version}") from None


def request_codec(api_key: int, version: int) -> MessageCodec:
    """The codec of an API's request.

    Raises:
        UnknownMessageError: there is no such API or version.
    """
    return _codec(api_key, version, "Request")


def response_codec(api_key: int, version: int) -> MessageCodec:
    """The codec of an API's response.

    Raises:
        UnknownMessageError: there is no such API or version.
    """
    return _codec(api_key, version, "Response")


def read(codec: MessageCodec, buffer: Buffer, offset: int = 0) -> Any:
    """Reads one message that must fill `buffer` from `offset` to its end.

    Raises:
        MalformedMessageError: it does not.
    """
    try:
        value, end = codec.read(buffer, offset)
    except CorruptError as error:
        raise MalformedMessageError(f"{codec}: {error}") from error
    if end != len(buffer):
        raise MalformedMessageError(f"{codec} ends at byte {end} of {len(buffer)}")
    return value


def read_request(
    api_key: int,
    version: int,
    body: Buffer,
    offset: int = 0,
    *,
    distinct: str = "",
) -> Any:
    """Reads the body of a request, from `offset` on.

    Bytes after it are ignored, as by Kafka: librdkafka sends a field of Metadata that its
    version no longer has. Where work is done in slices (`model.pauses`), equal elements of the
    array `distinct` of a large request are read once.

    Raises:
        MalformedMessageError: the bytes are not such a request.
        UnknownMessageError: there is no such API or version.
    """
    codec = _codec(api_key, version, "Request")
    try:
        if distinct and len(body) - offset > _READ_AT_ONCE_BYTES_MAX and is_pausing():
            return codec.read(body, offset, distinct=distinct)[0]
        return codec.read(body, offset)[0]
    except CorruptError as error:
        raise MalformedMessageError(f"{codec}: {error}") from error


def encode(codec: MessageCodec, values: Any) -> bytes:
    """A message's bytes; its records are bytes. Arguments and errors are those of `parts_of`."""
    (data,) = parts_of(codec, values)
    return bytes(data)


def parts_of(codec: MessageCodec, values: Any) -> list[Any]:
    """A message as it is sent: bytes, and between them the records that are not in memory.

    Args:
        codec: of the message, in the version to write.
        values: the message, or its fields by name; structs may be mappings, too.

    Raises:
        MalformedMessageError: a value does not fit its field.
    """
    try:
        return codec.write(values)
    except EncodingError as error:
        raise MalformedMessageError(str(error)) from error


def records_of(records: bytes | memoryview | Records | None) -> bytes:
    """The records of a message that was read, which are in memory; empty where they are null."""
    assert records is None or isinstance(records, bytes | memoryview)
    return bytes(records or b"")


def build(codec: MessageCodec, values: Any) -> Any:
    """A message with those fields, equal to one that is read from its bytes."""
    return read(codec, encode(codec, values))
