"""The fate of transactional batches and markers, from the markers in the log themselves.

A cleaning takes it from the transaction indexes. Here the first marker of its producer behind a
batch decides. Only for a transaction whose marker lies behind the segments at hand, the index does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.cleanup.verification.batches import marker_in
from cordwood.format.batch_header import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from cordwood.format.control_record import ControlType
from cordwood.format.native import batches as rows_of
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.block import Block, Flags, Ints


class Transactions:
    """The transactions of some consecutive segments: first all blocks go to `note`, in order."""

    def __init__(self, *, log_start_offset: int, before: TransactionSummary) -> None:
        """Takes the log start, below which nobody reads, and the state at the first segment."""
        self._log_start_offset = log_start_offset
        self._before = before
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        self._data: dict[int, list[int]] = {}
        #: By producer, what `_fates` searches: offsets of markers, and whether each is an ABORT.
        self._sorted: dict[int, tuple[Ints, Flags]] = {}
        self._data_sorted: dict[int, Ints] = {}

    def note(self, block: Block) -> None:
        """Takes the markers of a block, and where the data of transactions is."""
        table = block.table
        attributes = table[:, rows_of.ATTRIBUTES]
        for row in np.flatnonzero(attributes & CONTROL_BIT).tolist():
            try:
                marker = marker_in(block, row)
            except CorruptError:
                continue  # no marker that anything depends on: it stays
            if marker is not None:
                producer_id = int(table[row, rows_of.PRODUCER_ID])
                self._markers.setdefault(producer_id, []).append(
                    (
                        int(table[row, rows_of.BASE_OFFSET]),
                        marker.control_type is ControlType.ABORT,
                    )
                )
        rows = _data_rows(table)
        for producer_id in np.unique(table[rows, rows_of.PRODUCER_ID]).tolist():
            mine = rows[table[rows, rows_of.PRODUCER_ID] == producer_id]
            self._data.setdefault(producer_id, []).extend(table[mine, rows_of.BASE_OFFSET].tolist())

    def end(self, beyond: Iterable[AbortedTransaction]) -> None:
        """Ends the blocks; `beyond` are the transactions that are aborted after them."""
        self._data_sorted = {
            producer_id: np.array(offsets, dtype=np.int64)
            for producer_id, offsets in self._data.items()
        }
        behind: dict[int, AbortedTransaction] = {}
        for entry in sorted(beyond, key=lambda each: each.last_offset):
            behind.setdefault(entry.producer_id, entry)
        for producer_id in {*self._markers, *behind}:
            markers = self._markers.get(producer_id, [])
            last = behind.get(producer_id)
            if last is not None:
                # What ends before it begins is a commit, as far as the index says.
                if not any(offset == last.first_offset - 1 for offset, _ in markers):
                    markers = [*markers, (last.first_offset - 1, False)]
                markers = [*markers, (last.last_offset, True)]
            markers.sort()
            self._sorted[producer_id] = (
                np.array([offset for offset, _ in markers], dtype=np.int64),
                np.array([is_abort for _, is_abort in markers], dtype=np.bool_),
            )

    def aborted(self, table: Ints) -> Flags:
        """Flags the rows of a batch table that are data of an aborted transaction."""
        found = np.zeros(len(table), dtype=np.bool_)
        rows = _data_rows(table)
        for producer_id in np.unique(table[rows, rows_of.PRODUCER_ID]).tolist():
            known = self._sorted.get(producer_id)
            if known is None:
                continue
            offsets, is_abort = known
            mine = rows[table[rows, rows_of.PRODUCER_ID] == producer_id]
            place = np.searchsorted(offsets, table[mine, rows_of.BASE_OFFSET])
            is_ended = place < len(offsets)
            place = np.minimum(place, len(offsets) - 1)
            found[mine] = is_ended & is_abort[place] & (offsets[place] >= self._log_start_offset)
        return found

    def undecided(self, table: Ints) -> Flags:
        """Flags the rows of a batch table that are data of a transaction without a later marker."""
        found = np.zeros(len(table), dtype=np.bool_)
        rows = _data_rows(table)
        for producer_id in np.unique(table[rows, rows_of.PRODUCER_ID]).tolist():
            mine = rows[table[rows, rows_of.PRODUCER_ID] == producer_id]
            offsets = self._sorted.get(producer_id, (np.empty(0, dtype=np.int64),))[0]
            place = np.searchsorted(offsets, table[mine, rows_of.BASE_OFFSET])
            found[mine] = place == len(offsets)
        return found

    def marker_before(self, producer_id: int, offset: int) -> int:
        """The offset of the last marker of a producer below `offset`; -1 without one."""
        offsets = self._sorted.get(producer_id, (np.empty(0, dtype=np.int64),))[0]
        place = int(np.searchsorted(offsets, offset))
        return int(offsets[place - 1]) if place else -1

    def has_data_between(self, producer_id: int, first: int, end: int) -> bool:
        """Whether a batch of a producer's transactions is between two offsets, both exclusive."""
        data = self._data_sorted.get(producer_id, np.empty(0, dtype=np.int64))
        place = int(np.searchsorted(data, first, side="right"))
        return place < len(data) and int(data[place]) < end

    def markers_to_stay(self, block: Block, now_ms: int) -> Flags:
        """Flags the control batches of a block that must keep their record."""
        table = block.table
        found = np.zeros(block.rows, dtype=np.bool_)
        attributes = table[:, rows_of.ATTRIBUTES]
        for row in np.flatnonzero(attributes & CONTROL_BIT).tolist():
            offset = int(table[row, rows_of.BASE_OFFSET])
            is_past = bool(attributes[row] & DELETE_HORIZON_BIT) and (
                int(table[row, rows_of.BASE_TIMESTAMP]) <= now_ms
            )
            found[row] = not is_past or self._has_data(int(table[row, rows_of.PRODUCER_ID]), offset)
            found[row] &= offset >= self._log_start_offset
        return found

    def _has_data(self, producer_id: int, offset: int) -> bool:
        """Whether there is data of the transaction that a marker ends; of no marker, always."""
        markers, is_abort = self._sorted.get(producer_id, (np.empty(0), np.empty(0)))
        place = int(np.searchsorted(markers, offset))
        if place == len(markers) or int(markers[place]) != offset:
            return True
        previous = int(markers[place - 1]) if place else -1
        if self.has_data_between(producer_id, previous, offset):
            return True
        if bool(is_abort[place]):
            return (producer_id, offset) in self._before.observed
        was_committed = self._before.committed.get(producer_id, False)
        return was_committed and bool(is_abort[:place].all())


def _data_rows(table: Ints) -> Ints:
    """The rows of transactional data."""
    bits = table[:, rows_of.ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    rows: Ints = np.flatnonzero(bits == TRANSACTIONAL_BIT)
    return rows
