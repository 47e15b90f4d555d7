"""Finds records of a log in its segment files: the one at an offset, or all with a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cordwood.format.native import batches as rows_of
from cordwood.format.record import Record
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.block import Block
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_CONTROL = 0x20
_TRANSACTIONAL = 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record, and what its batch says of it.

    `segment_base` is the base offset of its segment. `is_aborted` is true for the data of an
    aborted transaction, `is_control` for a transaction marker. `delete_horizon_ms` is that of its
    batch, None where no cleaning has set it.
    """

    record: Record
    segment_base: int
    is_control: bool = False
    is_aborted: bool = False
    delete_horizon_ms: int | None = None

    @property
    def is_tombstone(self) -> bool:
        """Whether it has a key and no value, and is not a marker."""
        return not self.is_control and self.record.key is not None and self.record.value is None


class RecordSearch:
    """Searches the segments of one log."""

    def __init__(
        self,
        sources: Sequence[SegmentSource],
        aborted: Sequence[AbortedTransaction] = (),
        *,
        bounds: ReadBounds = WIDEST,
        progress: Callable[[int], None] = lambda _: None,
        fs: FileSystem = OS,
    ) -> None:
        """Takes the segments, oldest first; `progress` is called with the bytes read."""
        self._sources = sources
        self._aborted = AbortedTransactions(aborted)
        self._progress = progress
        self._bounds = bounds
        self._reader = SegmentReader(bounds=bounds, fs=fs)

    def at(self, offset: int) -> FoundRecord | None:
        """The record at an offset; None where the log has none: it was removed, or never there.

        Raises:
            CorruptError, OSError: its segment cannot be read.
        """
        for source in self._sources:
            if not source.base_offset <= offset < source.next_base_offset:
                continue
            for block in self._reader.blocks(source):
                table = block.table
                covers = (table[:, rows_of.BASE_OFFSET] <= offset) & (
                    table[:, rows_of.LAST_OFFSET] >= offset
                )
                for row in np.flatnonzero(covers).tolist():
                    for found in self._records(block, row):
                        if found.record.offset == offset:
                            return found
                self._progress(block.size_bytes)
        return None

    def with_key(self, key: bytes) -> Iterator[FoundRecord]:
        """Every record with a key, in offset order, those of aborted transactions, too.

        Raises:
            CorruptError, OSError: a segment cannot be read.
        """
        for source in self._sources:
            for block in self._reader.blocks(source):
                for row in self._rows_with(block, key):
                    for found in self._records(block, row):
                        if found.record.key == key and not found.is_control:
                            yield found
                self._progress(block.size_bytes)

    def _rows_with(self, block: Block, key: bytes) -> Iterator[int]:
        """The batches that hold the bytes of the key anywhere."""
        for payload in self._reader.payloads(block, block.counts > 0):
            for row in range(payload.first, payload.last):
                start, end = payload.spans[row].tolist()
                if start >= 0 and payload.buffer[start:end].tobytes().find(key) >= 0:
                    yield row

    def _records(self, block: Block, row: int) -> Iterator[FoundRecord]:
        table = block.table
        attributes = int(table[row, rows_of.ATTRIBUTES])
        record_bytes_max = self._bounds.record_bytes_max
        records = list(block.records(row, record_bytes_max=record_bytes_max))
        header = block.batch(row).header
        is_control = bool(attributes & _CONTROL)
        is_aborted = bool(attributes & _TRANSACTIONAL) and not is_control
        if is_aborted:
            is_aborted = (
                self._aborted.covering(
                    int(table[row, rows_of.PRODUCER_ID]),
                    int(table[row, rows_of.BASE_OFFSET]),
                    int(table[row, rows_of.LAST_OFFSET]),
                )
                is not None
            )
        for record in records:
            yield FoundRecord(
                record=record,
                segment_base=block.source.base_offset,
                is_control=is_control,
                is_aborted=is_aborted,
                delete_horizon_ms=header.delete_horizon_ms,
            )
