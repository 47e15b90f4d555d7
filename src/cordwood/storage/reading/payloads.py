"""Decompresses the records of a block's batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cordwood.format.compression import Codec, codec_of, decompress_into
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.native.codecs import NO_ROOM, NOT_HERE, Codecs
from cordwood.format.record_bound import (
    RECORD_BYTES_MAX,
    over_the_bound,
    require_records_within,
)
from cordwood.model.errors import (
    BatchTooLargeError,
    CordwoodError,
    CorruptError,
    OversizedRecordError,
)
from cordwood.storage.reading.block import Block, Flags, Ints, Payload
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_SLACK = 64
_ARENA_BYTES = 16 << 20
# The compiled decoder of LZ4 needs memory for a whole block, of which 4 MiB is the largest.
_LZ4_BLOCK_BYTES_MAX = 4 << 20


class PayloadReader:
    """The records of a block's batches, decompressed where needed, in bounded memory."""

    def __init__(self, bounds: ReadBounds = WIDEST) -> None:
        """Decompresses batches as far as `bounds` let it."""
        self._codecs = Codecs()
        self._bounds = bounds
        self._arena = np.zeros(_ARENA_BYTES, dtype=np.uint8)

    def payloads(self, block: Block, wanted: Flags) -> Iterator[Payload]:
        """Runs of rows with their records; see `SegmentReader.payloads`."""
        table = block.table
        if self._arena.shape[0] > _ARENA_BYTES:  # one large batch: the next need less memory
            self._arena = np.zeros(_ARENA_BYTES, dtype=np.uint8)
        plain = (table[:, rows_of.ATTRIBUTES] & 7) == 0
        spans = np.empty((block.rows, 2), dtype=np.int64)
        if not np.any(wanted & ~plain):
            spans[:, 0] = table[:, rows_of.POSITION] + rows_of.HEADER_SIZE
            spans[:, 1] = table[:, rows_of.POSITION] + table[:, rows_of.SIZE]
            spans[~wanted] = -1
            yield Payload(block, block.buffer, spans, 0, block.rows)
            return
        # Rows must come in order, so plain batches among compressed ones are copied beside them.
        first = row = used = 0
        while row < block.rows:
            row, used, status = kernels.decompress_rows(
                block.buffer,
                table,
                wanted,
                row,
                block.rows,
                self._arena,
                used,
                spans,
                self._codecs.table,
            )
            if status == 0:
                break
            if status == NOT_HERE:
                size = self._decompress(block, row, used)
                if size is not None:
                    spans[row] = used, used + size
                    used += size
                    row += 1
                    continue
            elif status != NO_ROOM:
                raise self._bad(block, row, "the codec refuses them")
            if row > first:
                yield self._run(block, spans, first, row)
                first, used = row, 0
            else:
                self._make_room_for_one(block, row)
        yield self._run(block, spans, first, block.rows)

    def _run(self, block: Block, spans: Ints, first: int, last: int) -> Payload:
        counts = block.counts[first:last]
        sizes = spans[first:last, 1] - spans[first:last, 0]
        wrong = np.flatnonzero((spans[first:last, 0] >= 0) & (counts * 7 > sizes))
        if len(wrong):
            raise block.bad_record(
                first + int(wrong[0]), "a batch that claims more records than it holds"
            )
        for row in np.flatnonzero(sizes > self._bounds.record_bytes_max).tolist():
            start, end = spans[first + row].tolist()
            self._require_records_within(block, first + row, self._arena.data[start:end])
        return Payload(block, self._arena, spans, first, last)

    def _require_records_within(self, block: Block, row: int, records: memoryview) -> None:
        if not block.codec_of(row):  # plain batches are not bounded
            return
        try:
            require_records_within(records, int(block.counts[row]), self._bounds.record_bytes_max)
        except OversizedRecordError as error:
            raise block.oversized(row, error.reason) from error

    def _make_room_for_one(self, block: Block, row: int) -> None:
        """Allocates more memory for a batch that fills it all; it is taken as it is written to.

        Where the topic has a bound, the start is looked at first, and the memory grows in steps.
        """
        bounds, codec = self._bounds, block.codec_of(row)
        wanted = bounds.payload_bytes_max(int(block.counts[row]))
        if not codec:  # it is copied, and its records are not bounded
            wanted = len(block.stored_records(row))
        room = wanted + _LZ4_BLOCK_BYTES_MAX + _SLACK
        if codec and bounds.record_bytes_max < RECORD_BYTES_MAX:
            self._arena[:] = 0
            self._decompress(block, row, 0)
            self._require_records_within(block, row, self._arena.data)
            room = min(room, 4 * self._arena.shape[0])
        if self._arena.shape[0] < room:
            self._arena = np.zeros(room, dtype=np.uint8)
            return
        if wanted < bounds.batch_bytes_max:
            raise block.oversized(row, over_the_bound(bounds.record_bytes_max))
        what = f"expands further ({_codec_name(codec)})"
        raise too_large(block.source, block.position_of(row), what, bounds.batch_bytes_max)

    def _decompress(self, block: Block, row: int, used: int) -> int | None:
        """Decompresses one batch to the arena; its size, or None if it does not fit."""
        end = min(self._arena.shape[0] - _SLACK, used + self._bounds.batch_bytes_max)
        try:
            codec = codec_of(block.codec_of(row))
            return decompress_into(codec, block.stored_records(row), self._arena.data[used:end])
        except CordwoodError as error:
            raise self._bad(block, row, str(error)) from error

    def _bad(self, block: Block, row: int, why: str) -> CorruptError:
        codec = _codec_name(block.codec_of(row))
        return block.bad_record(row, f"a batch whose records do not decompress ({codec}): {why}")


def too_large(
    source: SegmentSource, position: int, what: str, bytes_max: int
) -> BatchTooLargeError:
    """The error for a batch that takes more memory than it may."""
    return BatchTooLargeError(
        f"a batch larger than the {bytes_max} bytes that a task may take of memory for one: it "
        f"{what}. Give `cordwood clean` more --memory, or fewer tasks by --master local[1]; for a "
        "running broker, raise max.message.bytes of the topic",
        path=source.path,
        position=position,
    )


def _codec_name(codec: int) -> str:
    try:
        return Codec(codec).config_name
    except ValueError:
        return str(codec)
