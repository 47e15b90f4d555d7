"""A key table that holds, of each key, the record of the highest version.

A slot has two words more than that of a table of the newest records (`key_table`): the version, and
flags. The record with the higher version wins; one without a version loses against any; of equal
ones the newer wins. A record that an older one beats *pins* that one: see
`cordwood.cleanup.survivors`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import BASE_OFFSET, COUNT
from cordwood.format.native.key_table import VERSIONED_SLOT_WORDS
from cordwood.format.native.records import (
    BAD_RECORD,
    OK,
    TABLE_FULL,
    WATCHED_FIRST,
    WATCHED_NONE,
)
from cordwood.format.native.source.kernel import (
    Bytes,
    Entries,
    Flags,
    Ints,
    ReadOnlyEntries,
    Rows,
    Words,
    inlined,
    kernel,
)
from cordwood.format.native.source.key_table import find, home_of, identity_of
from cordwood.format.native.source.machine import prefetch
from cordwood.format.native.source.records import record_after
from cordwood.format.native.source.survivor_bits import set_bit

_VERSION = 4
_FLAGS = 5
_KNOWN = np.uint64(1)
_PINNED = np.uint64(2)
_SOURCE_SHIFT = np.uint64(8)
_OF_RECORD = np.uint64(0xFF)


@inlined
def _wins(version, flags, other, other_flags):
    """Whether a record beats an older one of its key."""
    if flags & _KNOWN != other_flags & _KNOWN:
        return flags & _KNOWN != np.uint64(0)
    return np.int64(version) >= np.int64(other)


@inlined
def _put(table, used, slot, first, second, third, ordinal, version, flags):
    """Puts a record into its key's slot, which holds an older one or none."""
    if table[slot, 3] == 0:
        table[slot, 0] = first
        table[slot, 1] = second
        table[slot, 2] = third
        used[0] += 1
    elif not _wins(version, flags, table[slot, _VERSION], table[slot, _FLAGS]):
        table[slot, _FLAGS] |= _PINNED
        return
    table[slot, 3] = ordinal + np.uint64(1)
    table[slot, _VERSION] = version
    table[slot, _FLAGS] = flags


@kernel
def index_versions(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    from_offset: int,
    ordinals: Ints,
    values: Ints,
    known: Flags,
    table: Entries,
    used: Ints,
    keyed: Bytes,
    nulls: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Puts the keys of batches' records into `table`: the record of the highest version of each.

    Args:
        buffer, batches, first, last, spans, ordinals: those of `index_batches`.
        from_offset: records below it are only marked in `keyed` and `nulls`.
        values: int64, the versions; that of a record is where its ordinal is, less the first.
        known: bool, likewise: whether it has one.
        table: a table of versions.
        used, keyed, nulls, secrets: those of `index_batches`.

    Returns:
        As `index_batches`.
    """
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if (used[0] + count) * 2 > table.shape[0]:
            return TABLE_FULL, i
        mask = np.uint64(table.shape[0] - 1)
        position = spans[i, 0]
        end = spans[i, 1]
        delta = np.int64(-1)
        for record in range(count):
            position, delta, key_start, key_size, null = record_after(buffer, position, end, delta)
            if position < 0:
                return BAD_RECORD, i
            ordinal = ordinals[i] + record
            if null:
                set_bit(nulls, ordinal)
            if key_size < 0:
                continue
            set_bit(keyed, ordinal)
            if batches[i, BASE_OFFSET] + delta < from_offset:
                continue
            one, two, three = identity_of(buffer, key_start, key_size, secrets)
            home = home_of(one, two, three, secrets)
            prefetch(table, np.int64(home & mask))
            slot = find(table, one, two, three, home)
            at = ordinal - ordinals[0]
            flags = _KNOWN if known[at] else np.uint64(0)
            _put(
                table, used, slot, one, two, three, np.uint64(ordinal), np.uint64(values[at]), flags
            )
        if position != end:
            return BAD_RECORD, i
    return OK, last


@kernel
def put_versions(
    entries: ReadOnlyEntries, table: Entries, used: Ints, source: int, secrets: Words
) -> None:
    """Adds the entries of one chunk to a table of older ones.

    Args:
        entries: uint64 of shape (n, VERSIONED_SLOT_WORDS), one chunk's part of a shard.
        table: a table of versions; has space for all of `entries`.
        used: int64[1], number of used slots; updated.
        source: the number of the chunk, not negative.
        secrets: uint64[SECRETS + 1].
    """
    of_source = np.uint64(source) << _SOURCE_SHIFT
    for i in range(entries.shape[0]):
        one, two, three = entries[i, 0], entries[i, 1], entries[i, 2]
        slot = find(table, one, two, three, home_of(one, two, three, secrets))
        flags = (entries[i, _FLAGS] & _OF_RECORD) | of_source
        _put(table, used, slot, one, two, three, entries[i, 3], entries[i, _VERSION], flags)


@kernel
def judge_versions(
    entries: ReadOnlyEntries,
    table: Entries,
    source: int,
    dead: Words,
    pinned: Words,
    secrets: Words,
) -> tuple[int, int]:
    """Lists the entries of a chunk that a table of all chunks lacks, and those that it has pinned.

    Args:
        entries, table, source, secrets: those of `put_versions`.
        dead: uint64[n]; receives the ordinals of the entries that another record has beaten.
        pinned: uint64[n]; receives those of the entries that have beaten a newer record.

    Returns:
        The numbers of ordinals written to `dead` and `pinned`.
    """
    of_source = np.uint64(source)
    lost = 0
    held = 0
    for i in range(entries.shape[0]):
        one, two, three = entries[i, 0], entries[i, 1], entries[i, 2]
        slot = find(table, one, two, three, home_of(one, two, three, secrets))
        flags = table[slot, _FLAGS]
        if table[slot, 3] != entries[i, 3] + np.uint64(1) or flags >> _SOURCE_SHIFT != of_source:
            dead[lost] = entries[i, 3]
            lost += 1
        elif flags & _PINNED != np.uint64(0):
            pinned[held] = entries[i, 3]
            held += 1
    return lost, held


@kernel
def mark_pinned(table: Entries, bits: Bytes) -> None:
    """Sets the bit of every ordinal of a table of versions that has beaten a newer record."""
    for i in range(table.shape[0]):
        if table[i, 3] != 0 and table[i, _FLAGS] & _PINNED != np.uint64(0):
            set_bit(bits, np.int64(table[i, 3]) - 1)


@kernel
def watch_versions(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    from_offset: int,
    numbers: Ints,
    values: Ints,
    known: Flags,
    table: Entries,
    secrets: Words,
) -> tuple[int, int]:
    """Notes which record of each watched key has the highest version; no key is added.

    Args:
        buffer, batches, first, last, spans, from_offset, values, known, secrets: those of
            `index_versions`.
        numbers: those of `watch_batches`.
        table: a table of versions, of watched keys. Its ordinals are numbers plus WATCHED_FIRST,
            WATCHED_NONE where there was no record yet.

    Returns:
        As `index_batches`.
    """
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        delta = np.int64(-1)
        for record in range(batches[i, COUNT]):
            position, delta, key_start, key_size, _ = record_after(
                buffer, position, spans[i, 1], delta
            )
            if position < 0:
                return BAD_RECORD, i
            if key_size < 0 or batches[i, BASE_OFFSET] + delta < from_offset:
                continue
            one, two, three = identity_of(buffer, key_start, key_size, secrets)
            slot = find(table, one, two, three, home_of(one, two, three, secrets))
            held = table[slot, 3]
            if held == 0:
                continue
            number = numbers[i] + record
            version = np.uint64(values[number - numbers[0]])
            flags = _KNOWN if known[number - numbers[0]] else np.uint64(0)
            if held == WATCHED_NONE or _wins(
                version, flags, table[slot, _VERSION], table[slot, _FLAGS]
            ):
                table[slot, 3] = np.uint64(number + WATCHED_FIRST)
                table[slot, _VERSION] = version
                table[slot, _FLAGS] = flags
            else:
                table[slot, _FLAGS] |= _PINNED
        if position != spans[i, 1]:
            return BAD_RECORD, i
    return OK, last


@kernel
def judge_watched_versions(
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
    pinned: Bytes,
    secrets: Words,
) -> tuple[int, int]:
    """Sets the bit in `keep` of each record of watched batches that has its key's highest version.

    The arguments are those of `judge_watched`, with a table of `watch_versions`; `pinned` gets the
    bits of the records that have beaten a newer one.
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
            if key_size < 0:
                continue
            one, two, three = identity_of(buffer, key_start, key_size, secrets)
            slot = find(table, one, two, three, home_of(one, two, three, secrets))
            if np.int64(table[slot, 3]) == numbers[i] + j + WATCHED_FIRST:
                set_bit(keep, ordinals[i] + j)
                if table[slot, _FLAGS] & _PINNED != np.uint64(0):
                    set_bit(pinned, ordinals[i] + j)
        if position != spans[i, 1]:
            return BAD_RECORD, i
    return OK, last


assert VERSIONED_SLOT_WORDS == _FLAGS + 1, "the columns of a slot"
