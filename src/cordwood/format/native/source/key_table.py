"""A hash table of keys and their newest records, and the identity of a key in it.

**Identity of a key.** 24 bytes. A key of up to 23 bytes is stored whole with its length, so two
different keys never have the same identity. A longer key is stored as a 128-bit hash and a second
hash of 56 bits with another construction. Both use secrets that are random for each run: two keys
are equal only if all 184 bits are, and a producer cannot construct such keys. Keys that differ only
in the second hash are kept apart, and none is lost.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.key_table import SLOT_WORDS
from cordwood.format.native.source.kernel import (
    Bytes,
    Entries,
    Ints,
    ReadOnlyEntries,
    Words,
    inlined,
    kernel,
)
from cordwood.format.native.source.machine import load_u64, multiply_fold, prefetch
from cordwood.format.native.source.survivor_bits import set_bit

_SHORT_KEY = 23
_LONG_TAG = np.uint64(0xFF)


@inlined
def _bytes_of(word, count):
    """`word` with all but its lowest `count` bytes cleared; 0 <= count <= 8."""
    if count >= 8:
        return word
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@inlined
def identity_of(buffer, start, size, secrets):
    """The three words of the identity of the key `buffer[start:start + size]`."""
    if size <= _SHORT_KEY:
        tail = _bytes_of(load_u64(buffer, start + 16), max(size - 16, 0))
        return (
            _bytes_of(load_u64(buffer, start), size),
            _bytes_of(load_u64(buffer, start + 8), max(size - 8, 0)),
            (tail << np.uint64(8)) | np.uint64(size),
        )
    return _identity_of_long(buffer, start, size, secrets)


@kernel
def _identity_of_long(buffer, start, size, secrets):
    first, second, check = secrets[0], secrets[1], secrets[2] ^ np.uint64(size)
    done = 0
    while done < size:
        left = _bytes_of(load_u64(buffer, start + done), size - done)
        right = np.uint64(0)
        if done + 8 < size:
            right = _bytes_of(load_u64(buffer, start + done + 8), size - done - 8)
        first = multiply_fold(left ^ secrets[3], right ^ first)
        second = multiply_fold(left ^ second, right ^ secrets[4])
        check = multiply_fold(left ^ secrets[5] ^ check, (right ^ secrets[6]) + check)
        done += 16
    length = np.uint64(size)
    return (
        multiply_fold(first ^ length, secrets[7]) & secrets[8],
        multiply_fold(second ^ length, secrets[6]) & secrets[8],
        (multiply_fold(check ^ length, secrets[5]) << np.uint64(8)) | _LONG_TAG,
    )


@kernel
def identify(buffer: Bytes, start: int, size: int, secrets: Words, out: Words) -> None:
    """Writes the identity of the key `buffer[start:start + size]` to `out[0:3]`."""
    out[0], out[1], out[2] = identity_of(buffer, start, size, secrets)


@inlined
def home_of(first, second, third, secrets):
    """The first slot of the table, and the shard, for an identity."""
    mixed = multiply_fold(first ^ secrets[3], second ^ secrets[4])
    return mixed ^ multiply_fold(third ^ secrets[5], mixed ^ secrets[6])


@inlined
def find(table, first, second, third, home):
    """The slot that holds an identity, or the empty slot for it."""
    mask = np.uint64(table.shape[0] - 1)
    slot = home & mask
    while True:
        if table[slot, 3] == 0 or (
            table[slot, 0] == first and table[slot, 1] == second and table[slot, 2] == third
        ):
            return np.int64(slot)
        slot = (slot + np.uint64(1)) & mask


@kernel
def grow_table(table: Entries, slots: int, secrets: Words) -> Entries:
    """A copy of `table` with `slots` slots."""
    bigger = np.zeros((slots, table.shape[1]), dtype=np.uint64)
    for i in range(table.shape[0]):
        if table[i, 3] != 0:
            home = home_of(table[i, 0], table[i, 1], table[i, 2], secrets)
            slot = find(bigger, table[i, 0], table[i, 1], table[i, 2], home)
            for word in range(table.shape[1]):
                bigger[slot, word] = table[i, word]
    return bigger


@kernel
def mark_newest(table: Entries, keep: Bytes) -> None:
    """Sets the bit in `keep` of every ordinal that the table holds."""
    for i in range(table.shape[0]):
        if table[i, 3] != 0:
            set_bit(keep, np.int64(table[i, 3]) - 1)


@kernel
def split_table(table: Entries, shards: int, secrets: Words) -> tuple[Entries, Ints]:
    """The table's entries by shard, in slot order.

    Returns:
        (entries, starts): uint64 of shape (entries, width of a slot), with the ordinal itself in
        the fourth column, and int64[shards + 1], where each shard's rows begin.
    """
    counts = np.zeros(shards + 1, dtype=np.int64)
    for i in range(table.shape[0]):
        if table[i, 3] != 0:
            home = home_of(table[i, 0], table[i, 1], table[i, 2], secrets)
            counts[np.int64((home >> np.uint64(40)) % np.uint64(shards)) + 1] += 1
    starts = np.cumsum(counts)
    cursor = starts.copy()
    entries = np.empty((starts[shards], table.shape[1]), dtype=np.uint64)
    for i in range(table.shape[0]):
        if table[i, 3] != 0:
            home = home_of(table[i, 0], table[i, 1], table[i, 2], secrets)
            shard = np.int64((home >> np.uint64(40)) % np.uint64(shards))
            target = cursor[shard]
            for word in range(table.shape[1]):
                entries[target, word] = table[i, word]
            entries[target, 3] -= np.uint64(1)
            cursor[shard] += 1
    return entries, starts


@kernel
def split_entries(
    entries: Entries, count: int, shards: int, secrets: Words
) -> tuple[Entries, Ints]:
    """The first `count` entries by shard, in order within each; returns as `split_table` does."""
    counts = np.zeros(shards + 1, dtype=np.int64)
    for i in range(count):
        home = home_of(entries[i, 0], entries[i, 1], entries[i, 2], secrets)
        counts[np.int64((home >> np.uint64(40)) % np.uint64(shards)) + 1] += 1
    starts = np.cumsum(counts)
    cursor = starts.copy()
    out = np.empty((count, SLOT_WORDS), dtype=np.uint64)
    for i in range(count):
        home = home_of(entries[i, 0], entries[i, 1], entries[i, 2], secrets)
        shard = np.int64((home >> np.uint64(40)) % np.uint64(shards))
        for word in range(SLOT_WORDS):
            out[cursor[shard], word] = entries[i, word]
        cursor[shard] += 1
    return out, starts


@kernel
def merge_entries(
    entries: ReadOnlyEntries, table: Entries, used: Ints, dead: Words, secrets: Words, insert: bool
) -> int:
    """Finds the entries of one chunk that are superseded by entries in `table`.

    Args:
        entries: uint64 of shape (n, SLOT_WORDS), one chunk's part of a shard.
        table: keys of newer chunks; has space for all of `entries`.
        used: int64[1], number of used slots; updated.
        dead: uint64[n]; receives the ordinals of the superseded entries.
        secrets: uint64[SECRETS + 1].
        insert: whether to add the other entries to the table.

    Returns:
        The number of ordinals written to `dead`.
    """
    count = 0
    mask = np.uint64(table.shape[0] - 1)
    ahead = min(16, entries.shape[0])
    for i in range(entries.shape[0]):
        if i + ahead < entries.shape[0]:
            far = i + ahead
            home = home_of(entries[far, 0], entries[far, 1], entries[far, 2], secrets)
            prefetch(table, np.int64(home & mask))
        home = home_of(entries[i, 0], entries[i, 1], entries[i, 2], secrets)
        slot = find(table, entries[i, 0], entries[i, 1], entries[i, 2], home)
        if table[slot, 3] != 0:
            dead[count] = entries[i, 3]
            count += 1
        elif insert:
            for word in range(SLOT_WORDS - 1):
                table[slot, word] = entries[i, word]
            table[slot, 3] = 1
            used[0] += 1
    return count
