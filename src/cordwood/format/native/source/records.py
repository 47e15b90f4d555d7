"""Walks the records of batches: their keys into a table of the newest, or looked up in it.

Twin: `cordwood.format.record_batch.RecordBatch.records`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import BASE_OFFSET, COUNT
from cordwood.format.native.key_table import SLOT_WORDS
from cordwood.format.native.records import BAD_RECORD, OK, TABLE_FULL
from cordwood.format.native.source.kernel import Bytes, Entries, Ints, Rows, Words, inlined, kernel
from cordwood.format.native.source.key_table import find, home_of, identity_of
from cordwood.format.native.source.machine import prefetch
from cordwood.format.native.source.survivor_bits import set_bit
from cordwood.format.native.source.varints import varint

# So many records are asked for in the table before the first of them is needed.
_GROUP = 256
# A group is uint64 (_GROUP, 5): three words of identity, the home slot, the ordinal.
_HOME = 3
_ORDINAL = 4
_GROUP_WORDS = 5


@inlined
def _put(group, row, buffer, key_start, key_size, secrets, ordinal):
    """Writes one record's row of a group; returns its home slot."""
    first, second, third = identity_of(buffer, key_start, key_size, secrets)
    home = home_of(first, second, third, secrets)
    group[row, 0] = first
    group[row, 1] = second
    group[row, 2] = third
    group[row, _HOME] = home
    group[row, _ORDINAL] = np.uint64(ordinal)
    return home


@inlined
def _record(buffer, position, end):
    """(end, offset delta, start of the key, size of the key, value is null) of a record.

    The end is -1 when the record is malformed, or ends after `end`.
    """
    malformed = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), False
    length, position = varint(buffer, position, end)
    if position < 0 or length <= 0 or length > end - position:
        return malformed
    record_end = position + length
    _, position = varint(buffer, position + 1, record_end)
    if position < 0:
        return malformed
    delta, position = varint(buffer, position, record_end)
    if position < 0:
        return malformed
    key_size, position = varint(buffer, position, record_end)
    if position < 0 or key_size > record_end - position:
        return malformed
    key_start = position
    if key_size > 0:
        position += key_size
    value_size, position = varint(buffer, position, record_end)
    if position < 0 or value_size > record_end - position:
        return malformed
    return record_end, delta, key_start, key_size, value_size < 0


@inlined
def _index_batch(
    buffer, start, end, count, base_offset, first_dirty, ordinal, table, used, keyed, nulls,
    secrets, group
):  # fmt: skip
    """`index_batches` for one batch; whether its records are well-formed.

    `ordinal` is that of its first record, in the bit arrays.
    """
    mask = np.uint64(table.shape[0] - 1)
    position = start
    pending = 0
    last_delta = np.int64(-1)
    for i in range(count):
        position, delta, key_start, key_size, null = _record(buffer, position, end)
        if position < 0 or delta <= last_delta:
            return False
        last_delta = delta
        if null:
            set_bit(nulls, ordinal + i)
        if key_size >= 0:
            set_bit(keyed, ordinal + i)
            if base_offset + delta >= first_dirty:
                home = _put(group, pending, buffer, key_start, key_size, secrets, ordinal + i)
                prefetch(table, np.int64(home & mask))
                pending += 1
        if pending == _GROUP or (i == count - 1 and pending > 0):
            for j in range(pending):
                slot = find(table, group[j, 0], group[j, 1], group[j, 2], group[j, _HOME])
                if table[slot, 3] == 0:
                    for word in range(SLOT_WORDS - 1):
                        table[slot, word] = group[j, word]
                    used[0] += 1
                table[slot, 3] = group[j, _ORDINAL] + np.uint64(1)
            pending = 0
    return position == end


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
    """Puts the keys of batches' records into `table`: the newest ordinal of each.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond the records.
        batches: a batch table, of which the rows `first` to `last` (exclusive) are walked.
        spans: int64 of shape (rows, 2): where in `buffer` each batch's records start and end,
            which they must fill exactly; a start of -1 leaves the batch out.
        first_dirty: records below this offset are only marked in `keyed`, not put into the table.
        ordinals: int64[rows], of each batch's first record, in the bit arrays.
        table: the key table.
        used: int64[1], number of used slots; updated.
        keyed: uint8 bits; set where a record has a key.
        nulls: uint8 bits; set where a record's value is null.
        secrets: uint64[SECRETS + 1].

    Returns:
        (OK, rows), (TABLE_FULL, row) when the table must grow before `row`, or (BAD_RECORD, row).
    """
    group = np.empty((_GROUP, _GROUP_WORDS), dtype=np.uint64)
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if (used[0] + count) * 2 > table.shape[0]:
            return TABLE_FULL, i
        if not _index_batch(
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
            group,
        ):
            return BAD_RECORD, i
    return OK, last


@inlined
def _probe_batch(
    buffer, start, end, count, base_offset, first_dirty, ordinal, table, keep, nulls, secrets, group
):
    """`probe_batches` for one batch; whether its records are well-formed."""
    mask = np.uint64(table.shape[0] - 1)
    position = start
    pending = 0
    last_delta = np.int64(-1)
    for i in range(count):
        position, delta, key_start, key_size, null = _record(buffer, position, end)
        if position < 0 or delta <= last_delta:
            return False
        last_delta = delta
        if null:
            set_bit(nulls, ordinal + i)
        if key_size >= 0 and base_offset + delta < first_dirty:
            home = _put(group, pending, buffer, key_start, key_size, secrets, ordinal + i)
            prefetch(table, np.int64(home & mask))
            pending += 1
        if pending == _GROUP or (i == count - 1 and pending > 0):
            for j in range(pending):
                slot = find(table, group[j, 0], group[j, 1], group[j, 2], group[j, _HOME])
                if table[slot, 3] == 0:
                    set_bit(keep, np.int64(group[j, _ORDINAL]))
            pending = 0
    return position == end


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
    group = np.empty((_GROUP, _GROUP_WORDS), dtype=np.uint64)
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        if not _probe_batch(
            buffer,
            spans[i, 0],
            spans[i, 1],
            batches[i, COUNT],
            batches[i, BASE_OFFSET],
            first_dirty,
            ordinals[i],
            table,
            keep,
            nulls,
            secrets,
            group,
        ):
            return BAD_RECORD, i
    return OK, last


@inlined
def _list_batch(
    buffer, start, end, count, base_offset, until_offset, ordinal, entries, used, keyed, nulls,
    secrets
):  # fmt: skip
    """`list_batches` for one batch; whether its records are well-formed."""
    position = start
    last_delta = np.int64(-1)
    at = used[0]
    for i in range(count):
        position, delta, key_start, key_size, null = _record(buffer, position, end)
        if position < 0 or delta <= last_delta:
            return False
        last_delta = delta
        if null:
            set_bit(nulls, ordinal + i)
        if key_size >= 0:
            set_bit(keyed, ordinal + i)
            if base_offset + delta < until_offset:
                first, second, third = identity_of(buffer, key_start, key_size, secrets)
                entries[at, 0] = first
                entries[at, 1] = second
                entries[at, 2] = third
                entries[at, 3] = np.uint64(ordinal + i)
                at += 1
    used[0] = at
    return position == end


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
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if used[0] + count > entries.shape[0]:
            return TABLE_FULL, i
        if not _list_batch(
            buffer,
            spans[i, 0],
            spans[i, 1],
            count,
            batches[i, BASE_OFFSET],
            until_offset,
            ordinals[i],
            entries,
            used,
            keyed,
            nulls,
            secrets,
        ):
            return BAD_RECORD, i
    return OK, last
