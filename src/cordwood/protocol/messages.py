"""Requests and responses of Kafka's protocol, of any API and version.

What is read is an object of the message's class in `cordwood.protocol.apis`. What is written is
given as fields by name, one mapping for all versions: those that a version lacks are left out,
those left out have the schema's default, or null where the schema has none and the field can be
null. Handlers name a version only where behaviour differs.

Times are ints in ms, error codes ints, UUIDs `uuid.UUID`; None is written as Kafka's zero UUID.

Source: Kafka's clients/src/main/resources/common/message; KIP-482 (tagged fields).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.schema import schemas
from cordwood.format.varint import Buffer
from cordwood.model.errors import (
    CordwoodError,
    CorruptError,
    EncodingError,
    UnsupportedVersionError,
)
from cordwood.model.pauses import is_pausing
from cordwood.protocol.apis import APIS

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
    module = importlib.import_module(f"cordwood.protocol.apis.{api.module}")
    schema = _schemas(api_key)[api.name + kind]
    try:
        return MessageCodec(schema, version, vars(module))
    except UnsupportedVersionError:
        raise UnknownMessageError(f"{api.name} has no version {version}") from None


@cache
def _schemas(api_key: int) -> Mapping[str, Any]:
    module = importlib.import_module(f"cordwood.protocol.apis.{APIS[api_key].module}")
    return schemas(module.SCHEMAS)


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


def read(codec: MessageCodec, data: Buffer, offset: int = 0) -> Any:
    """Reads one message that must fill `data` from `offset` to its end.

    Raises:
        MalformedMessageError: it does not.
    """
    try:
        value, end = codec.read(data, offset)
    except CorruptError as error:
        raise MalformedMessageError(f"{codec}: {error}") from error
    if end != len(data):
        raise MalformedMessageError(f"{codec} ends at byte {end} of {len(data)}")
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
    """A message's bytes; arguments and errors are those of `encoded`."""
    return bytes(encoded(codec, values))


def encoded(codec: MessageCodec, values: Any) -> bytearray:
    """A message's bytes in a buffer that is the caller's.

    Args:
        codec: of the message, in the version to write.
        values: fields by name; structs are mappings, or objects of their class.

    Raises:
        MalformedMessageError: a value does not fit its field.
    """
    out = bytearray()
    try:
        codec.write(out, values)
    except EncodingError as error:
        raise MalformedMessageError(str(error)) from error
    return out


def build(codec: MessageCodec, values: Any) -> Any:
    """The message that is read where one with those fields is written."""
    return read(codec, encode(codec, values))
