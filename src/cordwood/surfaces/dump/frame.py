"""Reads framed messages, with the error texts of Kafka's tool.

Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_schema import FRAME_VERSION, MessageSchema, MessageValue, read_message
from cordwood.format.varint import CutOffError
from cordwood.model.errors import CorruptError, UnsupportedVersionError

_INT16_MAX = 32767


def read_framed_message(schemas: Mapping[int, MessageSchema], value: bytes) -> MessageValue:
    """The message in `value` after its frame version, api key and version.

    Raises:
        CorruptError: the message cannot be read.
    """
    reader = ByteReader(value)
    api_key, version = _read_frame(reader)
    schema = schemas.get(api_key)
    if schema is None:
        raise UnsupportedVersionError(
            "org.apache.kafka.common.errors.UnsupportedVersionException: "
            f"Unknown metadata id {api_key}"
        )
    try:
        message = _read_body(schema, version, reader)
    except CorruptError as error:
        raise CorruptError(f"Failed to deserialize record with type {api_key}") from error
    if reader.remaining:
        raise CorruptError(f"Found {reader.remaining} byte(s) of garbage after {api_key}")
    return message


def reason_of(error: CorruptError) -> str:
    """The text of Kafka's tool for the error; Java's BufferUnderflowException has none."""
    return "null" if isinstance(error, CutOffError) else error.reason


def _read_body(schema: MessageSchema, version: int, reader: ByteReader) -> MessageValue:
    """The message; a version of the future is taken for the latest known, as by Kafka's tool.

    Kafka's reader stops at structs inside such a message, and so does this one.
    """
    highest = schema.versions.highest
    if version <= highest or any(field.kind == "struct" for field in schema.fields):
        return read_message(schema, version, reader)
    return replace(read_message(schema, highest, reader), version=version)


def _read_frame(reader: ByteReader) -> tuple[int, int]:
    frame_version = _frame_number(reader, "frame version")
    if frame_version == 0:
        raise CorruptError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != FRAME_VERSION:
        raise CorruptError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            "(only frame version 1 is supported)"
        )
    return _frame_number(reader, "type"), _frame_number(reader, "version")


def _frame_number(reader: ByteReader, name: str) -> int:
    try:
        value = reader.unsigned_varint()
    except CorruptError as error:
        raise CorruptError(f"Error while reading {name}") from error
    if value > _INT16_MAX:
        raise CorruptError(f"Value for {name} was too large.")
    return value
