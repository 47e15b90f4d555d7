"""Walks the records of batches: their keys into a table of the newest, or looked up in it.

Twin: `cordwood.format.record_batch.RecordBatch.records`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import BASE_OFFSET, COUNT
from cordwood.format.native.records import BAD_RECORD, OK, TABLE_FULL
from cordwood.format.native.source.kernel import Bytes, Entries, Ints, Rows, Words, inlined, kernel
from cordwood.format.native.source.key_table import find, home_of, identify
from cordwood.format.native.source.machine import prefetch
from cordwood.format.native.source.survivor_bits import set_bit
from cordwood.format.native.source.varints import varint

_GROUP = 256


@inlined
def _record_parts(buffer, position, record_end):
    """(offset delta, start of the key, size of the key, value is null) of a record's body.

    The start of the key is -1 when the body is malformed. `position` is that of the attributes.
    """
    malformed = np.int64(-1)
    _, position = varint(buffer, position + 1, record_end)
    if position < 0:
        return np.int64(0), malformed, np.int64(0), False
    delta, position = varint(buffer, position, record_end)
    if position < 0:
        return np.int64(0), malformed, np.int64(0), False
    key_size, position = varint(buffer, position, record_end)
    if position < 0 or key_size > record_end - position:
        return np.int64(0), malformed, np.int64(0), False
    key_start = position
    if key_size > 0:
        position += key_size
    value_size, position = varint(buffer, position, record_end)
    if position < 0 or value_size > record_end - position:
        return np.int64(0), malformed, np.int64(0), False
    return delta, key_start, key_size, value_size < 0


@kernel
def index_batch(
    buffer: Bytes,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    first_dirty: int,
    ordinal: int,
    table: Entries,
    used: Ints,
    keyed: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Puts the keys of one batch's records into `table`: the newest ordinal of each.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond `end`.
        start: position of the first record.
        end: position after the last record; the records must fill it exactly.
        count: how many records.
        base_offset: the batch's; deltas count from it.
        first_dirty: records below this offset are only marked in `keyed`, not put into the table.
        ordinal: of the batch's first record, in the bit arrays.
        table: the key table; must have space for `count` more keys.
        used: int64[1], number of used slots; updated.
        keyed: uint8 bits; set where a record has a key.
        nulls: uint8 bits; set where a record's value is null.
        secrets: uint64[SECRETS + 1].

    Returns:
        (OK, 0) or (BAD_RECORD, position).
    """
    ids = np.empty((_GROUP, 4), dtype=np.uint64)
    ordinals = np.empty(_GROUP, dtype=np.int64)
    mask = np.uint64(table.shape[0] - 1)
    position = start
    pending = 0
    last_delta = np.int64(-1)
    for i in range(count):
        record = position
        length, position = varint(buffer, position, end)
        if position < 0 or length < 0 or length > end - position or length == 0:
            return BAD_RECORD, record
        record_end = position + length
        delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
        if key_start < 0 or delta <= last_delta:
            return BAD_RECORD, record
        last_delta = delta
        if null:
            set_bit(nulls, ordinal + i)
        if key_size >= 0:
            set_bit(keyed, ordinal + i)
            if base_offset + delta >= first_dirty:
                row = ids[pending]
                identify(buffer, key_start, key_size, secrets, row)
                home = home_of(row[0], row[1], row[2], secrets)
                row[3] = home
                ordinals[pending] = ordinal + i
                prefetch(table, np.int64(home & mask))
                pending += 1
        if pending == _GROUP or (i == count - 1 and pending > 0):
            for j in range(pending):
                row = ids[j]
                slot = find(table, row[0], row[1], row[2], row[3])
                taken = table[slot]
                if taken[3] == 0:
                    taken[0], taken[1], taken[2] = row[0], row[1], row[2]
                    used[0] += 1
                taken[3] = np.uint64(ordinals[j] + 1)
            pending = 0
        position = record_end
    if position != end:
        return BAD_RECORD, position
    return OK, 0


@kernel
def index_batches(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    first_dirty: int,
    ordinals: Ints,
    table: Entries,
    used: Ints,
    keyed: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """`index_batch` for the rows `first` to `last` (exclusive) of a batch table.

    Args:
        spans: int64 of shape (rows, 2): where in `buffer` each batch's records start and end; a
            start of -1 leaves the batch out.
        ordinals: int64[rows], of each batch's first record.

    Returns:
        (OK, rows), (TABLE_FULL, row) when the table must grow before `row`, or (BAD_RECORD, row).
    """
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if (used[0] + count) * 2 > table.shape[0]:
            return TABLE_FULL, i
        status, _ = index_batch(
            buffer,
            spans[i, 0],
            spans[i, 1],
            count,
            batches[i, BASE_OFFSET],
            first_dirty,
            ordinals[i],
            table,
            used,
            keyed,
            nulls,
            secrets,
        )
        if status != OK:
            return BAD_RECORD, i
    return OK, last


@kernel
def probe_batches(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    first_dirty: int,
    ordinals: Ints,
    table: Entries,
    keep: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Sets the bit in `keep` of each keyed record below `first_dirty` whose key is not in `table`.

    The arguments are those of `index_batches`; `table` is read only. Records at or above
    `first_dirty` are walked and checked, and their bits in `keep` are left alone.
    """
    mask = np.uint64(table.shape[0] - 1)
    ids = np.empty((_GROUP, 4), dtype=np.uint64)
    kept_ordinals = np.empty(_GROUP, dtype=np.int64)
    for i in range(first, last):
        position, end = spans[i, 0], spans[i, 1]
        if position < 0:
            continue
        pending = 0
        last_delta = np.int64(-1)
        count = batches[i, COUNT]
        for r in range(count):
            length, position = varint(buffer, position, end)
            if position < 0 or length <= 0 or length > end - position:
                return BAD_RECORD, i
            record_end = position + length
            delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
            if key_start < 0 or delta <= last_delta:
                return BAD_RECORD, i
            last_delta = delta
            if null:
                set_bit(nulls, ordinals[i] + r)
            if key_size >= 0 and batches[i, BASE_OFFSET] + delta < first_dirty:
                row = ids[pending]
                identify(buffer, key_start, key_size, secrets, row)
                row[3] = home_of(row[0], row[1], row[2], secrets)
                kept_ordinals[pending] = ordinals[i] + r
                prefetch(table, np.int64(row[3] & mask))
                pending += 1
            if pending == _GROUP or (r == count - 1 and pending > 0):
                for j in range(pending):
                    row = ids[j]
                    slot = find(table, row[0], row[1], row[2], row[3])
                    if table[slot, 3] == 0:
                        set_bit(keep, kept_ordinals[j])
                pending = 0
            position = record_end
        if position != end:
            return BAD_RECORD, i
    return OK, last


@kernel
def list_batches(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    until_offset: int,
    ordinals: Ints,
    entries: Entries,
    used: Ints,
    keyed: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Appends the identity and ordinal of every keyed record below `until_offset` to `entries`.

    The arguments are those of `index_batches`, but `entries` (uint64 of shape (n, SLOT_WORDS))
    gets every record, also if it has the key already; `used` counts its rows. The result is that of
    `index_batches`; TABLE_FULL means that `entries` has no space for the records of a row.
    """
    for i in range(first, last):
        position, end = spans[i, 0], spans[i, 1]
        if position < 0:
            continue
        count = batches[i, COUNT]
        if used[0] + count > entries.shape[0]:
            return TABLE_FULL, i
        last_delta = np.int64(-1)
        for r in range(count):
            length, position = varint(buffer, position, end)
            if position < 0 or length <= 0 or length > end - position:
                return BAD_RECORD, i
            record_end = position + length
            delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
            if key_start < 0 or delta <= last_delta:
                return BAD_RECORD, i
            last_delta = delta
            if null:
                set_bit(nulls, ordinals[i] + r)
            if key_size >= 0:
                set_bit(keyed, ordinals[i] + r)
                if batches[i, BASE_OFFSET] + delta < until_offset:
                    row = entries[used[0]]
                    identify(buffer, key_start, key_size, secrets, row)
                    row[3] = np.uint64(ordinals[i] + r)
                    used[0] += 1
            position = record_end
        if position != end:
            return BAD_RECORD, i
    return OK, last
