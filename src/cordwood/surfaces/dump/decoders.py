"""Keys and payloads as text: strings, numbers, and the records of Kafka's own topics.

A decoder returns (key, payload); None means that the part is not printed.

Source: DumpLogSegments.MessageParser and its implementations; org.apache.kafka.tools.api.Decoder.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from cordwood.format.byte_reader import ByteReader
from cordwood.format.coordinator_record import CoordinatorSchemas
from cordwood.format.group_metadata import (
    GROUP_METADATA_TYPE,
    GROUP_RECORDS,
    decode_consumer_assignment,
    decode_consumer_subscription,
)
from cordwood.format.message_schema import (
    MessageSchema,
    MessageValue,
    message_json,
    read_message,
)
from cordwood.format.metadata_records import SCHEMA_OF_API_KEY, MetadataRecord
from cordwood.format.record import Record
from cordwood.format.share_state import SHARE_STATE_RECORDS
from cordwood.format.transaction_state import TRANSACTION_RECORDS, transaction_json
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.utf8 import decode_utf8
from cordwood.surfaces.dump.frame import read_framed_message, reason_of
from cordwood.surfaces.dump.java_text import json_text
from cordwood.surfaces.dump.remote_metadata import remote_metadata_text

PayloadDecoder: TypeAlias = Callable[[Record], tuple[str | None, str | None]]

_API = "org.apache.kafka.tools.api."
STRING_DECODER = _API + "StringDecoder"
_TOMBSTONE = "<DELETE>"


def class_decoder(key_class: str, value_class: str) -> PayloadDecoder:
    """The decoder that prints keys and payloads as two of Kafka's Decoder classes do.

    Raises:
        ConfigError: a class is not one of Kafka's own, which alone are known here.
    """
    decode_key, decode_value = _bytes_decoder(key_class), _bytes_decoder(value_class)

    def decode(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else decode_key(record.key),
            None if record.value is None else decode_value(record.value),
        )

    return decode


def decode_offsets(record: Record) -> tuple[str | None, str | None]:
    """A record of `__consumer_offsets`.

    Raises:
        CorruptError: the key is null.
    """
    return _decode_coordinator_record(GROUP_RECORDS, record, _group_value_json)


def decode_transaction_log(record: Record) -> tuple[str | None, str | None]:
    """A record of `__transaction_state`.

    Raises:
        CorruptError: the key is null.
    """
    return _decode_coordinator_record(TRANSACTION_RECORDS, record, transaction_json)


def decode_share_group_state(record: Record) -> tuple[str | None, str | None]:
    """A record of `__share_group_state`.

    Raises:
        CorruptError: the key is null.
    """
    return _decode_coordinator_record(SHARE_STATE_RECORDS, record, message_json)


def decode_cluster_metadata(record: Record) -> tuple[str | None, str | None]:
    """A record of the cluster metadata log."""
    try:
        metadata = _read_metadata_record(record.value)
    except CorruptError as error:
        return None, f"Error at {record.offset}, skipping. {reason_of(error)}"
    document = {
        "type": metadata.type_name,
        "version": metadata.version,
        "data": metadata.json(),
    }
    return None, json_text(document)


def decode_remote_log_metadata(record: Record) -> tuple[str | None, str | None]:
    """A record of `__remote_log_metadata`."""
    try:
        return None, remote_metadata_text(record.value)
    except CorruptError as error:
        return None, f"Error at offset {record.offset}, skipping. {reason_of(error)}"


def _bytes_decoder(name: str) -> Callable[[bytes], str]:
    decoders: dict[str, Callable[[bytes], str]] = {
        STRING_DECODER: decode_utf8,
        _API + "IntegerDecoder": lambda data: _number(data, ">i"),
        _API + "LongDecoder": lambda data: _number(data, ">q"),
        # Kafka prints an object's address here; the bytes in hexadecimal are more useful.
        _API + "DefaultDecoder": lambda data: binascii.hexlify(data).decode(),
    }
    if name not in decoders:
        known = ", ".join(decoders)
        raise ConfigError(f"Failed to load decoder class {name}; known are {known}")
    return decoders[name]


def _number(data: bytes, layout: str) -> str:
    if len(data) < struct.calcsize(layout):
        raise CorruptError(f"{len(data)} bytes are too few for a number")
    return str(struct.unpack_from(layout, data)[0])


def _decode_coordinator_record(
    schemas: CoordinatorSchemas,
    record: Record,
    value_json: Callable[[MessageValue], Any],
) -> tuple[str | None, str | None]:
    if record.key is None:
        raise CorruptError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)"
        )
    try:
        return _coordinator_texts(schemas, record.key, record.value, value_json)
    except _UnknownTypeError as error:
        return f"Unknown record type {error.record_type} at offset {record.offset}, skipping.", None
    except CorruptError as error:
        return f"Error at offset {record.offset}, skipping. {error.reason}", None


class _UnknownTypeError(CorruptError):
    """A record type that no schema has the number of."""

    def __init__(self, record_type: int) -> None:
        super().__init__(f"Unknown record type {record_type}")
        self.record_type = record_type


def _coordinator_texts(
    schemas: CoordinatorSchemas,
    key: bytes,
    value: bytes | None,
    value_json: Callable[[MessageValue], Any],
) -> tuple[str, str]:
    record_type = _version_of(key, "key")
    schema = schemas.keys.get(record_type)
    if schema is None:
        raise _UnknownTypeError(record_type)
    decoded_key = _read(schema, 0, key, "key", record_type)
    key_text = json_text({"type": str(record_type), "data": message_json(decoded_key)})
    if value is None:
        return key_text, _TOMBSTONE
    value_schema = schemas.values.get(record_type)
    if value_schema is None:
        raise _UnknownTypeError(record_type)
    version = _version_of(value, "value")
    if version not in value_schema.versions:
        raise CorruptError(f"Found an unknown record version {version} for {record_type} type")
    decoded = _read(value_schema, version, value, "value", version)
    return key_text, json_text({"version": str(version), "data": value_json(decoded)})


def _read(schema: MessageSchema, version: int, data: bytes, what: str, shown: int) -> MessageValue:
    try:
        return read_message(schema, version, ByteReader(data, 2))
    except CorruptError as error:
        raise CorruptError(
            f"Could not read record with version {shown} from {what}'s buffer due to: "
            f"{reason_of(error)}."
        ) from None


def _version_of(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise CorruptError(f"Could not read version from {what}'s buffer.")
    return int(struct.unpack_from(">h", data)[0])


def _group_value_json(value: MessageValue) -> dict[str, Any]:
    """The value, with what members of consumer groups keep inside decoded as well."""
    document = message_json(value)
    if value.schema.key != GROUP_METADATA_TYPE or document["protocolType"] != "consumer":
        return document
    for member in document["members"]:
        for name, decode in (
            ("subscription", decode_consumer_subscription),
            ("assignment", decode_consumer_assignment),
        ):
            try:
                member[name] = message_json(decode(base64.b64decode(member[name])))
            except CorruptError:
                continue  # stays as base64
    return document


def _read_metadata_record(value: bytes | None) -> MetadataRecord:
    """Decodes a record, with the error texts of Kafka's tool.

    Source: AbstractApiMessageSerde.read.
    """
    message = read_framed_message(SCHEMA_OF_API_KEY, b"" if value is None else value)
    return MetadataRecord(
        api_key=message.schema.key,
        name=message.schema.name,
        version=message.version,
        fields=message.fields,
    )
