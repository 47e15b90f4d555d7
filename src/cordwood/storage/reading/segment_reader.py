"""Reads segments as blocks of whole batches, checked, in bounded memory.

Every batch is checked here before anything is decided about it: its length, its magic, its CRC,
unless the caller only wants to see what is there. A magic 0 or 1 entry comes out as a block of one
magic 2 batch with the same records, made in memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from enum import Enum
from pathlib import Path

import numpy as np

from cordwood.format.batch_header import LOG_OVERHEAD_BYTES
from cordwood.format.legacy import LegacyBatch
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.record_batch import build_batch, parse_batch
from cordwood.model.errors import BatchTooLargeError, CorruptError, OversizedRecordError
from cordwood.storage.filesystem import OS, File, FileSystem
from cordwood.storage.reading.block import Block, Flags, Payload
from cordwood.storage.reading.payloads import PayloadReader, too_large
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

READ_BYTES = 4 << 20
_SLACK = 64
_ROWS = 1 << 15
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


class CrcCheck(Enum):
    """The consequence of a CRC that does not match: an error, a block of its own, or none.

    With SKIP no CRC is computed.
    """

    REFUSE = "refuse"
    MARK = "mark"
    SKIP = "skip"


class BadBatchError(CorruptError):
    """No batch is at `position`; `status` is that of `kernels.scan_batches`, or CUT_OFF."""

    status: int = rows_of.ENDED

    @classmethod
    def of(cls, status: int, reason: str, *, path: str, position: int) -> BadBatchError:
        """The error with its status, which does not travel with it to another process."""
        error = cls(reason, path=path, position=position)
        error.status = status
        return error


class SegmentReader:
    """Reads segments, one after another, with buffers that it keeps.

    `blocks` and `payloads` take memory for the largest batch within the bounds.
    """

    def __init__(
        self,
        read_bytes: int = READ_BYTES,
        *,
        bounds: ReadBounds = WIDEST,
        fs: FileSystem = OS,
    ) -> None:
        self._bounds = bounds
        self._fs = fs
        self._payloads: PayloadReader | None = None
        self._buffer = np.zeros(read_bytes + _SLACK, dtype=np.uint8)
        self._table = np.empty((_ROWS, rows_of.COLUMNS), dtype=np.int64)

    @property
    def _room(self) -> int:
        """The bytes that are read at once."""
        return self._buffer.shape[0] - _SLACK

    def _grow(self, wanted: int) -> None:
        bigger = np.zeros(wanted + _SLACK, dtype=np.uint8)
        bigger[: self._buffer.shape[0]] = self._buffer
        self._buffer = bigger

    def payloads(self, block: Block, wanted: Flags) -> Iterator[Payload]:
        """Runs of a block's rows with their records, in order; rows not `wanted` have none.

        Each is in memory until the next one is read.

        Args:
            block: the batches.
            wanted: bool[rows].

        Raises:
            BatchTooLargeError: a batch expands beyond what it may.
            OversizedRecordError: a record of a compressed batch is larger than it may be.
            CorruptError: a batch does not decompress; names the file and the position in it.
        """
        if self._payloads is None:
            self._payloads = PayloadReader(self._bounds)
        return self._payloads.payloads(block, wanted)

    def blocks(
        self, source: SegmentSource, *, start: int = 0, crc: CrcCheck = CrcCheck.REFUSE
    ) -> Iterator[Block]:
        """The batches of a segment from byte `start` on, in order.

        `crc` says what becomes of a batch whose CRC does not match.

        Raises:
            BatchTooLargeError: a batch takes more than the reader may take, and than is read at
                once.
            BadBatchError: what is behind the batches so far is none; names the file and position.
            CorruptError: an old message cannot be read; names the file and position.
            OSError: the file cannot be read.
        """
        with closing(self._fs.open(Path(source.path))) as reader:
            if source.size_bytes - start > self._room:
                # What one read takes would be followed by what nobody asked for.
                reader.read_ahead()
            yield from self._blocks(source, reader, start, crc)

    def _blocks(
        self, source: SegmentSource, reader: File, position: int, crc: CrcCheck
    ) -> Iterator[Block]:
        # `position` is where in the file the buffer's first byte is.
        have = 0
        while position < source.size_bytes:
            room = self._room
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
            start, status = yield from self._scanned(source, position, have, crc)
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
                if size > self._bounds.batch_bytes_max:
                    raise too_large(
                        source, position, f"takes {size} bytes", self._bounds.batch_bytes_max
                    )
                self._grow(min(size, source.size_bytes - position))
            self._buffer[: have - start] = self._buffer[start:have].copy()
            position += start
            have -= start

    def _scanned(
        self, source: SegmentSource, position: int, have: int, crc: CrcCheck
    ) -> Generator[Block, None, tuple[int, int]]:
        """The whole batches in `have` bytes of the buffer; returns where they end, and why."""
        start = 0
        while True:
            rows, after, status = kernels.scan_batches(
                self._buffer, start, have, self._table, crc is not CrcCheck.SKIP
            )
            if rows:
                yield Block(source, self._buffer, self._table[:rows], position)
            start = after
            if status == rows_of.LEGACY:
                block, size = self._legacy_block(source, position, start, have, crc)
                yield block
                start += size
            elif status == rows_of.BAD_CRC and crc is CrcCheck.MARK:
                one = self._table[:1]
                rows, after, status = kernels.scan_batches(self._buffer, start, have, one, False)
                if not rows:
                    return start, status
                yield Block(source, self._buffer, one, position, has_valid_crc=False)
                start = after
            elif status != rows_of.FULL:
                return start, status

    def _size_of_batch(self) -> int:
        """The size in the header of the batch at the buffer's start."""
        return int.from_bytes(self._buffer[8:12].tobytes(), "big") + LOG_OVERHEAD_BYTES

    def _legacy_block(
        self, source: SegmentSource, position: int, start: int, end: int, crc: CrcCheck
    ) -> tuple[Block, int]:
        try:
            entry = parse_batch(self._buffer[start:end].tobytes())
            assert isinstance(entry, LegacyBatch), "the scan said that a legacy entry is here"
            if crc is CrcCheck.REFUSE:
                entry.require_valid()
            records = entry.records(
                size_max=self._bounds.batch_bytes_max // _LEGACY_SHARE,
                record_bytes_max=self._bounds.record_bytes_max,
            )
            if not records:
                raise CorruptError("a legacy entry without records")
            data = build_batch(records, base_offset=records[0].offset)
        except BatchTooLargeError as error:
            bytes_max = self._bounds.batch_bytes_max
            raise too_large(source, position + start, str(error), bytes_max) from error
        except OversizedRecordError as error:
            offset = int.from_bytes(self._buffer[start : start + 8].tobytes(), "big")
            raise source.oversized(position + start, offset, error.reason) from error
        except CorruptError as error:
            raise error.located(path=source.path, base_position=position + start) from error
        buffer = np.zeros(len(data) + _SLACK, dtype=np.uint8)
        buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        table = np.empty((1, rows_of.COLUMNS), dtype=np.int64)
        rows, _, _ = kernels.scan_batches(buffer, 0, len(data), table, False)
        assert rows == 1, "a batch just built does not scan"
        is_valid = crc is not CrcCheck.MARK or entry.is_valid()
        block = Block(source, buffer, table, position + start, entry, is_valid)
        return block, entry.size_bytes
