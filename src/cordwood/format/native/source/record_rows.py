"""Encodes rows of columns as the records of a batch, and finds the partitions of their keys.

Twins: `cordwood.format.record_batch.build_batch`, `cordwood.client.partitioner.partition_of`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.record_fields import (
    CONTENT_SIZE,
    CONTENT_START,
    NAME_SIZE,
    NAME_START,
)
from cordwood.format.native.record_rows import (
    BASE_TIMESTAMP,
    COUNT,
    HEADERS_COUNT,
    HEADERS_FIRST,
    KEY_SIZE,
    KEY_START,
    MAX_TIMESTAMP,
    SIZE_OF_NEXT,
    TIMESTAMP,
    USED,
    VALUE_SIZE,
    VALUE_START,
)
from cordwood.format.native.source.kernel import Bytes, Ints, ReadOnlyBytes, Rows, inlined, kernel
from cordwood.format.native.source.machine import copy_bytes
from cordwood.format.native.source.varints import put_varint, size_of_varint

_SEED = np.uint64(0x9747B28C)
_MULTIPLIER = np.uint64(0x5BD1E995)
_MASK = np.uint64(0xFFFFFFFF)
_POSITIVE = np.uint64(0x7FFFFFFF)


@inlined
def _murmur2(data, start, size):
    value = (_SEED ^ np.uint64(size)) & _MASK
    whole = start + size - size % 4
    for at in range(start, whole, 4):
        word = (
            np.uint64(data[at])
            | (np.uint64(data[at + 1]) << np.uint64(8))
            | (np.uint64(data[at + 2]) << np.uint64(16))
            | (np.uint64(data[at + 3]) << np.uint64(24))
        )
        word = word * _MULTIPLIER & _MASK
        word ^= word >> np.uint64(24)
        word = word * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if size % 4:
        for i in range(size % 4):
            value ^= np.uint64(data[whole + i]) << np.uint64(8 * i)
        value = value * _MULTIPLIER & _MASK
    value ^= value >> np.uint64(13)
    value = value * _MULTIPLIER & _MASK
    return value ^ (value >> np.uint64(15))


@kernel
def partition_rows(
    keys: ReadOnlyBytes, rows: Rows, count: int, partitions: int, chosen: Ints
) -> None:
    """Chooses the partition of the first `count` rows that have a key, and none yet.

    Args:
        keys: where the keys are.
        rows: int64 of shape (n, COLUMNS).
        count: how many of them.
        partitions: how many there are.
        chosen: int64[count], -1 where no partition is chosen; updated.

    Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey.
    """
    for i in range(count):
        if chosen[i] < 0 and rows[i, KEY_SIZE] >= 0:
            hashed = _murmur2(keys, rows[i, KEY_START], rows[i, KEY_SIZE]) & _POSITIVE
            chosen[i] = np.int64(hashed) % partitions


@inlined
def _put_field(out, position, data, start, size):
    position = put_varint(out, position, size)
    if size > 0:
        copy_bytes(out, position, data, start, size)
        position += size
    return position


@kernel
def put_records(
    keys: ReadOnlyBytes,
    values: ReadOnlyBytes,
    names: ReadOnlyBytes,
    contents: ReadOnlyBytes,
    rows: Rows,
    headers: Rows,
    order: Ints,
    first: int,
    last: int,
    bytes_max: int,
    out: Bytes,
    state: Ints,
) -> int:
    """Encodes rows behind the records that are in `out`, as long as they fit.

    A first record may take more than `bytes_max` bytes, if there is space.

    Args:
        keys: where the keys are.
        values: where the values are.
        names: where the keys of headers are.
        contents: where the values of headers are.
        rows: int64 of shape (n, COLUMNS).
        headers: int64 of shape (m, HEADER_COLUMNS), of all rows.
        order: numbers of rows.
        first: place in `order` of the first one to encode.
        last: exclusive.
        bytes_max: how much the records of a batch may take.
        out: uint8.
        state: int64[STATES], of zeros before the first record; updated.

    Returns:
        The place in `order` of the first row that does not fit, whose size is in the state, or
        `last`.

    Source: org.apache.kafka.common.record.DefaultRecord.writeTo.
    """
    used = state[USED]
    count = state[COUNT]
    at = first
    while at < last:
        i = order[at]
        timestamp = rows[i, TIMESTAMP]
        if count == 0:
            state[BASE_TIMESTAMP] = timestamp
            state[MAX_TIMESTAMP] = timestamp
        delta = timestamp - state[BASE_TIMESTAMP]
        key_size = rows[i, KEY_SIZE]
        value_size = rows[i, VALUE_SIZE]
        first_header = rows[i, HEADERS_FIRST]
        after_headers = first_header + rows[i, HEADERS_COUNT]
        body = 1 + size_of_varint(delta) + size_of_varint(count)
        body += size_of_varint(key_size) + max(key_size, 0)
        body += size_of_varint(value_size) + max(value_size, 0)
        body += size_of_varint(rows[i, HEADERS_COUNT])
        for j in range(first_header, after_headers):
            body += size_of_varint(headers[j, NAME_SIZE]) + headers[j, NAME_SIZE]
            body += size_of_varint(headers[j, CONTENT_SIZE]) + max(headers[j, CONTENT_SIZE], 0)
        size = size_of_varint(body) + body
        if (count > 0 and used + size > bytes_max) or used + size > out.shape[0]:
            state[SIZE_OF_NEXT] = size
            break
        used = put_varint(out, used, body)
        out[used] = 0
        used = put_varint(out, used + 1, delta)
        used = put_varint(out, used, count)
        used = _put_field(out, used, keys, rows[i, KEY_START], key_size)
        used = _put_field(out, used, values, rows[i, VALUE_START], value_size)
        used = put_varint(out, used, rows[i, HEADERS_COUNT])
        for j in range(first_header, after_headers):
            used = _put_field(out, used, names, headers[j, NAME_START], headers[j, NAME_SIZE])
            used = _put_field(
                out, used, contents, headers[j, CONTENT_START], headers[j, CONTENT_SIZE]
            )
        state[MAX_TIMESTAMP] = max(state[MAX_TIMESTAMP], timestamp)
        count += 1
        at += 1
    state[USED] = used
    state[COUNT] = count
    return at
