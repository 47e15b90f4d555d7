"""A walk over a segment by compiled code, block by block. Twin: `SegmentWalk`, one by one.

What is odd is left to the twin: old messages, batches larger than a block, and every batch that the
compiled code takes for damaged, so that one place decides what damage is.

Importing this loads the kernels; only a walk over many small batches does.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cordwood.format.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, parse_header
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.native import batches as rows_of
from cordwood.format.native import index_entries as state_of
from cordwood.format.native import kernels
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import File
from cordwood.storage.reading.batch_heads import BatchHead
from cordwood.storage.segment.index_builder import IndexBuilder

BLOCK_BYTES = 4 << 20
_SLACK = 64
_ROWS = 1 << 14
#: Of a producer's batches in a row, only as many of the last are passed on as its state keeps.
_BATCHES_REMEMBERED = 5

Ints = npt.NDArray[np.int64]


class Walk(Protocol):
    """The fields of a `SegmentWalk` for compiled code; they are described there."""

    position: int
    next_offset: int
    last_offset: int

    @property
    def file(self) -> File:
        """The log."""

    @property
    def end(self) -> int:
        """The number of bytes."""

    @property
    def builder(self) -> IndexBuilder:
        """Gets each batch's entries."""

    @property
    def checks_crc(self) -> bool:
        """Whether the CRC of each batch is checked."""

    @property
    def reach(self) -> int:
        """The largest distance of an offset from the base offset."""

    @property
    def on_batch(self) -> Callable[[BatchHeader, EndTxnMarker | None], None] | None:
        """Gets batches with a producer id."""

    @property
    def leader_epochs(self) -> object | None:
        """None if no leader epochs are kept."""

    @property
    def epoch(self) -> int:
        """The largest leader epoch so far, -1 for none."""

    def require_follows(self, base_offset: int, last_offset: int, /) -> None:
        """Raises an error for a batch that does not lie behind the one before."""

    def require_in_range(self, last_offset: int, /) -> None:
        """Raises an error for an offset that the indexes cannot hold."""

    def note_epoch(self, epoch: int, base_offset: int, /) -> None:
        """Records a leader epoch, if it is the largest so far."""

    def marker_at(self, head: BatchHead, /) -> EndTxnMarker | None:
        """The marker of a control batch."""


class NativeWalk:
    """Continues a walk as far as compiled code can."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        size = min(BLOCK_BYTES, walk.end)
        self._buffer = np.empty(size + _SLACK, dtype=np.uint8)
        self._view = self._buffer.data[:size]
        self._table = np.empty((_ROWS, rows_of.COLUMNS), dtype=np.int64)
        self._offset_entries = np.empty((_ROWS, 2), dtype=np.int64)
        self._time_entries = np.empty((_ROWS, 2), dtype=np.int64)

    def run(self) -> None:
        """Walks on from the walk's position, to the first batch that is not for compiled code.

        Raises:
            CorruptError: a transaction marker cannot be read; the batch counts.
            KafkaError: as `SegmentWalk.run`.
        """
        walk = self._walk
        while walk.position < walk.end:
            size = min(len(self._view), walk.end - walk.position)
            got = walk.file.read_into(self._view[:size], walk.position)
            block_start, start = walk.position, 0
            while True:
                rows, stop, how = kernels.scan_batches(
                    self._buffer, start, got, self._table, walk.checks_crc
                )
                if rows:
                    self._take(int(rows), block_start)
                walk.position = block_start + int(stop)
                start = int(stop)
                if how != rows_of.FULL:
                    break
            if how != rows_of.ENDED or stop == 0:
                return

    def _take(self, rows: int, block_start: int) -> None:
        """Processes rows of a table as `SegmentWalk` processes batches."""
        walk = self._walk
        table = self._table[:rows]
        before = np.concatenate(([walk.last_offset], table[:-1, rows_of.LAST_OFFSET]))
        follows = (before < table[:, rows_of.BASE_OFFSET]) & (
            table[:, rows_of.BASE_OFFSET] <= table[:, rows_of.LAST_OFFSET]
        )
        if walk.checks_crc and not follows.all():
            rows = int(np.argmin(follows))
            if rows:
                self._take(rows, block_start)
            first = self._table[rows]
            walk.require_follows(int(first[rows_of.BASE_OFFSET]), int(first[rows_of.LAST_OFFSET]))
        relative = table[:, rows_of.LAST_OFFSET] - walk.builder.base_offset
        far = np.flatnonzero((relative < 0) | (relative > walk.reach))
        good = int(far[0]) if far.size else rows
        markers: dict[int, EndTxnMarker | None] = {}
        damage: CorruptError | None = None
        damaged = rows
        if walk.on_batch is not None:
            markers, damaged, damage = self._markers(good, block_start)
        # A marker that cannot be read ends the log behind its batch.
        indexed = self._index(min(good, damaged + 1), block_start)
        self._note_epochs(indexed)
        if walk.on_batch is not None:
            for row in rows_for_producers(table[: min(indexed, damaged)]):
                position = int(table[row, rows_of.POSITION])
                walk.on_batch(parse_header(self._view, position), markers.get(int(row)))
        if indexed:
            last = table[indexed - 1]
            walk.position = block_start + int(last[rows_of.POSITION] + last[rows_of.SIZE])
            walk.last_offset = int(last[rows_of.LAST_OFFSET])
            walk.next_offset = walk.last_offset + 1
        if indexed < min(good, damaged + 1):
            bad = table[indexed]
            walk.builder.add(
                block_start + int(bad[rows_of.POSITION]),
                int(bad[rows_of.LAST_OFFSET]),
                int(bad[rows_of.MAX_TIMESTAMP]),
            )
            raise AssertionError("the builder refuses what compiled code refuses")
        if damage is not None:
            raise damage
        if good < rows:
            walk.require_in_range(int(table[good, rows_of.LAST_OFFSET]))

    def _index(self, rows: int, block_start: int) -> int:
        """Adds index entries; how many batches were taken."""
        builder = self._walk.builder
        base = builder.base_offset
        state = np.array(
            [
                builder.indexed_at,
                builder.max_timestamp,
                builder.offset_of_max_timestamp,
                base + builder.offsets[-1] if builder.offsets else -1,
                builder.timestamps[-1] if builder.timestamps else -1,
                base + builder.time_offsets[-1] if builder.time_offsets else -1,
            ],
            dtype=np.int64,
        )
        filled = np.zeros(2, dtype=np.int64)
        taken = kernels.index_rows(
            self._table,
            rows,
            block_start,
            builder.interval_bytes,
            state,
            self._offset_entries,
            self._time_entries,
            filled,
        )
        offsets = self._offset_entries[: filled[0]]
        times = self._time_entries[: filled[1]]
        _extend(builder.offsets, offsets[:, 0] - base)
        _extend(builder.positions, offsets[:, 1])
        _extend(builder.timestamps, times[:, 0])
        _extend(builder.time_offsets, times[:, 1] - base)
        builder.indexed_at = int(state[state_of.INDEXED_AT])
        builder.max_timestamp = int(state[state_of.NEWEST])
        builder.offset_of_max_timestamp = int(state[state_of.OFFSET_OF_NEWEST])
        return int(taken)

    def _note_epochs(self, rows: int) -> None:
        walk = self._walk
        if walk.leader_epochs is None or not rows:
            return
        epochs = self._table[:rows, rows_of.LEADER_EPOCH]
        before = np.maximum.accumulate(np.concatenate(([walk.epoch], epochs[:-1])))
        for row in np.flatnonzero(epochs > before):
            walk.note_epoch(int(epochs[row]), int(self._table[row, rows_of.BASE_OFFSET]))

    # ---- producers

    def _markers(
        self, rows: int, block_start: int
    ) -> tuple[dict[int, EndTxnMarker | None], int, CorruptError | None]:
        """Markers by row, and the first row whose marker cannot be read, with the reason."""
        table = self._table[:rows]
        is_control = (table[:, rows_of.ATTRIBUTES] & CONTROL_BIT) != 0
        markers: dict[int, EndTxnMarker | None] = {}
        for row in np.flatnonzero(is_control & (table[:, rows_of.PRODUCER_ID] >= 0)):
            fields = table[row]
            head = BatchHead(
                block_start + int(fields[rows_of.POSITION]),
                int(fields[rows_of.SIZE]),
                int(fields[rows_of.BASE_OFFSET]),
                int(fields[rows_of.LAST_OFFSET]),
                int(fields[rows_of.MAX_TIMESTAMP]),
                int(fields[rows_of.LEADER_EPOCH]),
                int(fields[rows_of.MAGIC]),
                int(fields[rows_of.ATTRIBUTES]),
                int(fields[rows_of.PRODUCER_ID]),
            )
            try:
                markers[int(row)] = self._walk.marker_at(head)
            except CorruptError as error:
                return markers, int(row), error
        return markers, self._table.shape[0], None


def rows_for_producers(table: Ints) -> Ints:
    """The rows of a batch table that are passed to the producer state, in order.

    Of a producer's data batches between two of its control batches only the first and the last
    few make a difference, as long as all or none are transactional: the first opens the
    transaction and gives the producer its place, the last few are all that is remembered.
    """
    owned = np.flatnonzero(table[:, rows_of.PRODUCER_ID] >= 0)
    if owned.size <= _BATCHES_REMEMBERED:
        return owned
    producers = table[owned, rows_of.PRODUCER_ID]
    attributes = table[owned, rows_of.ATTRIBUTES]
    order = np.argsort(producers, kind="stable")
    by_producer, bits = producers[order], attributes[order]
    is_control = (bits & CONTROL_BIT) != 0
    is_transactional = (bits & TRANSACTIONAL_BIT) != 0
    # A run begins with another producer, at and behind a control batch, and where the
    # transactional bit changes.
    begins = np.ones(order.size, dtype=np.bool_)
    begins[1:] = (
        (by_producer[1:] != by_producer[:-1])
        | is_control[1:]
        | is_control[:-1]
        | (is_transactional[1:] != is_transactional[:-1])
    )
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], order.size)
    place = np.arange(order.size)
    run = np.cumsum(begins) - 1
    is_needed = begins | (place >= ends[run] - _BATCHES_REMEMBERED)
    needed: Ints = owned[np.sort(order[is_needed])]
    return needed


def _extend(column: array[int], values: Ints) -> None:
    """Adds values to an array, which is wide enough for them."""
    column.frombytes(values.astype(f"i{column.itemsize}").tobytes())
