"""Walks the records of batches: keys into a table of the newest, survivors into new batches.

Twins: `cordwood.format.record_batch.RecordBatch.records` and `build_batch`.

**Identity of a key.** 24 bytes that stand for the key. A key of up to 23 bytes is held whole, with
its length, so that no two differ by chance or by design. A longer key is held as a 128-bit hash and
a 56-bit second hash of another construction, both keyed by secrets drawn for each run: two keys are
taken for one only when all 184 bits agree, and nobody who writes keys can arrange it. Keys whose
first hash agrees are told apart by the second, and neither is lost.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from cordwood.format.native.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    HEADER_SIZE,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)
from cordwood.format.native.codecs import (
    NO_ROOM,
    NOT_HERE,
    compress_records,
    decompress_records,
)
from cordwood.format.native.machine import crc32c, load_u64, multiply_fold, prefetch

# A key table: uint64 of shape (slots, 4), slots a power of two: three words of identity, then the
# record's ordinal plus one; zero there marks an empty slot.
SLOT_WORDS = 4
SLOT_BYTES = 8 * SLOT_WORDS
SECRETS = 8

# How a call ended.
OK = 0
BAD_RECORD = 1
TABLE_FULL = 2
OUT_FULL = 3
SCRATCH_FULL = 4
BY_PYTHON = 5

# A record built anew may need this many bytes more: a timestamp delta of ten and a longer length.
GROWTH_PER_RECORD = 14

# What is done with a batch.
DISCARD = 0
COPY = 1
REBUILD = 2
EMPTY = 3

_SHORT_KEY = 23
_LONG_TAG = np.uint64(0xFF)
_GROUP = 256
_HORIZON = 0x40

_LOG_APPEND_TIME = 0x08


def new_table(slots: int) -> np.ndarray:
    """An empty key table; `slots` is a power of two."""
    return np.zeros((slots, SLOT_WORDS), dtype=np.uint64)


@nb.njit(cache=True, nogil=True, inline="always")
def _varint(buffer, position, end):
    """(zig-zag decoded value, next position); next position is -1 when malformed."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(buffer[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            decoded = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
            return decoded, position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@nb.njit(cache=True, nogil=True, inline="always")
def _put_varint(out, position, value):
    encoded = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while encoded >= np.uint64(0x80):
        out[position] = np.uint8((encoded & np.uint64(0x7F)) | np.uint64(0x80))
        encoded >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(encoded)
    return position + 1


@nb.njit(cache=True, nogil=True, inline="always")
def _size_of_varint(value):
    encoded = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while encoded >= np.uint64(0x80):
        encoded >>= np.uint64(7)
        size += 1
    return size


@nb.njit(cache=True, nogil=True, inline="always")
def _bytes_of(word, count):
    """`word` with all but its lowest `count` bytes cleared; 0 <= count <= 8."""
    if count >= 8:
        return word
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@nb.njit(cache=True, nogil=True)
def _identify(buffer, start, size, secrets, out):
    """Writes the identity of the key `buffer[start:start + size]` to `out[0:3]`."""
    if size <= _SHORT_KEY:
        out[0] = _bytes_of(load_u64(buffer, start), size)
        out[1] = _bytes_of(load_u64(buffer, start + 8), max(size - 8, 0))
        tail = _bytes_of(load_u64(buffer, start + 16), max(size - 16, 0))
        out[2] = (tail << np.uint64(8)) | np.uint64(size)
        return
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
    out[0] = multiply_fold(first ^ length, secrets[7]) & secrets[8]
    out[1] = multiply_fold(second ^ length, secrets[6]) & secrets[8]
    out[2] = (multiply_fold(check ^ length, secrets[5]) << np.uint64(8)) | _LONG_TAG


@nb.njit(cache=True, nogil=True, inline="always")
def _home(first, second, third, secrets):
    """Where a table, and a shard, looks for an identity first."""
    mixed = multiply_fold(first ^ secrets[3], second ^ secrets[4])
    return mixed ^ multiply_fold(third ^ secrets[5], mixed ^ secrets[6])


@nb.njit(cache=True, nogil=True, inline="always")
def _find(table, first, second, third, home):
    """The slot that holds an identity, or the empty one where it would go."""
    mask = np.uint64(table.shape[0] - 1)
    slot = home & mask
    while True:
        row = table[np.int64(slot)]
        if row[3] == 0 or (row[0] == first and row[1] == second and row[2] == third):
            return np.int64(slot)
        slot = (slot + np.uint64(1)) & mask


@nb.njit(cache=True, nogil=True)
def grow_table(table, slots, secrets):
    """A copy of `table` with `slots` slots."""
    bigger = np.zeros((slots, SLOT_WORDS), dtype=np.uint64)
    for i in range(table.shape[0]):
        row = table[i]
        if row[3] != 0:
            home = _home(row[0], row[1], row[2], secrets)
            bigger[_find(bigger, row[0], row[1], row[2], home)] = row
    return bigger


@nb.njit(cache=True, nogil=True, inline="always")
def _set_bit(bits, index):
    bits[index >> 3] |= np.uint8(1 << (index & 7))


@nb.njit(cache=True, nogil=True, inline="always")
def _get_bit(bits, index):
    return (bits[index >> 3] >> np.uint8(index & 7)) & np.uint8(1)


@nb.njit(cache=True, nogil=True, inline="always")
def _record_parts(buffer, position, record_end):
    """(offset delta, start of the key, size of the key, value is null) of a record's body.

    The start of the key is -1 when the body is malformed. `position` is that of the attributes.
    """
    malformed = np.int64(-1)
    _, position = _varint(buffer, position + 1, record_end)
    if position < 0:
        return np.int64(0), malformed, np.int64(0), False
    delta, position = _varint(buffer, position, record_end)
    if position < 0:
        return np.int64(0), malformed, np.int64(0), False
    key_size, position = _varint(buffer, position, record_end)
    if position < 0 or key_size > record_end - position:
        return np.int64(0), malformed, np.int64(0), False
    key_start = position
    if key_size > 0:
        position += key_size
    value_size, position = _varint(buffer, position, record_end)
    if position < 0 or value_size > record_end - position:
        return np.int64(0), malformed, np.int64(0), False
    return delta, key_start, key_size, value_size < 0


@nb.njit(cache=True, nogil=True)
def index_batch(
    buffer, start, end, count, base_offset, first_dirty, ordinal, table, used, keyed, nulls, secrets
):
    """Puts the keys of one batch's records into `table`: the newest ordinal of each.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond `end`.
        start: position of the first record.
        end: position after the last record; the records must fill it exactly.
        count: how many records.
        base_offset: the batch's; deltas count from it.
        first_dirty: records below this offset are not put into the table, only marked in `keyed`.
        ordinal: of the batch's first record, within the arrays of bits.
        table: the key table; must have room for `count` more keys.
        used: int64[1], how many slots are taken; updated.
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
        length, position = _varint(buffer, position, end)
        if position < 0 or length < 0 or length > end - position or length == 0:
            return BAD_RECORD, record
        record_end = position + length
        delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
        if key_start < 0 or delta <= last_delta:
            return BAD_RECORD, record
        last_delta = delta
        if null:
            _set_bit(nulls, ordinal + i)
        if key_size >= 0:
            _set_bit(keyed, ordinal + i)
            if base_offset + delta >= first_dirty:
                row = ids[pending]
                _identify(buffer, key_start, key_size, secrets, row)
                home = _home(row[0], row[1], row[2], secrets)
                row[3] = home
                ordinals[pending] = ordinal + i
                prefetch(table, np.int64(home & mask))
                pending += 1
        if pending == _GROUP or (i == count - 1 and pending > 0):
            for j in range(pending):
                row = ids[j]
                slot = _find(table, row[0], row[1], row[2], row[3])
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


@nb.njit(cache=True, nogil=True)
def index_batches(
    buffer, batches, first, last, spans, first_dirty, ordinals, table, used, keyed, nulls, secrets
):
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


@nb.njit(cache=True, nogil=True)
def probe_batches(
    buffer, batches, first, last, spans, first_dirty, ordinals, table, keep, nulls, secrets
):
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
            length, position = _varint(buffer, position, end)
            if position < 0 or length <= 0 or length > end - position:
                return BAD_RECORD, i
            record_end = position + length
            delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
            if key_start < 0 or delta <= last_delta:
                return BAD_RECORD, i
            last_delta = delta
            if null:
                _set_bit(nulls, ordinals[i] + r)
            if key_size >= 0 and batches[i, BASE_OFFSET] + delta < first_dirty:
                row = ids[pending]
                _identify(buffer, key_start, key_size, secrets, row)
                row[3] = _home(row[0], row[1], row[2], secrets)
                kept_ordinals[pending] = ordinals[i] + r
                prefetch(table, np.int64(row[3] & mask))
                pending += 1
            if pending == _GROUP or (r == count - 1 and pending > 0):
                for j in range(pending):
                    row = ids[j]
                    slot = _find(table, row[0], row[1], row[2], row[3])
                    if table[slot, 3] == 0:
                        _set_bit(keep, kept_ordinals[j])
                pending = 0
            position = record_end
        if position != end:
            return BAD_RECORD, i
    return OK, last


@nb.njit(cache=True, nogil=True)
def list_batches(
    buffer,
    batches,
    first,
    last,
    spans,
    until_offset,
    ordinals,
    entries,
    used,
    keyed,
    nulls,
    secrets,
):
    """Appends the identity and ordinal of every keyed record below `until_offset` to `entries`.

    The arguments are those of `index_batches`, but `entries` (uint64 of shape (n, SLOT_WORDS))
    takes every record, also one whose key it has; `used` counts its rows. Returns as
    `index_batches` does, TABLE_FULL when `entries` has no room for the records of a row.
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
            length, position = _varint(buffer, position, end)
            if position < 0 or length <= 0 or length > end - position:
                return BAD_RECORD, i
            record_end = position + length
            delta, key_start, key_size, null = _record_parts(buffer, position, record_end)
            if key_start < 0 or delta <= last_delta:
                return BAD_RECORD, i
            last_delta = delta
            if null:
                _set_bit(nulls, ordinals[i] + r)
            if key_size >= 0:
                _set_bit(keyed, ordinals[i] + r)
                if batches[i, BASE_OFFSET] + delta < until_offset:
                    row = entries[used[0]]
                    _identify(buffer, key_start, key_size, secrets, row)
                    row[3] = np.uint64(ordinals[i] + r)
                    used[0] += 1
            position = record_end
        if position != end:
            return BAD_RECORD, i
    return OK, last


@nb.njit(cache=True, nogil=True)
def split_entries(entries, count, shards, secrets):
    """The first `count` entries by shard, in order within each; returns as `split_table` does."""
    counts = np.zeros(shards + 1, dtype=np.int64)
    for i in range(count):
        row = entries[i]
        home = _home(row[0], row[1], row[2], secrets)
        counts[np.int64((home >> np.uint64(40)) % np.uint64(shards)) + 1] += 1
    starts = np.cumsum(counts)
    cursor = starts.copy()
    out = np.empty((count, SLOT_WORDS), dtype=np.uint64)
    for i in range(count):
        row = entries[i]
        home = _home(row[0], row[1], row[2], secrets)
        shard = np.int64((home >> np.uint64(40)) % np.uint64(shards))
        out[cursor[shard]] = row
        cursor[shard] += 1
    return out, starts


@nb.njit(cache=True, nogil=True)
def mark_newest(table, keep):
    """Sets the bit in `keep` of every ordinal that the table holds."""
    for i in range(table.shape[0]):
        if table[i, 3] != 0:
            _set_bit(keep, np.int64(table[i, 3]) - 1)


@nb.njit(cache=True, nogil=True)
def split_table(table, shards, secrets):
    """The table's entries by shard, in slot order.

    Returns:
        (entries, starts): uint64 of shape (entries, SLOT_WORDS), with the ordinal itself in the
        last column, and int64[shards + 1], where each shard's rows begin.
    """
    counts = np.zeros(shards + 1, dtype=np.int64)
    for i in range(table.shape[0]):
        row = table[i]
        if row[3] != 0:
            home = _home(row[0], row[1], row[2], secrets)
            counts[np.int64((home >> np.uint64(40)) % np.uint64(shards)) + 1] += 1
    starts = np.cumsum(counts)
    cursor = starts.copy()
    entries = np.empty((starts[shards], SLOT_WORDS), dtype=np.uint64)
    for i in range(table.shape[0]):
        row = table[i]
        if row[3] != 0:
            home = _home(row[0], row[1], row[2], secrets)
            shard = np.int64((home >> np.uint64(40)) % np.uint64(shards))
            target = entries[cursor[shard]]
            target[0], target[1], target[2] = row[0], row[1], row[2]
            target[3] = row[3] - np.uint64(1)
            cursor[shard] += 1
    return entries, starts


@nb.njit(cache=True, nogil=True)
def merge_entries(entries, table, used, dead, secrets, insert):
    """Finds which of one chunk's entries are superseded by what `table` holds already.

    Args:
        entries: uint64 of shape (n, SLOT_WORDS), one chunk's part of a shard.
        table: keys of newer chunks; has room for all of `entries`.
        used: int64[1], slots taken; updated.
        dead: uint64[n]; receives the ordinals of the superseded entries.
        secrets: uint64[SECRETS + 1].
        insert: add the others to the table.

    Returns:
        How many ordinals were written to `dead`.
    """
    count = 0
    mask = np.uint64(table.shape[0] - 1)
    ahead = min(16, entries.shape[0])
    for i in range(entries.shape[0]):
        if i + ahead < entries.shape[0]:
            far = entries[i + ahead]
            prefetch(table, np.int64(_home(far[0], far[1], far[2], secrets) & mask))
        row = entries[i]
        slot = _find(table, row[0], row[1], row[2], _home(row[0], row[1], row[2], secrets))
        taken = table[slot]
        if taken[3] != 0:
            dead[count] = row[3]
            count += 1
        elif insert:
            taken[0], taken[1], taken[2] = row[0], row[1], row[2]
            taken[3] = 1
            used[0] += 1
    return count


@nb.njit(cache=True, nogil=True)
def clear_bits(bits, ordinals):
    """Clears the bits at `ordinals` (uint64[n])."""
    for i in range(ordinals.shape[0]):
        index = np.int64(ordinals[i])
        bits[index >> 3] &= np.uint8(0xFF ^ (1 << (index & 7)))


@nb.njit(cache=True, nogil=True)
def set_bits(bits, ordinals):
    """Sets the bits at `ordinals` (uint64[n])."""
    for i in range(ordinals.shape[0]):
        _set_bit(bits, np.int64(ordinals[i]))


@nb.njit(cache=True, nogil=True)
def count_bits(bits, start, count):
    """How many of the `count` bits from `start` are set."""
    total = 0
    for i in range(start, start + count):
        total += _get_bit(bits, i)
    return total


@nb.njit(cache=True, nogil=True)
def count_survivors(batches, rows, ordinals, keep, nulls, drop_nulls, kept, kept_nulls):
    """How many records of each batch survive, and how many of these have a null value.

    Args:
        drop_nulls: uint8[rows]: nonzero where the batch's tombstones are past their horizon; the
            bits of these are cleared in `keep`.
        kept: int64[rows], written.
        kept_nulls: int64[rows], written.
    """
    for i in range(rows):
        first = ordinals[i]
        survivors = 0
        tombstones = 0
        for bit in range(first, first + batches[i, COUNT]):
            if _get_bit(keep, bit):
                if _get_bit(nulls, bit):
                    if drop_nulls[i]:
                        keep[bit >> 3] &= np.uint8(0xFF ^ (1 << (bit & 7)))
                        continue
                    tombstones += 1
                survivors += 1
        kept[i] = survivors
        kept_nulls[i] = tombstones


@nb.njit(cache=True, nogil=True)
def retained_records(
    buffer, start, end, batch, ordinal, keep, horizon_ms, stamp_horizon, out, out_start, meta
):
    """Writes the surviving records of one batch, encoded anew, to `out` from `out_start`.

    Args:
        batch: the batch's row.
        horizon_ms: the delete horizon of the new batch, if `stamp_horizon`.
        stamp_horizon: the new batch carries a delete horizon.
        out: uint8, with room for the records and 10 bytes more for each.
        meta: int64[3]; receives base timestamp, maximum timestamp and count of the new batch.

    Returns:
        The position in `out` after the last record, or -1 when the records are malformed.

    Source: org.apache.kafka.common.record.MemoryRecordsBuilder.appendWithOffset.
    """
    append_time = (batch[ATTRIBUTES] & _LOG_APPEND_TIME) != 0
    old_base = batch[BASE_TIMESTAMP]
    base = horizon_ms
    have_base = stamp_horizon
    newest = np.int64(-1)
    kept = 0
    position = start
    target = out_start
    for i in range(batch[COUNT]):
        length, position = _varint(buffer, position, end)
        if position < 0 or length <= 0 or length > end - position:
            return -1
        record_end = position + length
        if _get_bit(keep, ordinal + i):
            time_delta, position = _varint(buffer, position + 1, record_end)
            if position < 0:
                return -1
            offset_delta, position = _varint(buffer, position, record_end)
            if position < 0:
                return -1
            timestamp = batch[MAX_TIMESTAMP] if append_time else old_base + time_delta
            if not have_base:
                base = timestamp
                have_base = True
            newest = max(newest, timestamp)
            time_delta = timestamp - base
            tail = record_end - position
            body = 1 + _size_of_varint(time_delta) + _size_of_varint(offset_delta) + tail
            target = _put_varint(out, target, body)
            out[target] = 0
            target = _put_varint(out, target + 1, time_delta)
            target = _put_varint(out, target, offset_delta)
            out[target : target + tail] = buffer[position:record_end]
            target += tail
            kept += 1
        position = record_end
    meta[0] = base
    meta[1] = batch[MAX_TIMESTAMP] if append_time else newest
    meta[2] = kept
    return target


@nb.njit(cache=True, nogil=True, inline="always")
def _put_be(out, position, value, size):
    for i in range(size):
        out[position + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@nb.njit(cache=True, nogil=True)
def put_header(
    out, position, source, source_position, size, attributes, base_timestamp, max_timestamp, count
):
    """Writes a batch header at `out[position]` and the CRC of the batch of `size` bytes there.

    Base offset, leader epoch, last offset delta, producer and sequence are copied from the header
    at `source[source_position]`.
    """
    out[position : position + HEADER_SIZE] = source[source_position : source_position + HEADER_SIZE]
    _put_be(out, position + 8, size - 12, 4)
    _put_be(out, position + 21, attributes, 2)
    _put_be(out, position + 27, base_timestamp, 8)
    _put_be(out, position + 35, max_timestamp, 8)
    _put_be(out, position + 57, count, 4)
    crc = crc32c(out, position + 21, position + size)
    _put_be(out, position + 17, np.int64(crc), 4)


@nb.njit(cache=True, nogil=True)
def put_empty_batch(buffer, batch, source_position, out, target):
    """Writes the header that stands for a batch without records; returns the position after it.

    Source: org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader.
    """
    kept_bits = batch[ATTRIBUTES] & 0x38
    put_header(
        out,
        target,
        buffer,
        source_position,
        HEADER_SIZE,
        kept_bits,
        np.int64(-1),
        batch[MAX_TIMESTAMP],
        np.int64(0),
    )
    return target + HEADER_SIZE


@nb.njit(cache=True, nogil=True)
def assemble(
    buffer,
    table,
    first,
    last,
    actions,
    kept,
    stamp,
    horizons,
    ordinals,
    keep,
    out,
    written,
    plain,
    retained,
    codecs,
):
    """Writes batches of a block as their `actions` say, from the start of `out`.

    Args:
        actions: int8[rows] of DISCARD, COPY, REBUILD and EMPTY.
        kept: int64[rows], records that survive of each batch.
        stamp: uint8[rows]: the rebuilt batch has a delete horizon, `horizons[row]` (ms).
        out: uint8, filled as far as it goes.
        written: int64 (n, 3); receives size, last offset and maximum timestamp of each batch.
        plain: uint8, for the decompressed records of one batch.
        retained: uint8, for those of them that survive.
        codecs: `Codecs.table`.

    Returns:
        (bytes of `out` filled, rows of `written` filled, row not done or `last`, how it ended).
    """
    meta = np.empty(3, dtype=np.int64)
    target = np.int64(0)
    count = np.int64(0)
    for i in range(first, last):
        action = actions[i]
        if action == DISCARD:
            continue
        position = table[i, POSITION]
        size = table[i, SIZE]
        newest = table[i, MAX_TIMESTAMP]
        codec = table[i, ATTRIBUTES] & 7
        start = target
        if target + size + GROWTH_PER_RECORD * kept[i] + HEADER_SIZE > out.shape[0]:
            return target, count, i, OUT_FULL
        if action == COPY:
            out[target : target + size] = buffer[position : position + size]
            target += size
        elif action == EMPTY:
            target = put_empty_batch(buffer, table[i], position, out, target)
        else:
            source, begin, end = buffer, position + HEADER_SIZE, position + size
            into, into_start = out, target + HEADER_SIZE
            if codec != 0:
                end = decompress_records(buffer, begin, end, codec, plain, 0, codecs)
                if end == NO_ROOM:
                    return start, count, i, SCRATCH_FULL
                if end == NOT_HERE:
                    return start, count, i, BY_PYTHON
                if end < 0:
                    return start, count, i, BAD_RECORD
                if end + GROWTH_PER_RECORD * kept[i] > retained.shape[0]:
                    return start, count, i, SCRATCH_FULL
                source, begin, into, into_start = plain, 0, retained, 0
            after = retained_records(
                source,
                begin,
                end,
                table[i],
                ordinals[i],
                keep,
                horizons[i],
                stamp[i] != 0,
                into,
                into_start,
                meta,
            )
            if after < 0:
                return start, count, i, BAD_RECORD
            if codec != 0:
                if target + HEADER_SIZE + after + after // 128 + 128 > out.shape[0]:
                    return start, count, i, OUT_FULL
                after = compress_records(
                    retained, 0, after, codec, out, target + HEADER_SIZE, codecs
                )
                if after < 0:
                    return start, count, i, BY_PYTHON
            attributes = table[i, ATTRIBUTES] & 0x3F
            if stamp[i]:
                attributes |= _HORIZON
            put_header(
                out, target, buffer, position, after - target, attributes, meta[0], meta[1], meta[2]
            )
            newest = meta[1]
            target = after
        written[count, 0] = target - start
        written[count, 1] = table[i, LAST_OFFSET]
        written[count, 2] = newest
        count += 1
    return target, count, last, OK


@nb.njit(cache=True, nogil=True)
def index_written(written, count, interval_bytes, state, offset_entries, time_entries, filled):
    """Says where index entries go for batches just appended to a segment.

    Args:
        written: int64 (n, 3), as `assemble` fills it; `count` rows.
        interval_bytes: index.interval.bytes.
        state: int64[5]: position in the segment, bytes since the last entry, maximum timestamp so
            far, its batch's last offset, timestamp of the last time index entry; updated.
        offset_entries: int64 (n, 2), receives (offset, position).
        time_entries: int64 (n, 2), receives (timestamp, offset).
        filled: int64[2], rows of both; updated.

    Source: org.apache.kafka.storage.internals.log.LogSegment.append.
    """
    for i in range(count):
        if written[i, 2] > state[2]:
            state[2] = written[i, 2]
            state[3] = written[i, 1]
        if state[1] > interval_bytes:
            offset_entries[filled[0], 0] = written[i, 1]
            offset_entries[filled[0], 1] = state[0]
            filled[0] += 1
            if state[2] > state[4]:
                time_entries[filled[1], 0] = state[2]
                time_entries[filled[1], 1] = state[3]
                filled[1] += 1
                state[4] = state[2]
            state[1] = 0
        state[0] += written[i, 0]
        state[1] += written[i, 0]
