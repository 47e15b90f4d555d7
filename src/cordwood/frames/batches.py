"""Record batches of slices as Arrow batches: what `dump-log` prints of each, column by column.

The rows are those of `kernels.scan_batches`; no batch becomes a Python object, but for messages of
magic 0 and 1, each of which is a row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cordwood.format.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch
from cordwood.format.native import batches as rows_of
from cordwood.frames.columns import partitions, timestamp_types, timestamps, topics
from cordwood.frames.options import OFFSETS_OPTIONS, PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP
from cordwood.frames.slices import Slice, blocks_of, slices_of
from cordwood.frames.survey import captured_logs
from cordwood.frames.table import Table
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.storage.reading.block import Block, Flags, Ints
from cordwood.storage.reading.segment_reader import CrcCheck, SegmentReader
from cordwood.storage.reading.source import ReadBounds

_CODEC_MASK: Final = 0x07
_CRC_POSITION: Final = 17
_SEQUENCE_MASK: Final = (1 << 31) - 1
_IS_VALID: Final = "isValid"

_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segmentBaseOffset": pa.int64(),
        "baseOffset": pa.int64(),
        "lastOffset": pa.int64(),
        "count": pa.int32(),
        "baseSequence": pa.int32(),
        "lastSequence": pa.int32(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "partitionLeaderEpoch": pa.int32(),
        "isTransactional": pa.bool_(),
        "isControl": pa.bool_(),
        "deleteHorizonMs": pa.int64(),
        "position": pa.int64(),
        "timestampType": pa.int32(),
        "maxTimestamp": TIMESTAMP,
        "size": pa.int32(),
        "magic": pa.int8(),
        "codec": pa.string(),
        "crc": pa.int64(),
        _IS_VALID: pa.bool_(),
    }
)


class _Rows(NamedTuple):
    """Some batches of a block."""

    slice: Slice
    block: Block
    table: Ints

    def bit(self, bit: int) -> Flags:
        """bool[rows], whether a bit of the attributes is set."""
        found: Flags = (self.table[:, rows_of.ATTRIBUTES] & bit) != 0
        return found


_Maker = Callable[[_Rows], pa.Array]


def _column(column: int, kind: type[np.signedinteger[Any]]) -> _Maker:
    return lambda rows: pa.array(rows.table[:, column].astype(kind))


def _last_sequence(rows: _Rows) -> pa.Array:
    base = rows.table[:, rows_of.BASE_SEQUENCE]
    delta = rows.table[:, rows_of.LAST_OFFSET] - rows.table[:, rows_of.BASE_OFFSET]
    return pa.array(np.where(base < 0, -1, (base + delta) & _SEQUENCE_MASK).astype(np.int32))


@cache
def _codec_names() -> pa.Array:
    """The names of codecs by their numbers; a number without a codec is null.

    The first array of a process has Arrow import pandas, which one that only plans does not need.
    """
    return pa.array([each.config_name for each in Codec] + [None] * (8 - len(Codec)))


def _delete_horizon(rows: _Rows) -> pa.Array:
    # It takes the place of the base timestamp.
    return pa.array(rows.table[:, rows_of.BASE_TIMESTAMP], mask=~rows.bit(DELETE_HORIZON_BIT))


def _crc(rows: _Rows) -> pa.Array:
    start = rows.table[:, rows_of.POSITION] + _CRC_POSITION
    crc = np.zeros(len(start), dtype=np.int64)
    for byte in range(4):
        crc = (crc << 8) | rows.block.buffer[start + byte]
    return pa.array(crc)


#: How each column is made of batches of magic 2.
_MAKERS: Final[Mapping[str, _Maker]] = {
    "topic": lambda rows: topics(rows.slice.partition, len(rows.table)),
    "partition": lambda rows: partitions(rows.slice.partition, len(rows.table)),
    "segmentBaseOffset": lambda rows: pa.repeat(rows.slice.source.base_offset, len(rows.table)),
    "baseOffset": _column(rows_of.BASE_OFFSET, np.int64),
    "lastOffset": _column(rows_of.LAST_OFFSET, np.int64),
    "count": _column(rows_of.COUNT, np.int32),
    "baseSequence": _column(rows_of.BASE_SEQUENCE, np.int32),
    "lastSequence": _last_sequence,
    "producerId": _column(rows_of.PRODUCER_ID, np.int64),
    "producerEpoch": _column(rows_of.PRODUCER_EPOCH, np.int16),
    "partitionLeaderEpoch": _column(rows_of.LEADER_EPOCH, np.int32),
    "isTransactional": lambda rows: pa.array(rows.bit(TRANSACTIONAL_BIT)),
    "isControl": lambda rows: pa.array(rows.bit(CONTROL_BIT)),
    "deleteHorizonMs": _delete_horizon,
    "position": lambda rows: pa.array(rows.block.position + rows.table[:, rows_of.POSITION]),
    "timestampType": lambda rows: timestamp_types(rows.bit(TIMESTAMP_TYPE_BIT), rows.block),
    "maxTimestamp": lambda rows: timestamps(rows.table[:, rows_of.MAX_TIMESTAMP]),
    "size": _column(rows_of.SIZE, np.int32),
    "magic": _column(rows_of.MAGIC, np.int8),
    "codec": lambda rows: _codec_names().take(
        pa.array(rows.table[:, rows_of.ATTRIBUTES] & _CODEC_MASK)
    ),
    "crc": _crc,
    _IS_VALID: lambda rows: pa.repeat(rows.block.has_valid_crc, len(rows.table)),
}
assert [*_MAKERS] == _SCHEMA.names


def _of_message(of: Callable[[LegacyBatch], int | str], kind: pa.DataType) -> _Maker:
    def make(rows: _Rows) -> pa.Array:
        assert rows.block.legacy is not None, "a block of one old message"
        return pa.array([of(rows.block.legacy)], kind)

    return make


def _legacy_timestamp(rows: _Rows) -> pa.Array:
    assert rows.block.legacy is not None, "as above"
    return timestamps(np.array([rows.block.legacy.max_timestamp]))


#: Those of a message of magic 0 or 1 that are not those of the batch that stands for it.
_LEGACY_MAKERS: Final[Mapping[str, _Maker]] = {
    "maxTimestamp": _legacy_timestamp,
    "size": _of_message(lambda each: each.size_bytes, pa.int32()),
    "magic": _of_message(lambda each: each.magic, pa.int8()),
    "codec": _of_message(lambda each: each.codec.config_name, pa.string()),
    "crc": _of_message(lambda each: each.crc, pa.int64()),
}


def read_batches(part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a slice in the order of offsets, with the named columns.

    Raises:
        CorruptError: as `blocks_of`.
        OSError: the file cannot be read.
    """
    names = list(columns)
    crc = CrcCheck.MARK if _IS_VALID in names else CrcCheck.SKIP
    reader = SegmentReader(bounds=ReadBounds(record_bytes_max=part.record_bytes_max))
    for block in blocks_of(part, reader, crc=crc):
        table = block.table
        wanted = (
            (table[:, rows_of.LAST_OFFSET] >= part.first_offset)
            & (table[:, rows_of.BASE_OFFSET] < part.end_offset)
            & (table[:, rows_of.MAX_TIMESTAMP] >= part.first_ms)
        )
        if not np.any(wanted):
            continue
        rows = _Rows(part, block, table[wanted])
        makers = _MAKERS if block.legacy is None else {**_MAKERS, **_LEGACY_MAKERS}
        yield pa.RecordBatch.from_arrays([makers[name](rows) for name in names], names)


def _parts(options: FrameOptions, wanted: Wanted) -> list[Slice]:
    return [
        each
        for captured in captured_logs(options, wanted)
        for each in slices_of(captured, wanted, Isolation.ALL, slice_bytes=options.slice_bytes)
    ]


BATCHES: Final = Table(
    name="batches",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=(*PARTITIONS_OPTIONS, *OFFSETS_OPTIONS, "startingTimestamp"),
    parts=_parts,
    read=read_batches,
)
