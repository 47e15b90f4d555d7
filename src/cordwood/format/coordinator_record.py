"""Keys and values of the records in which coordinators store their state.

A key is `int16 record type | fields`, a value `int16 version | fields`; a null value is a
tombstone. As in Kafka, bytes after the last field are ignored.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_schema import (
    MessageSchema,
    MessageValue,
    encode_message,
    read_message,
    require_readable,
    schemas,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError

_PREFIX = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKey:
    """A decoded key: the number of the record's type, and its fields."""

    record_type: int
    name: str
    fields: dict[str, Any]
    message: MessageValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSchemas:
    """The record types of one coordinator's topic, by the type number in their keys."""

    keys: Mapping[int, MessageSchema]
    values: Mapping[int, MessageSchema]

    @classmethod
    def parse(cls, *, keys: str, values: str) -> CoordinatorSchemas:
        """The types that the schemas of two texts describe."""
        return cls(
            keys={schema.key: schema for schema in schemas(keys).values()},
            values={schema.key: schema for schema in schemas(values).values()},
        )

    def decode_key(self, key: bytes | None) -> CoordinatorKey:
        """The key of a record.

        Raises:
            UnsupportedVersionError: the record type is unknown.
            CorruptError: the key is null or malformed.
        """
        record_type = _prefix_of(key, "key")
        schema = self.keys.get(record_type)
        if schema is None or key is None:
            raise UnsupportedVersionError(f"record type {record_type} is unknown")
        message = read_message(schema, schema.versions.lowest, ByteReader(key, _PREFIX.size))
        return CoordinatorKey(
            record_type=record_type, name=schema.name, fields=message.fields, message=message
        )

    def decode_value(self, record_type: int, value: bytes | None) -> MessageValue | None:
        """The value of a record whose key is of that type; None for a tombstone.

        Raises:
            UnsupportedVersionError: the type or the value's version is unknown.
            CorruptError: the value is malformed.
        """
        if value is None:
            return None
        schema = self.values.get(record_type)
        if schema is None:
            raise UnsupportedVersionError(f"record type {record_type} is unknown")
        version = _prefix_of(value, "value")
        return read_message(schema, version, ByteReader(value, _PREFIX.size))

    def encode_key(self, record_type: int, fields: Mapping[str, Any]) -> bytes:
        """The bytes of a key of that type.

        Raises:
            EncodingError: a value does not fit its field.
        """
        schema = self.keys[record_type]
        return _PREFIX.pack(record_type) + encode_message(schema, schema.versions.lowest, fields)

    def encode_value(self, record_type: int, version: int, fields: Mapping[str, Any]) -> bytes:
        """The bytes of a value of that type and version.

        Raises:
            EncodingError: a value does not fit its field.
            UnsupportedVersionError: the type has no such version.
        """
        return _PREFIX.pack(version) + encode_message(self.values[record_type], version, fields)

    def encode_readable_key(self, record_type: int, fields: Mapping[str, Any]) -> bytes:
        """Encodes a key; it is read back and compared.

        Raises:
            EncodingError: a value does not fit its field, or reads back differently.
        """
        data = self.encode_key(record_type, fields)
        schema = self.keys[record_type]
        require_readable(schema, schema.versions.lowest, fields, _after_prefix(data))
        return data

    def encode_readable_value(
        self, record_type: int, version: int, fields: Mapping[str, Any]
    ) -> bytes:
        """Encodes a value; it is read back and compared.

        Raises:
            EncodingError: a value does not fit its field, or reads back differently.
            UnsupportedVersionError: the type has no such version.
        """
        data = self.encode_value(record_type, version, fields)
        require_readable(self.values[record_type], version, fields, _after_prefix(data))
        return data


def _after_prefix(data: bytes) -> memoryview:
    return memoryview(data)[_PREFIX.size :]


def _prefix_of(data: bytes | None, what: str) -> int:
    if data is None or len(data) < _PREFIX.size:
        raise CorruptError(f"coordinator record without the start of a {what}")
    (prefix,) = _PREFIX.unpack_from(data)
    return int(prefix)
