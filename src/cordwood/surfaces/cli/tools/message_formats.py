"""Formats in which `cordwood console-consumer` prints records.

Source: org.apache.kafka.tools.consumer.*MessageFormatter (4.4.0);
org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from cordwood.client.consumer import ConsumedRecord
from cordwood.client.errors import ClientError
from cordwood.model.documents import to_document
from cordwood.model.errors import UnsupportedVersionError
from cordwood.queries.records import ReadHeader, ReadRecord
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.surfaces.dump.java_text import java_double, json_text

Formatter = Callable[[ConsumedRecord], bytes]
Deserializer = Callable[[bytes], str]

_PACKAGE = "org.apache.kafka.tools.consumer"
_DEFAULT_FORMATTER = f"{_PACKAGE}.DefaultMessageFormatter"


_COORDINATOR_FORMATTERS = {
    f"{_PACKAGE}.OffsetsMessageFormatter": frozenset({0, 1}),
    f"{_PACKAGE}.GroupMetadataMessageFormatter": frozenset({2}),
    f"{_PACKAGE}.TransactionLogMessageFormatter": None,
}
"""Which types of records of a coordinator's topic each shows; None for all."""


class SerializationError(ClientError):
    """Bytes that the deserializer cannot read."""

    java_class = "org.apache.kafka.common.errors.SerializationException"


def _fixed(name: str, layout: str, shown: Callable[[Any], str] = str) -> Deserializer:
    unpack = struct.Struct(layout)

    def read(data: bytes) -> str:
        if len(data) != unpack.size:
            raise SerializationError(f"Size of data received by {name} is not {unpack.size}")
        return shown(unpack.unpack(data)[0])

    return read


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _uuid(data: bytes) -> str:
    try:
        return str(UUID(data.decode()))
    except ValueError as error:
        raise SerializationError("Error parsing data into UUID") from error


_DESERIALIZERS: Mapping[str, Deserializer] = {
    "StringDeserializer": _text,
    "IntegerDeserializer": _fixed("IntegerDeserializer", ">i"),
    "LongDeserializer": _fixed("LongDeserializer", ">q"),
    "ShortDeserializer": _fixed("ShortDeserializer", ">h"),
    "DoubleDeserializer": _fixed("Deserializer", ">d", java_double),
    "UUIDDeserializer": _uuid,
}


def message_formatter(
    name: str, properties: Mapping[str, str], terminal: Terminal
) -> Formatter | None:
    """The formatter of that class (or `json`); None where there is none."""
    if name == "json":
        return _as_json
    if name == f"{_PACKAGE}.NoOpMessageFormatter":
        return lambda _: b""
    if name in _COORDINATOR_FORMATTERS:
        return _coordinator_formatter(name)
    if name == _DEFAULT_FORMATTER:
        return _DefaultFormatter(properties, terminal).format
    if name == f"{_PACKAGE}.LoggingMessageFormatter":
        shown = _DefaultFormatter(properties, terminal)
        return lambda record: _logged(shown, record, terminal)
    return None


class _DefaultFormatter:
    """Columns, according to the formatter's properties."""

    def __init__(self, properties: Mapping[str, str], terminal: Terminal) -> None:
        def is_set(name: str, default: str = "false") -> bool:
            return properties.get(name, default).strip().lower() == "true"

        self._columns = [
            (name, is_set(f"print.{name}"))
            for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
        ]
        self._print_value = is_set("print.value", "true")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._of = {
            part: _deserializer(properties.get(f"{part}.deserializer"), terminal)
            for part in ("key", "value", "headers")
        }

    def format(self, record: ConsumedRecord) -> bytes:
        """The bytes that show a record."""
        columns = [self._column(name, record) for name, shown in self._columns if shown]
        if self._print_value:
            columns.append(self._bytes("value", record.record.value))
        if not columns:
            return b""
        return self._key_separator.join(columns) + self._line_separator

    def _column(self, name: str, record: ConsumedRecord) -> bytes:
        plain = record.record
        if name == "timestamp":
            if plain.timestamp < 0:
                return b"NO_TIMESTAMP"
            return f"{record.timestamp_type}:{plain.timestamp}".encode()
        if name == "partition":
            return f"Partition:{record.partition.partition}".encode()
        if name == "offset":
            return f"Offset:{plain.offset}".encode()
        if name in {"delivery", "epoch"}:
            # Kafka's tool shows re-created records, which have neither.
            return f"{name.capitalize()}:NOT_PRESENT".encode()
        if name == "key":
            return self._bytes("key", plain.key)
        if not plain.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            header.key.encode() + b":" + self._bytes("headers", header.value)
            for header in plain.headers
        )

    def _bytes(self, part: str, data: bytes | None) -> bytes:
        given = self._null if data is None else data
        deserializer = self._of[part]
        return given if deserializer is None else deserializer(given).encode()


def _deserializer(name: str | None, terminal: Terminal) -> Deserializer | None:
    if name is None:
        return None
    package, _, simple = name.rpartition(".")
    found = _DESERIALIZERS.get(simple)
    if found is None or package != "org.apache.kafka.common.serialization":
        terminal.log(
            "ERROR", f"Unable to instantiate a deserializer from {name}", _DEFAULT_FORMATTER
        )
        return None
    return found


def _logged(shown: _DefaultFormatter, record: ConsumedRecord, terminal: Terminal) -> bytes:
    plain = record.record
    stamp = f"{record.timestamp_type}:{plain.timestamp}, " if plain.timestamp >= 0 else ""
    key = "null" if plain.key is None else _text(plain.key)
    value = "null" if plain.value is None else _text(plain.value)
    terminal.log(
        "INFO",
        f"{stamp}key:{key}, value:{value}",
        f"{_PACKAGE}.LoggingMessageFormatter",
    )
    return shown.format(record)


def _coordinator_formatter(name: str) -> Formatter:
    """Shows the records of __consumer_offsets or __transaction_state, one after the other.

    Source: org.apache.kafka.tools.consumer.CoordinatorRecordMessageFormatter.
    """
    from cordwood.format.message_schema import message_json  # noqa: PLC0415  # when needed

    if name.endswith(".TransactionLogMessageFormatter"):
        from cordwood.format.transaction_state import (  # noqa: PLC0415
            decode_transaction_key as decode_key,
        )
        from cordwood.format.transaction_state import (  # noqa: PLC0415
            decode_transaction_value as decode_value,
        )
        from cordwood.format.transaction_state import (  # noqa: PLC0415
            transaction_json as value_json,
        )
    else:
        from cordwood.format.group_metadata import decode_group_key as decode_key  # noqa: PLC0415
        from cordwood.format.group_metadata import (  # noqa: PLC0415
            decode_group_value as decode_value,
        )

        value_json = message_json
    wanted = _COORDINATOR_FORMATTERS[name]

    def show(consumed: ConsumedRecord) -> bytes:
        if consumed.record.key is None:
            return b""
        try:
            key = decode_key(consumed.record.key)
            if wanted is not None and key.record_type not in wanted:
                return b""
            value = decode_value(key.record_type, consumed.record.value)
        except UnsupportedVersionError:
            return b""
        document: dict[str, Any] = {
            "key": {"type": key.record_type, "data": message_json(key.message)}
        }
        document["value"] = None
        if value is not None:
            document["value"] = {"version": value.version, "data": value_json(value)}
        return json_text(document).encode()

    return show


def _as_json(record: ConsumedRecord) -> bytes:
    plain = record.record
    answer = ReadRecord(
        topic=record.partition.topic,
        partition=record.partition.partition,
        offset=plain.offset,
        timestamp=plain.timestamp,
        timestamp_type=record.timestamp_type,
        key=plain.key,
        value=plain.value,
        headers=[ReadHeader(key=header.key, value=header.value) for header in plain.headers],
    )
    return json.dumps(to_document(answer), ensure_ascii=False).encode() + b"\n"
