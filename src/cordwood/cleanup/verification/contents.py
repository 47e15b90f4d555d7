"""The records of a segment as rows to compare: offset, timestamp, identity of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents, kernels
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Ints
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

Rows = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive batches: their table, and a row for each record (`kernels.list_contents`).

    `positions` are those of the batches in the file; `is_legacy` is set for an old message.
    """

    table: Ints
    rows: Rows
    positions: Ints
    is_legacy: bool

    @property
    def offsets(self) -> Ints:
        """The offset of each record."""
        return self.rows[:, contents.OFFSET].astype(np.int64)

    @property
    def batch_of(self) -> Ints:
        """The batch of each record, as a row of the table."""
        return np.repeat(np.arange(len(self.table)), self.table[:, rows_of.COUNT])


EMPTY = Chunk(
    np.empty((0, rows_of.COLUMNS), dtype=np.int64),
    np.empty((0, contents.WORDS), dtype=np.uint64),
    np.empty(0, dtype=np.int64),
    False,
)


class ContentReader:
    """Reads the contents of segments, one after the other, with buffers that it keeps."""

    def __init__(
        self,
        secrets: npt.NDArray[np.uint64],
        *,
        bounds: ReadBounds = WIDEST,
        fs: FileSystem = OS,
    ) -> None:
        """Contents are comparable between readers with the same secrets."""
        self._secrets = secrets
        self._reader = SegmentReader(bounds=bounds, fs=fs)

    def chunks(self, source: SegmentSource) -> Iterator[Chunk]:
        """The contents of a segment, in order.

        Raises:
            CorruptError: a batch or record is damaged.
            OSError: the file cannot be read.
        """
        for block in self._reader.blocks(source):
            table = block.table.copy()
            parts = []
            for payload in self._reader.payloads(block, block.counts > 0):
                count = int(block.counts[payload.first : payload.last].sum())
                rows = np.empty((count, contents.WORDS), dtype=np.uint64)
                status, at = kernels.list_contents(*payload.where, self._secrets, rows)
                if status != contents.SOUND:
                    raise block.bad_record(at)
                parts.append(rows)
            yield Chunk(
                table,
                np.concatenate([EMPTY.rows, *parts]),
                block.position + table[:, rows_of.POSITION],
                block.legacy is not None,
            )


class Ahead:
    """A reader of chunks that gives, step by step, the batches up to an offset."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._have = EMPTY

    def take(self, last_offset: int | None = None) -> Chunk:
        """The batches that end at or below an offset, or all that are left.

        Raises:
            As `ContentReader.chunks`.
        """
        lasts = self._have.table[:, rows_of.LAST_OFFSET]
        while last_offset is None or not len(lasts) or int(lasts[-1]) <= last_offset:
            more = next(self._chunks, None)
            if more is None:
                break
            self._have = _joined(self._have, more)
            lasts = self._have.table[:, rows_of.LAST_OFFSET]
        count = len(lasts)
        if last_offset is not None:
            count = int(np.searchsorted(lasts, last_offset, side="right"))
        taken, self._have = _split(self._have, count)
        return taken


def _joined(first: Chunk, second: Chunk) -> Chunk:
    if not len(first.table):
        return second
    return Chunk(
        np.concatenate([first.table, second.table]),
        np.concatenate([first.rows, second.rows]),
        np.concatenate([first.positions, second.positions]),
        False,
    )


def _split(chunk: Chunk, count: int) -> tuple[Chunk, Chunk]:
    records = int(chunk.table[:count, rows_of.COUNT].sum())
    return (
        Chunk(chunk.table[:count], chunk.rows[:records], chunk.positions[:count], chunk.is_legacy),
        Chunk(chunk.table[count:], chunk.rows[records:], chunk.positions[count:], chunk.is_legacy),
    )
