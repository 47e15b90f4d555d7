"""Decodes a column of a table: prefixes, nulls, and what is malformed.

Source: Confluent's wire format: a byte 0, the id of the schema in four bytes, the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cordwood.frames.decoding.encoding import Encoding, Format, Malformed, Prefix
from cordwood.frames.decoding.rows import Decoder
from cordwood.model.errors import MalformedValueError
from cordwood.model.extras import LAKE, SPARK, require_extra

_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5


class _Values(NamedTuple):
    """Encoded values, the row of each, and the ids of their schemas if they have some."""

    values: pa.Array
    rows: Any
    ids: Sequence[int]


class ColumnDecoder:
    """Decodes a column; a record without a value has none in the result, either."""

    def __init__(self, encoding: Encoding) -> None:
        """Takes how it is encoded.

        Raises:
            ConfigError: its schema cannot be used.
            MissingExtraError: what decodes it is not installed.
        """
        self._encoding = encoding
        self._decoder = _decoder(encoding)

    @property
    def type(self) -> pa.DataType:
        """The type of the decoded column."""
        return self._decoder.type

    def decode(self, column: pa.Array, place: Callable[[int], str]) -> pa.Array:
        """The column, decoded.

        Args:
            column: binary.
            place: names the record of a row, for an error.

        Raises:
            MalformedValueError: a value is not what its schema describes, and that is to fail.
        """

        def note(row: int, reason: str) -> None:
            if self._encoding.malformed is Malformed.FAIL:
                raise MalformedValueError(place(row), self._encoding.column, reason)

        found = _Values(column.drop_null(), np.flatnonzero(column.is_valid()), ())
        if self._encoding.prefix is Prefix.CONFLUENT:
            found = _behind_prefixes(found, note)
        if not len(found.rows):
            return pa.nulls(len(column), self.type)
        decoded = self._decoder.decode(
            found.values, found.ids, lambda number, reason: note(int(found.rows[number]), reason)
        )
        if len(decoded) == len(column):
            return decoded
        places = np.full(len(column), -1, dtype=np.int64)
        places[found.rows] = np.arange(len(decoded))
        return decoded.take(pa.array(places, mask=places < 0))


def _behind_prefixes(given: _Values, note: Callable[[int, str], None]) -> _Values:
    """Removes prefixes, and values without one."""
    # Padded, so that a value may be taken to have a prefix that it has no bytes for.
    content, offsets = _buffers(given.values, padding=_PREFIX_BYTES)
    is_framed = (np.diff(offsets) >= _PREFIX_BYTES) & (content[offsets[:-1]] == _MAGIC)
    for number in np.flatnonzero(~is_framed).tolist():
        note(int(given.rows[number]), "it does not begin with a 0 and the id of a schema")
    framed = given.values.filter(pa.array(is_framed))
    content, offsets = _buffers(framed)
    places = offsets[:-1, None] + np.arange(_PREFIX_BYTES)
    ids = np.ascontiguousarray(content[places[:, 1:]]).view(">i4").ravel().tolist()
    is_value = np.ones(len(content), dtype=np.bool_)
    is_value[places] = False
    behind = offsets - _PREFIX_BYTES * np.arange(len(offsets))
    buffers = [None, pa.py_buffer(behind.astype(np.int32)), pa.py_buffer(content[is_value])]
    values = pa.Array.from_buffers(framed.type, len(framed), buffers)
    return _Values(values, given.rows[is_framed], ids)


def _buffers(values: pa.Array, *, padding: int = 0) -> tuple[Any, Any]:
    """uint8[bytes] and int64[values + 1]: the content of binary values, and where each begins."""
    _, offsets, content = values.buffers()
    found = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    places = found[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, end = int(places[0]), int(places[-1])
    data = np.frombuffer(content, dtype=np.uint8) if content else np.empty(0, dtype=np.uint8)
    whole = np.zeros(end - first + padding, dtype=np.uint8)
    whole[: end - first] = data[first:end]
    return whole, places - first


@cache
def _decoder(encoding: Encoding) -> Decoder:
    if encoding.format is Format.JSON:
        from cordwood.frames.decoding.json_values import json_decoder  # noqa: PLC0415  # one of three

        return json_decoder(encoding.schema.decode())
    if encoding.format is Format.AVRO:
        require_extra(LAKE, what="decoding Avro")
        from cordwood.frames.decoding.avro_values import AvroDecoder  # noqa: PLC0415

        return AvroDecoder(encoding.schema.decode(), dict(encoding.writer_schemas))
    require_extra(SPARK, what="decoding Protobuf")
    from cordwood.frames.decoding.protobuf_values import ProtobufDecoder  # noqa: PLC0415

    has_indexes = encoding.prefix is Prefix.CONFLUENT
    return ProtobufDecoder(encoding.schema, encoding.message, has_indexes=has_indexes)
