"""Reads segments as blocks of whole batches, checked, in bounded memory.

Every batch is checked here before anything is decided about it: its length, its magic, its CRC. A
magic 0 or 1 entry comes out as a block of one magic 2 batch with the same records, made in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cordwood.format.compression import Codec, codec_of, decompress_into
from cordwood.format.legacy import LegacyBatch
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.native.codecs import NO_ROOM, NOT_HERE, Codecs
from cordwood.format.record_batch import LOG_OVERHEAD_BYTES, build_batch, parse_batch
from cordwood.model.errors import BatchTooLargeError, CordwoodError, CorruptError
from cordwood.storage.filesystem import OS, File, FileSystem
from cordwood.storage.reading.source import BATCH_BYTES_MAX, SegmentSource

READ_BYTES = 4 << 20
_SLACK = 64
_ROWS = 1 << 15
_ARENA_BYTES = 16 << 20
# The compiled decoder of LZ4 needs memory for a whole block, of which 4 MiB is the largest.
_LZ4_BLOCK_BYTES_MAX = 4 << 20
# A record of a legacy set takes several times its bytes as a Python object.
_LEGACY_SHARE = 4

#: The status of a batch that extends past the end of its segment.
CUT_OFF = -1

_REASONS = {
    rows_of.BAD_LENGTH: "a batch whose length field is too small",
    rows_of.BAD_MAGIC: "a batch of unknown magic",
    rows_of.BAD_CRC: "a batch whose CRC does not match",
    rows_of.BAD_COUNT: "a batch whose record count or offsets are impossible",
}

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class BadBatchError(CorruptError):
    """What is at `position` is no batch; `status` is that of `kernels.scan_batches`, or CUT_OFF."""

    status: int = rows_of.ENDED

    @classmethod
    def of(cls, status: int, reason: str, *, path: str, position: int) -> BadBatchError:
        """The error with its status, which does not travel with it to another process."""
        error = cls(reason, path=path, position=position)
        error.status = status
        return error


@dataclass(slots=True)
class Block:
    """Some consecutive batches of one segment, in memory until the next block is read.

    `table` is int64 of shape (rows, COLUMNS); `position` is where `buffer` starts in the file.
    `legacy` is set when the one row stands for a magic 0 or 1 entry.
    """

    buffer: Bytes
    table: Ints
    position: int
    legacy: LegacyBatch | None = None

    @property
    def rows(self) -> int:
        """How many batches."""
        return int(self.table.shape[0])

    def position_of(self, row: int) -> int:
        """Where in the file a batch starts."""
        return self.position + int(self.table[row, rows_of.POSITION])


class SegmentReader:
    """Blocks of a segment; one reader serves many segments and keeps its buffers."""

    def __init__(self, read_bytes: int = READ_BYTES, *, fs: FileSystem = OS) -> None:
        self._fs = fs
        self._buffer = np.zeros(read_bytes + _SLACK, dtype=np.uint8)
        self._table = np.empty((_ROWS, rows_of.COLUMNS), dtype=np.int64)

    def _grow(self, wanted: int) -> None:
        bigger = np.zeros(wanted + _SLACK, dtype=np.uint8)
        bigger[: self._buffer.shape[0]] = self._buffer
        self._buffer = bigger

    def blocks(
        self,
        source: SegmentSource,
        *,
        start: int = 0,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> Iterator[Block]:
        """The batches of a segment from byte `start` on, in order.

        Memory is taken for the largest of them.

        Raises:
            BatchTooLargeError: a batch takes more than `batch_bytes_max`, and than is read at once.
            BadBatchError: what is behind the batches so far is none; names the file and position.
            CorruptError: an old message cannot be read; names the file and position.
            OSError: the file cannot be read.
        """
        with closing(self._fs.open(Path(source.path))) as reader:
            reader.read_ahead()
            yield from self._blocks(source, reader, start, batch_bytes_max)

    def _blocks(
        self, source: SegmentSource, reader: File, position: int, batch_bytes_max: int
    ) -> Iterator[Block]:
        # `position` is where in the file the buffer's first byte is.
        have = 0
        while position < source.size_bytes:
            room = self._buffer.shape[0] - _SLACK
            wanted = min(room, source.size_bytes - position)
            while have < wanted:
                came = reader.read_into(self._buffer.data[have:wanted], position + have)
                if came == 0:
                    raise CorruptError(
                        f"the file ends before its {source.size_bytes} bytes",
                        path=source.path,
                        position=position + have,
                    )
                have += came
            start = 0
            while True:
                rows, after, status = kernels.scan_batches(
                    self._buffer, start, have, self._table, True
                )
                if rows:
                    yield Block(self._buffer, self._table[:rows], position)
                start = after
                if status == rows_of.LEGACY:
                    block, size = self._legacy_block(source, position, start, have, batch_bytes_max)
                    yield block
                    start += size
                elif status != rows_of.FULL:
                    break
            if status in _REASONS:
                raise BadBatchError.of(
                    status, _REASONS[status], path=source.path, position=position + start
                )
            at_end = position + have >= source.size_bytes
            if at_end and start < have:
                raise BadBatchError.of(
                    CUT_OFF,
                    "a batch that extends past the end of the segment",
                    path=source.path,
                    position=position + start,
                )
            if start == 0 and not at_end:
                size = max(room + 1, self._size_of_batch())
                if size > batch_bytes_max:
                    raise _too_large(source, position, f"takes {size} bytes", batch_bytes_max)
                self._grow(min(size, source.size_bytes - position))
            self._buffer[: have - start] = self._buffer[start:have].copy()
            position += start
            have -= start

    def _size_of_batch(self) -> int:
        """The size in the header of the batch at the buffer's start."""
        return int.from_bytes(self._buffer[8:12].tobytes(), "big") + LOG_OVERHEAD_BYTES

    def _legacy_block(
        self, source: SegmentSource, position: int, start: int, end: int, batch_bytes_max: int
    ) -> tuple[Block, int]:
        try:
            entry = parse_batch(self._buffer[start:end].tobytes())
            assert isinstance(entry, LegacyBatch), "the scan said that a legacy entry is here"
            entry.require_valid()
            records = entry.records(size_max=batch_bytes_max // _LEGACY_SHARE)
            if not records:
                raise CorruptError("a legacy entry without records")
            data = build_batch(records, base_offset=records[0].offset)
        except BatchTooLargeError as error:
            raise _too_large(source, position + start, str(error), batch_bytes_max) from error
        except CorruptError as error:
            raise error.located(path=source.path, base_position=position + start) from error
        buffer = np.zeros(len(data) + _SLACK, dtype=np.uint8)
        buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        table = np.empty((1, rows_of.COLUMNS), dtype=np.int64)
        rows, _, _ = kernels.scan_batches(buffer, 0, len(data), table, False)
        assert rows == 1, "a batch just built does not scan"
        return Block(buffer, table, position + start, entry), entry.size_bytes


@dataclass(slots=True)
class Payload:
    """Where the records of some batches of a block are: `spans[i]` is (start, end) in `buffer`.

    A start of -1 marks a batch that has none to look at.
    """

    buffer: Bytes
    spans: Ints
    first: int
    last: int


class PayloadReader:
    """The records of a block's batches, decompressed where needed, in bounded memory."""

    def __init__(self, *, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        """Decompresses batches to at most `batch_bytes_max` bytes each."""
        self._codecs = Codecs()
        self._batch_bytes_max = batch_bytes_max
        self._arena = np.zeros(_ARENA_BYTES, dtype=np.uint8)

    def payloads(
        self, source: SegmentSource, block: Block, wanted: npt.NDArray[np.bool_]
    ) -> Iterator[Payload]:
        """Runs of rows with their records, in order; rows not `wanted` have none.

        Raises:
            BatchTooLargeError: a batch expands beyond what it may.
            CorruptError: a batch does not decompress; names the file and the position in it.
        """
        table = block.table
        if self._arena.shape[0] > _ARENA_BYTES:  # one large batch: the next need less memory
            self._arena = np.zeros(_ARENA_BYTES, dtype=np.uint8)
        plain = (table[:, rows_of.ATTRIBUTES] & 7) == 0
        spans = np.empty((block.rows, 2), dtype=np.int64)
        if not np.any(wanted & ~plain):
            spans[:, 0] = table[:, rows_of.POSITION] + rows_of.HEADER_SIZE
            spans[:, 1] = table[:, rows_of.POSITION] + table[:, rows_of.SIZE]
            spans[~wanted] = -1
            yield Payload(block.buffer, spans, 0, block.rows)
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
                size = self._decompress(source, block, row, used)
                if size is not None:
                    spans[row] = used, used + size
                    used += size
                    row += 1
                    continue
            elif status != NO_ROOM:
                raise self._bad(source, block, row, "the codec refuses them")
            if row > first:
                yield self._run(source, block, spans, first, row)
                first, used = row, 0
            else:
                self._make_room_for_one(source, block, row)
        yield self._run(source, block, spans, first, block.rows)

    def _run(
        self, source: SegmentSource, block: Block, spans: Ints, first: int, last: int
    ) -> Payload:
        counts = block.table[first:last, rows_of.COUNT]
        sizes = spans[first:last, 1] - spans[first:last, 0]
        wrong = np.flatnonzero((spans[first:last, 0] >= 0) & (counts * 7 > sizes))
        if len(wrong):
            raise CorruptError(
                "a batch that claims more records than it holds",
                path=source.path,
                position=block.position_of(first + int(wrong[0])),
            )
        return Payload(self._arena, spans, first, last)

    def _make_room_for_one(self, source: SegmentSource, block: Block, row: int) -> None:
        """Allocates buffers for the largest batch; memory is taken as it is written to."""
        room = self._batch_bytes_max + _LZ4_BLOCK_BYTES_MAX + _SLACK
        if self._arena.shape[0] >= room:
            codec = _codec_name(int(block.table[row, rows_of.ATTRIBUTES]) & 7)
            raise _too_large(
                source, block.position_of(row), f"expands further ({codec})", self._batch_bytes_max
            )
        self._arena = np.zeros(room, dtype=np.uint8)

    def _decompress(self, source: SegmentSource, block: Block, row: int, used: int) -> int | None:
        """Decompresses one batch to the arena; its size, or None if it does not fit."""
        codec, data = records_of(block, row)
        end = min(self._arena.shape[0] - _SLACK, used + self._batch_bytes_max)
        try:
            return decompress_into(codec_of(codec), data, self._arena.data[used:end])
        except CordwoodError as error:
            raise self._bad(source, block, row, str(error)) from error

    def _bad(self, source: SegmentSource, block: Block, row: int, why: str) -> CorruptError:
        codec = _codec_name(int(block.table[row, rows_of.ATTRIBUTES]) & 7)
        return CorruptError(
            f"a batch whose records do not decompress ({codec}): {why}",
            path=source.path,
            position=block.position_of(row),
        )


def records_of(block: Block, row: int) -> tuple[int, memoryview]:
    """A batch's codec, and its records as they are stored."""
    start = int(block.table[row, rows_of.POSITION])
    end = start + int(block.table[row, rows_of.SIZE])
    codec = int(block.table[row, rows_of.ATTRIBUTES]) & 7
    return codec, block.buffer.data[start + rows_of.HEADER_SIZE : end]


def _too_large(
    source: SegmentSource, position: int, what: str, bytes_max: int
) -> BatchTooLargeError:
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
