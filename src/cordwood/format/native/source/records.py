"""Walks the records of batches: their keys into a table of the newest, or looked up in it.

Twin: `cordwood.format.record_batch.RecordBatch.records`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import BASE_OFFSET, COUNT
from cordwood.format.native.key_table import SLOT_WORDS
from cordwood.format.native.records import (
    BAD_RECORD,
    OK,
    REGISTER_BITS,
    TABLE_FULL,
    WATCHED_FIRST,
    WATCHED_LEVEL_SHIFT,
    WATCHED_NONE,
)
from cordwood.format.native.source.kernel import Bytes, Entries, Ints, Rows, Words, inlined, kernel
from cordwood.format.native.source.key_table import find, home_of, identity_of
from cordwood.format.native.source.machine import prefetch
from cordwood.format.native.source.survivor_bits import set_bit
from cordwood.format.native.source.varints import LONG_BITS, varint

# So many records are asked for in the table before the first of them is needed.
_GROUP = 256
# A group is uint64 (_GROUP, 5): three words of identity, the home slot, the ordinal.
_HOME = 3
_ORDINAL = 4
_GROUP_WORDS = 5
_WATCHED_MASK = np.uint64((1 << WATCHED_LEVEL_SHIFT) - 1)
_RANK_MAX = 64 - REGISTER_BITS + 1


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
def body_of(buffer, position, end):
    """(start of a record's body, its end); the start is -1 when its length is malformed."""
    length, position = varint(buffer, position, end, LONG_BITS)
    if position < 0 or length <= 0 or length > end - position:
        return np.int64(-1), np.int64(-1)
    return position, position + length


@inlined
def deltas_of(buffer, body, record_end):
    """(timestamp delta, offset delta, position of the key's size); it is -1 when malformed."""
    # One byte of attributes, which have no meaning yet.
    time_delta, position = varint(buffer, body + 1, record_end, LONG_BITS)
    if position < 0:
        return np.int64(0), np.int64(0), np.int64(-1)
    offset_delta, position = varint(buffer, position, record_end, LONG_BITS)
    return time_delta, offset_delta, position


@inlined
def record_after(buffer, position, end, last_delta):
    """(end, offset delta, start of the key, size of the key, value is null) of the next record.

    The end is -1 when the record is malformed, or ends after `end`, or its offset delta is not
    above `last_delta`.
    """
    malformed = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), False
    body, record_end = body_of(buffer, position, end)
    if body < 0:
        return malformed
    _, delta, position = deltas_of(buffer, body, record_end)
    if position < 0 or delta <= last_delta:
        return malformed
    key_size, position = varint(buffer, position, record_end, LONG_BITS)
    if position < 0 or key_size > record_end - position:
        return malformed
    key_start = position
    if key_size > 0:
        position += key_size
    value_size, position = varint(buffer, position, record_end, LONG_BITS)
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
    delta = np.int64(-1)
    for i in range(count):
        position, delta, key_start, key_size, null = record_after(buffer, position, end, delta)
        if position < 0:
            return False
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
    delta = np.int64(-1)
    for i in range(count):
        position, delta, key_start, key_size, null = record_after(buffer, position, end, delta)
        if position < 0:
            return False
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
    delta = np.int64(-1)
    at = used[0]
    for i in range(count):
        position, delta, key_start, key_size, null = record_after(buffer, position, end, delta)
        if position < 0:
            return False
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


@inlined
def _register(registers, home):
    """Raises the register of a hash to the rank of the hash: its first set bit, counted from 1."""
    rest = home << np.uint64(REGISTER_BITS)
    rank = 1
    while rank < _RANK_MAX and rest >> np.uint64(63) == 0:
        rest <<= np.uint64(1)
        rank += 1
    at = np.int64(home >> np.uint64(64 - REGISTER_BITS))
    registers[at] = max(registers[at], rank)


@inlined
def _watch(table, slot, group, row, level, used):
    """Notes a record of a key, whose slot was found; a level of -1 adds no key."""
    newest = group[row, _ORDINAL]
    if table[slot, 3] == 0:
        if level >= 0:
            for word in range(SLOT_WORDS - 1):
                table[slot, word] = group[row, word]
            table[slot, 3] = (np.uint64(level) << np.uint64(WATCHED_LEVEL_SHIFT)) | newest
            used[0] += 1
        return
    known = table[slot, 3]
    highest = max(np.int64(known >> np.uint64(WATCHED_LEVEL_SHIFT)), level)
    newest = max(newest, known & _WATCHED_MASK)
    table[slot, 3] = (np.uint64(highest) << np.uint64(WATCHED_LEVEL_SHIFT)) | newest


@inlined
def _watch_batch(
    buffer, start, end, count, base_offset, first_dirty, number, level, table, used, registers,
    secrets, group
):  # fmt: skip
    """`watch_batches` for one batch; whether its records are well-formed."""
    mask = np.uint64(table.shape[0] - 1)
    position = start
    pending = 0
    delta = np.int64(-1)
    for i in range(count):
        position, delta, key_start, key_size, _ = record_after(buffer, position, end, delta)
        if position < 0:
            return False
        is_dirty = base_offset + delta >= first_dirty
        if key_size >= 0 and (is_dirty or level >= 0):
            newest = number + i + WATCHED_FIRST if is_dirty else WATCHED_NONE
            home = _put(group, pending, buffer, key_start, key_size, secrets, newest)
            prefetch(table, np.int64(home & mask))
            if is_dirty:
                _register(registers, home)
            pending += 1
        if pending == _GROUP or (i == count - 1 and pending > 0):
            for j in range(pending):
                slot = find(table, group[j, 0], group[j, 1], group[j, 2], group[j, _HOME])
                _watch(table, slot, group, j, level, used)
            pending = 0
    return position == end


@kernel
def watch_batches(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    first_dirty: int,
    numbers: Ints,
    levels: Ints,
    table: Entries,
    used: Ints,
    registers: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Watches the keys of chosen batches: which record of each is the newest, of all that follow.

    The arguments are those of `index_batches`, except for:

    Args:
        numbers: int64[rows], of each batch's first record among all records.
        levels: int64[rows]; a level of 0 to 127 has the keys of a batch watched from now on, -1
            only looks its records up among those that are.
        table: of watched keys. A key has the highest of the levels of its batches.
        registers: uint8[REGISTERS], of all keys at or above `first_dirty`; updated.

    Returns:
        As `index_batches`; TABLE_FULL means that the table has no space for a watched batch.
    """
    group = np.empty((_GROUP, _GROUP_WORDS), dtype=np.uint64)
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if levels[i] >= 0 and (used[0] + count) * 2 > table.shape[0]:
            return TABLE_FULL, i
        if not _watch_batch(
            buffer,
            spans[i, 0],
            spans[i, 1],
            count,
            batches[i, BASE_OFFSET],
            first_dirty,
            numbers[i],
            levels[i],
            table,
            used,
            registers,
            secrets,
            group,
        ):
            return BAD_RECORD, i
    return OK, last


@kernel
def judge_watched(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    numbers: Ints,
    ordinals: Ints,
    table: Entries,
    keep: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Sets the bit in `keep` of each record of watched batches that none of its key supersedes.

    The arguments are those of `watch_batches` and `probe_batches`; the keys of the batches are in
    `table`, and `ordinals` are where their bits are.
    """
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        delta = np.int64(-1)
        for j in range(batches[i, COUNT]):
            position, delta, key_start, key_size, null = record_after(
                buffer, position, spans[i, 1], delta
            )
            if position < 0:
                return BAD_RECORD, i
            if null:
                set_bit(nulls, ordinals[i] + j)
            if key_size >= 0:
                one, two, three = identity_of(buffer, key_start, key_size, secrets)
                home = home_of(one, two, three, secrets)
                slot = find(table, one, two, three, home)
                newest = np.int64(table[slot, 3] & _WATCHED_MASK)
                if newest <= numbers[i] + j + WATCHED_FIRST:
                    set_bit(keep, ordinals[i] + j)
        if position != spans[i, 1]:
            return BAD_RECORD, i
    return OK, last
