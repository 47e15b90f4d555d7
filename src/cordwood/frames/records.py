"""Records of slices as Arrow batches, column by column; no record becomes a Python object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cordwood.format.batch_header import (
    CONTROL_BIT,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.native import record_fields as fields
from cordwood.frames.columns import partitions, timestamp_types, timestamps, topics
from cordwood.frames.decoding.encoding import NAMES as ENCODING_OPTIONS
from cordwood.frames.options import OFFSETS_OPTIONS, PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP
from cordwood.frames.slices import Slice, blocks_of, slices_again, slices_of
from cordwood.frames.streaming.stream_options import STREAM_OPTIONS
from cordwood.frames.survey import captured_logs
from cordwood.frames.table import Table
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.block import Block, Flags, Ints, Payload
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import ReadBounds
from cordwood.storage.reread import reread

#: An Arrow batch has no more bytes of keys, values and headers, unless one record has.
BATCH_BYTES_MAX: Final = 32 << 20

#: How often a slice is read whose segment is replaced meanwhile.
_ATTEMPTS: Final = 3
_SEQUENCE_MASK = (1 << 31) - 1
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

#: Those that Spark's Kafka source has come first, with its names and types; it has no others by
#: default.
_SCHEMA: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "timestampType": pa.int32(),
        "headers": pa.list_(_HEADER),
        "leaderEpoch": pa.int32(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "sequence": pa.int32(),
        "isTransactional": pa.bool_(),
        "isControl": pa.bool_(),
    }
)
_DEFAULT_COLUMNS: Final = tuple(_SCHEMA.names[:7])


class _Rows(NamedTuple):
    """Some records of a slice: their fields, and of each the row of its batch in the block."""

    slice: Slice
    payload: Payload
    fields: Ints
    batches: Ints

    def of_batch(self, column: int) -> Ints:
        """int64[records], a column of the batch table."""
        found: Ints = self.payload.block.table[self.batches, column]
        return found

    def has_bit(self, bit: int) -> Flags:
        """bool[records], whether a bit of the attributes of the batch is set."""
        found: Flags = (self.of_batch(rows_of.ATTRIBUTES) & bit) != 0
        return found


def _binary(rows: _Rows, column: int) -> pa.Array:
    return _gathered(rows.payload, rows.fields, column, pa.binary())


def _gathered(payload: Payload, found: Ints, column: int, kind: pa.DataType) -> pa.Array:
    sizes = found[:, column + 1]
    out = np.empty(int(np.maximum(sizes, 0).sum()), dtype=np.uint8)
    ends = np.empty(len(found), dtype=np.int64)
    kernels.gather_fields(payload.buffer, found, 0, len(found), column, out, ends)
    offsets = np.zeros(len(found) + 1, dtype=np.int32)
    offsets[1:] = ends
    nulls = sizes < 0
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(found), buffers)


def _headers(rows: _Rows) -> pa.Array:
    counts = rows.fields[:, fields.HEADERS_COUNT]
    found = np.empty((int(counts.sum()), fields.HEADER_COLUMNS), dtype=np.int64)
    status, row = kernels.list_headers(rows.payload.buffer, rows.fields, len(counts), found)
    if status != fields.OK:
        raise rows.payload.block.bad_record(int(rows.batches[row]))
    names = _gathered(rows.payload, found, fields.NAME_START, pa.binary())
    headers = pa.StructArray.from_arrays(
        [_text(names), _gathered(rows.payload, found, fields.CONTENT_START, pa.binary())],
        fields=list(_HEADER),
    )
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(counts)
    return pa.ListArray.from_arrays(pa.array(offsets), headers)


def _text(names: pa.Array) -> pa.Array:
    """Names of headers as text, malformed UTF-8 decoded as by Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decode_utf8(each.as_py()) for each in names], pa.string())


def _sequence(rows: _Rows) -> pa.Array:
    base = rows.of_batch(rows_of.BASE_SEQUENCE)
    delta = rows.fields[:, fields.OFFSET] - rows.of_batch(rows_of.BASE_OFFSET)
    return pa.array(np.where(base < 0, -1, (base + delta) & _SEQUENCE_MASK).astype(np.int32))


def _bit(bit: int) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array(rows.has_bit(bit))


def _of_batch(column: int, kind: type[np.signedinteger[Any]]) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array(rows.of_batch(column).astype(kind))


#: How each column is made.
_MAKERS: Final[Mapping[str, Callable[[_Rows], pa.Array]]] = {
    "key": lambda rows: _binary(rows, fields.KEY_START),
    "value": lambda rows: _binary(rows, fields.VALUE_START),
    "topic": lambda rows: topics(rows.slice.partition, len(rows.batches)),
    "partition": lambda rows: partitions(rows.slice.partition, len(rows.batches)),
    "offset": lambda rows: pa.array(rows.fields[:, fields.OFFSET]),
    "timestamp": lambda rows: timestamps(rows.fields[:, fields.TIMESTAMP]),
    "timestampType": lambda rows: timestamp_types(
        rows.has_bit(TIMESTAMP_TYPE_BIT), rows.payload.block
    ),
    "headers": _headers,
    "leaderEpoch": _of_batch(rows_of.LEADER_EPOCH, np.int32),
    "producerId": _of_batch(rows_of.PRODUCER_ID, np.int64),
    "producerEpoch": _of_batch(rows_of.PRODUCER_EPOCH, np.int16),
    "sequence": _sequence,
    "isTransactional": _bit(TRANSACTIONAL_BIT),
    "isControl": _bit(CONTROL_BIT),
}


class RecordReader:
    """Reads slices as Arrow batches with some of the columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        """Takes names of columns, in the order wanted."""
        self._names = list(columns)
        self._makers = [_MAKERS[name] for name in columns]
        self._next_offset = 0

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The records of a slice, in the order of offsets.

        Of a segment that was compacted since it was cut these are the records that are left.

        Raises:
            CorruptError: a batch or a record cannot be read; names the file and the position.
            OSError: the file cannot be read, or was deleted with records of the slice.
        """
        return self._read(part, _ATTEMPTS)

    def _read(self, part: Slice, attempts: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read_once(part)
        except (FileNotFoundError, CorruptError):
            again = slices_again(part, self._next_offset) if attempts > 1 else None
            if again is None:
                raise
        else:
            return
        for each in again:
            yield from self._read(each, attempts - 1)

    def _read_once(self, part: Slice) -> Iterator[pa.RecordBatch]:
        self._next_offset = part.first_offset
        reader = SegmentReader(bounds=ReadBounds(record_bytes_max=part.record_bytes_max))
        aborted = AbortedTransactions(part.aborted)
        for block in blocks_of(part, reader):
            wanted = _wanted_batches(block, part, aborted)
            if not np.any(wanted):
                continue
            for payload in reader.payloads(block, wanted):
                yield from self._batches(part, payload)

    def _batches(self, part: Slice, payload: Payload) -> Iterator[pa.RecordBatch]:
        rows = _listed(part, payload)
        sizes = rows.fields[:, fields.RECORD_END] - rows.fields[:, fields.KEY_START]
        # The end of each run that fits.
        behind = np.cumsum(sizes)
        first = 0
        while first < len(sizes):
            before = int(behind[first - 1]) if first else 0
            last = int(np.searchsorted(behind, before + BATCH_BYTES_MAX, side="right"))
            last = max(last, first + 1)
            some = rows._replace(fields=rows.fields[first:last], batches=rows.batches[first:last])
            batch = pa.RecordBatch.from_arrays([make(some) for make in self._makers], self._names)
            first, self._next_offset = last, int(some.fields[-1, fields.OFFSET]) + 1
            yield batch


def _listed(part: Slice, payload: Payload) -> _Rows:
    first, last = payload.first, payload.last
    counts = np.where(payload.spans[first:last, 0] < 0, 0, payload.block.counts[first:last])
    found = np.empty((int(counts.sum()), fields.COLUMNS), dtype=np.int64)
    status, row = kernels.list_records(*payload.where, found)
    if status != fields.OK:
        raise payload.block.bad_record(row)
    batches = np.repeat(np.arange(first, last), counts)
    offsets = found[:, fields.OFFSET]
    kept = (offsets >= part.first_offset) & (offsets < part.end_offset)
    if part.first_ms > NO_TIMESTAMP:
        kept &= found[:, fields.TIMESTAMP] >= part.first_ms
    if not kept.all():
        found, batches = found[kept], batches[kept]
    return _Rows(part, payload, found, batches)


def _wanted_batches(block: Block, part: Slice, aborted: AbortedTransactions) -> Flags:
    """bool[rows], the batches of which records may be wanted."""
    table = block.table
    wanted: Flags = (table[:, rows_of.LAST_OFFSET] >= part.first_offset) & (
        table[:, rows_of.BASE_OFFSET] < part.end_offset
    )
    wanted &= block.counts > 0
    attributes = table[:, rows_of.ATTRIBUTES]
    if part.isolation is not Isolation.ALL:
        wanted &= (attributes & CONTROL_BIT) == 0
    if aborted:
        of_transactions = wanted & ((attributes & TRANSACTIONAL_BIT) != 0)
        for row in np.flatnonzero(of_transactions).tolist():
            producer, base, last = table[
                row, [rows_of.PRODUCER_ID, rows_of.BASE_OFFSET, rows_of.LAST_OFFSET]
            ].tolist()
            wanted[row] = aborted.covering(producer, base, last) is None
    return wanted


def _parts(options: FrameOptions, wanted: Wanted) -> list[Slice]:
    # A segment may be replaced between the capture and the search in its index.
    return reread(
        lambda: [
            each
            for captured in captured_logs(options, wanted)
            for each in slices_of(
                captured, wanted, options.isolation, slice_bytes=options.slice_bytes
            )
        ]
    )


def _read(part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return RecordReader(columns).read(part)


RECORDS: Final = Table(
    name="records",
    schema=_SCHEMA,
    default_columns=_DEFAULT_COLUMNS,
    options=(
        *PARTITIONS_OPTIONS,
        *OFFSETS_OPTIONS,
        "startingTimestamp",
        "isolation",
        *ENCODING_OPTIONS,
        *STREAM_OPTIONS,
    ),
    parts=_parts,
    read=_read,
)
