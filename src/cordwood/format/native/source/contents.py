"""Walks whole records of batches: to check them, to compare them, to find the newest of each key.

A verification calls these, so they share neither the parser of records nor the order of insertion
with what a compaction calls (`records`, `rebuild`). Unlike there, headers are walked.

Twin: `cordwood.format.record_batch.RecordBatch.records`.
Source: org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
)
from cordwood.format.native.contents import (
    CHECK_LAST_OFFSET,
    CHECK_MAX_TIMESTAMP,
    CHECK_STATUS,
    CONTENT,
    FLAGS,
    FULL,
    HAS_KEY,
    HAS_NULL_VALUE,
    MALFORMED,
    NOT_ASCENDING,
    OFFSET,
    SOUND,
    TIMESTAMP,
    TOO_LONG,
)
from cordwood.format.native.source.kernel import Bytes, Entries, Ints, Rows, Words, inlined, kernel
from cordwood.format.native.source.key_table import find, home_of, identity_of
from cordwood.format.native.source.machine import prefetch
from cordwood.format.native.source.survivor_bits import set_bit
from cordwood.format.native.source.varints import LONG_BITS
from cordwood.format.native.source.whole_record import record_at

_LOG_APPEND_TIME = 0x08
_GROUP = 64
_GROUP_WORDS = 5
_HOME = 3
_ORDINAL = 4


@kernel
def check_batches(
    buffer: Bytes, batches: Rows, first: int, last: int, spans: Rows, found: Rows
) -> None:
    """Checks the records of the rows `first` to `last` (exclusive) of a batch table.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond the records.
        batches: a batch table.
        first: the first row.
        last: exclusive.
        spans: int64 of shape (rows, 2): where in `buffer` each batch's records start and end; a
            start of -1 leaves the batch out.
        found: int64 of shape (rows, CHECKS), written: status, last offset, largest timestamp (ms,
            base timestamp plus delta, whatever the timestamp type) of the records.
    """
    for i in range(first, last):
        found[i, CHECK_STATUS] = SOUND
        found[i, CHECK_LAST_OFFSET] = -1
        found[i, CHECK_MAX_TIMESTAMP] = -1
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        end = spans[i, 1]
        last_delta = np.int64(-1)
        newest = np.int64(-1)
        status = SOUND
        for _ in range(batches[i, COUNT]):
            position, time_delta, delta, _, _, _, _ = record_at(buffer, position, end, LONG_BITS)
            if position < 0:
                status = MALFORMED
                break
            if delta <= last_delta:
                status = NOT_ASCENDING
                break
            last_delta = delta
            newest = max(newest, batches[i, BASE_TIMESTAMP] + time_delta)
        if status == SOUND and position != end:
            status = TOO_LONG
        found[i, CHECK_STATUS] = status
        found[i, CHECK_LAST_OFFSET] = batches[i, BASE_OFFSET] + last_delta
        found[i, CHECK_MAX_TIMESTAMP] = newest


@kernel
def list_contents(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    secrets: Words,
    rows: Entries,
) -> tuple[int, int]:
    """Lists what a reader sees of each record: offset, timestamp, and an identity of the rest.

    The timestamp is that of a reader, the append time in a batch that has one. Key, value and
    headers together have an identity as a key has in a key table.

    Args:
        buffer, batches, first, last, spans: those of `check_batches`.
        secrets: uint64[SECRETS + 1].
        rows: uint64 of shape (n, WORDS), filled from row 0; n is the records of all those batches.

    Returns:
        (SOUND, rows filled), or the status and the row of the first batch that is bad.
    """
    at = 0
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        end = spans[i, 1]
        last_delta = np.int64(-1)
        is_append_time = batches[i, ATTRIBUTES] & _LOG_APPEND_TIME != 0
        for _ in range(batches[i, COUNT]):
            position, time_delta, delta, content, _, key_size, null = record_at(
                buffer, position, end, LONG_BITS
            )
            if position < 0:
                return MALFORMED, i
            if delta <= last_delta:
                return NOT_ASCENDING, i
            last_delta = delta
            timestamp = batches[i, BASE_TIMESTAMP] + time_delta
            if is_append_time:
                timestamp = batches[i, MAX_TIMESTAMP]
            one, two, three = identity_of(buffer, content, position - content, secrets)
            rows[at, OFFSET] = np.uint64(batches[i, BASE_OFFSET] + delta)
            rows[at, TIMESTAMP] = np.uint64(timestamp)
            rows[at, CONTENT] = one
            rows[at, CONTENT + 1] = two
            rows[at, CONTENT + 2] = three
            flags = 0
            if key_size >= 0:
                flags |= HAS_KEY
            if null:
                flags |= HAS_NULL_VALUE
            rows[at, FLAGS] = np.uint64(flags)
            at += 1
        if position != end or batches[i, BASE_OFFSET] + last_delta > batches[i, LAST_OFFSET]:
            return TOO_LONG, i
    return SOUND, at


@inlined
def _put_group(group, count, table, used):
    """Puts the records of a group into the table, in order."""
    for j in range(count):
        slot = find(table, group[j, 0], group[j, 1], group[j, 2], group[j, _HOME])
        if table[slot, 3] == 0:
            table[slot, 0] = group[j, 0]
            table[slot, 1] = group[j, 1]
            table[slot, 2] = group[j, 2]
            used[0] += 1
        table[slot, 3] = group[j, _ORDINAL] + np.uint64(1)


@kernel
def newest_of_shard(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    ordinals: Ints,
    table: Entries,
    used: Ints,
    unkeyed: Bytes,
    nulls: Bytes,
    secrets: Words,
    shard: int,
    shards: int,
) -> tuple[int, int]:
    """Puts the keys of one shard of the records into `table`: the last ordinal of each.

    Args:
        buffer, batches, first, last, spans: those of `check_batches`.
        ordinals: int64[rows], of each batch's first record.
        table: a key table; it is left at most half full.
        used: int64[1], number of used slots; updated.
        unkeyed: uint8 bits by ordinal; set where a record of any shard has no key.
        nulls: uint8 bits by ordinal; set where its value is null.
        secrets: uint64[SECRETS + 1].
        shard: which of them.
        shards: how many there are.

    Returns:
        (SOUND, `last`), (FULL, row) when the table must grow before that row, or the status and the
        row of the first batch that is bad.
    """
    group = np.empty((_GROUP, _GROUP_WORDS), dtype=np.uint64)
    mask = np.uint64(table.shape[0] - 1)
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        count = batches[i, COUNT]
        if (used[0] + count) * 2 > table.shape[0]:
            return FULL, i
        position = spans[i, 0]
        end = spans[i, 1]
        pending = 0
        for record in range(count):
            position, _, _, _, key_start, key_size, null = record_at(
                buffer, position, end, LONG_BITS
            )
            if position < 0:
                return MALFORMED, i
            ordinal = ordinals[i] + record
            if null:
                set_bit(nulls, ordinal)
            if key_size < 0:
                set_bit(unkeyed, ordinal)
                continue
            one, two, three = identity_of(buffer, key_start, key_size, secrets)
            home = home_of(one, two, three, secrets)
            if np.int64((home >> np.uint64(40)) % np.uint64(shards)) != shard:
                continue
            group[pending, 0] = one
            group[pending, 1] = two
            group[pending, 2] = three
            group[pending, _HOME] = home
            group[pending, _ORDINAL] = np.uint64(ordinal)
            prefetch(table, np.int64(home & mask))
            pending += 1
            if pending == _GROUP:
                _put_group(group, pending, table, used)
                pending = 0
        _put_group(group, pending, table, used)
    return SOUND, last
