"""Decides which batches of a segment get index entries when its indexes are rebuilt.

Twin: `cordwood.storage.segment.index_builder.IndexBuilder`.
"""

from __future__ import annotations

from cordwood.format.native.batches import LAST_OFFSET, MAX_TIMESTAMP, POSITION
from cordwood.format.native.index_entries import (
    INDEXED_AT,
    LAST_INDEXED_OFFSET,
    LAST_TIME,
    NEWEST,
    OFFSET_OF_LAST_TIME,
    OFFSET_OF_NEWEST,
)
from cordwood.format.native.source.kernel import Ints, Rows, kernel


@kernel
def index_rows(
    table: Rows,
    rows: int,
    base_position: int,
    interval_bytes: int,
    state: Ints,
    offset_entries: Rows,
    time_entries: Rows,
    filled: Ints,
) -> int:
    """Adds the entries of some batches, in order.

    Args:
        table: int64 (n, COLUMNS), of which the first `rows` are valid.
        rows: how many batches.
        base_position: where in the file the table's positions begin.
        interval_bytes: index.interval.bytes.
        state: int64[STATES]: position of the last entry, largest timestamp and the last offset of
            its batch, offset of the last offset index entry, timestamp and offset of the last time
            index entry; -1 for none. Updated.
        offset_entries: int64 (n, 2), receives (offset, position).
        time_entries: int64 (n, 2), receives (timestamp, offset).
        filled: int64[2], rows of both; updated.

    Returns:
        `rows`, or the first batch whose entry would be out of order.

    Source: org.apache.kafka.storage.internals.log.LogSegment.recover.
    """
    for i in range(rows):
        last_offset = table[i, LAST_OFFSET]
        position = base_position + table[i, POSITION]
        newest = state[NEWEST]
        offset_of_newest = state[OFFSET_OF_NEWEST]
        if table[i, MAX_TIMESTAMP] > newest:
            newest = table[i, MAX_TIMESTAMP]
            offset_of_newest = last_offset
        if position - state[INDEXED_AT] > interval_bytes:
            if last_offset <= state[LAST_INDEXED_OFFSET]:
                return i
            if offset_of_newest < state[OFFSET_OF_LAST_TIME]:
                return i
            offset_entries[filled[0], 0] = last_offset
            offset_entries[filled[0], 1] = position
            filled[0] += 1
            state[LAST_INDEXED_OFFSET] = last_offset
            if newest > state[LAST_TIME]:
                time_entries[filled[1], 0] = newest
                time_entries[filled[1], 1] = offset_of_newest
                filled[1] += 1
                state[LAST_TIME] = newest
                state[OFFSET_OF_LAST_TIME] = offset_of_newest
            state[INDEXED_AT] = position
        state[NEWEST] = newest
        state[OFFSET_OF_NEWEST] = offset_of_newest
    return rows
