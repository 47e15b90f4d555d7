"""Columns of a DataFrame as the rows that kernels encode; no row becomes a Python object.

The columns are those of Spark's Kafka sink, and the timestamp, which that one does not take.

Source: org.apache.spark.sql.kafka010.KafkaWriter, org.apache.kafka.clients.producer.ProducerRecord.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cordwood.format.native import kernels
from cordwood.format.native import record_fields as fields
from cordwood.format.native import record_rows as rows_of
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidRecordError, InvalidTimestampError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_NAMES: Final = ("key", "value", "headers", "partition", "timestamp")


class Rows(NamedTuple):
    """Rows as `kernels.put_records` takes them, and the bytes that these point to.

    `chosen` is the partition that each row has been given, -1 for none.
    """

    keys: Bytes
    values: Bytes
    names: Bytes
    contents: Bytes
    table: Ints
    headers: Ints
    chosen: Ints


class _Field(NamedTuple):
    """A column of bytes: where each is in `data`, and how long; a size of -1 is a null."""

    data: Bytes
    starts: Ints
    sizes: Ints


def require_columns(schema: pa.Schema) -> None:
    """Checks names and types of the columns.

    Raises:
        ConfigError: one cannot be written, or there is no value.
    """
    names = [name.lower() for name in schema.names]
    for name, field in zip(names, schema, strict=True):
        if name not in _NAMES or names.count(name) > 1:
            raise ConfigError(
                f"column {field.name}: a topic is written from columns {', '.join(_NAMES)}, each "
                "at most once"
            )
        if not _is_written(name, field.type):
            raise ConfigError(f"column {field.name}: it cannot be of the type {field.type}")
    if "value" not in names:
        raise ConfigError("there is no column value")


def _is_written(name: str, kind: pa.DataType) -> bool:
    if name == "partition":
        return bool(pa.types.is_integer(kind))
    if name == "timestamp":
        return bool(pa.types.is_timestamp(kind))
    if name != "headers":
        return _is_bytes(kind)
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    parts = list(kind.value_type)
    return [part.name for part in parts] == ["key", "value"] and all(
        _is_bytes(part.type) for part in parts
    )


def _is_bytes(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def rows_from(batch: pa.RecordBatch, *, partitions: int, now_ms: int) -> Rows:
    """The rows of an Arrow batch whose columns `require_columns` has accepted.

    Args:
        batch: at least one row.
        partitions: how many the topic has.
        now_ms: the timestamp of rows without one.

    Raises:
        InvalidTimestampError: a timestamp is before 1970.
        InvalidRecordError: a header has no key, or there is no such partition.
    """
    by_name = {
        name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    count = batch.num_rows
    keys = _field(by_name["key"]) if "key" in by_name else _nulls(count)
    values = _field(by_name["value"])
    table = np.zeros((count, rows_of.COLUMNS), dtype=np.int64)
    table[:, rows_of.KEY_START], table[:, rows_of.KEY_SIZE] = keys.starts, keys.sizes
    table[:, rows_of.VALUE_START], table[:, rows_of.VALUE_SIZE] = values.starts, values.sizes
    table[:, rows_of.TIMESTAMP] = (
        _timestamps(by_name["timestamp"], now_ms) if "timestamp" in by_name else now_ms
    )
    names = contents = _nulls(0)
    if "headers" in by_name:
        names, contents = _headers(by_name["headers"], table)
    chosen = np.full(count, -1, dtype=np.int64)
    if "partition" in by_name:
        chosen = _partitions(by_name["partition"], partitions)
    kernels.partition_rows(keys.data, table, count, partitions, chosen)
    headers = np.empty((len(names.sizes), fields.HEADER_COLUMNS), dtype=np.int64)
    headers[:, fields.NAME_START], headers[:, fields.NAME_SIZE] = names.starts, names.sizes
    headers[:, fields.CONTENT_START] = contents.starts
    headers[:, fields.CONTENT_SIZE] = contents.sizes
    return Rows(keys.data, values.data, names.data, contents.data, table, headers, chosen)


def _nulls(count: int) -> _Field:
    none = np.zeros(1, dtype=np.uint8)
    none.flags.writeable = False
    return _Field(none, np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64))


def _field(column: pa.Array) -> _Field:
    if not len(column):
        return _nulls(0)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    first = 8 * column.offset
    ends = np.frombuffer(offsets, dtype=np.int64, count=len(column) + 1, offset=first)
    sizes = np.diff(ends)
    sizes[_is_null(column)] = -1
    if data is None or not data.size:
        return _nulls(len(column))._replace(sizes=sizes)
    content = np.frombuffer(data, dtype=np.uint8)
    content.flags.writeable = False
    return _Field(content, ends[:-1], sizes)


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _ints(column: pa.Array, *, otherwise: int) -> Ints:
    found: Ints = column.cast(pa.int64()).fill_null(otherwise).to_numpy(zero_copy_only=False)
    return found


def _timestamps(column: pa.Array, now_ms: int) -> Ints:
    micros = column.cast(pa.timestamp("us", tz=column.type.tz))
    found = _ints(micros, otherwise=now_ms * 1000) // 1000
    if (found < 0).any():
        raise InvalidTimestampError(
            f"Invalid timestamp: {int(found.min())}. Timestamp should always be non-negative or "
            "null."
        )
    return found


def _partitions(column: pa.Array, partitions: int) -> Ints:
    given = _ints(column, otherwise=-1)
    wrong = ~_is_null(column) & ((given < 0) | (given >= partitions))
    if wrong.any():
        raise InvalidRecordError(
            f"Invalid partition given with record: {int(given[wrong][0])} is not in the range "
            f"[0...{partitions})."
        )
    return given.copy()


def _headers(column: pa.Array, table: Ints) -> tuple[_Field, _Field]:
    """The keys and the values of all headers; says in the table which are a row's."""
    counts = _ints(column.value_lengths(), otherwise=0)
    offsets = np.frombuffer(
        column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=4 * column.offset
    )
    table[:, rows_of.HEADERS_FIRST] = offsets[:-1]
    table[:, rows_of.HEADERS_COUNT] = counts
    # Not `flatten`, which leaves out what lies under a null: the offsets count that.
    structs = column.values
    names = _field(structs.field(0))
    used = np.zeros(len(structs) + 1, dtype=np.int64)
    filled = counts > 0
    np.add.at(used, offsets[:-1][filled], 1)
    np.add.at(used, offsets[:-1][filled] + counts[filled], -1)
    is_used = np.cumsum(used[:-1]) > 0
    if (is_used & (_is_null(structs) | (names.sizes < 0))).any():
        raise InvalidRecordError("Invalid null key found in headers")
    return names, _field(structs.field(1))
