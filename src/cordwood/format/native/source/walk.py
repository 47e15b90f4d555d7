"""Walks the records of one batch. Twin: `cordwood.storage.append.record_walk.walk_plainly`.

Source: org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.source.kernel import ReadOnlyBytes, kernel
from cordwood.format.native.source.varints import INT_BITS
from cordwood.format.native.source.whole_record import record_at


@kernel
def walk(buffer: ReadOnlyBytes, count: int) -> tuple[int, np.uint64, int, int, int, bool]:
    """Reads `count` records from the start of `buffer`, as far as they are well-formed.

    Returns:
        (records read, position after them, least and greatest timestamp delta, records without a
        key, whether offset deltas are 0, 1, 2 ...), the deltas being 0 when nothing was read.
    """
    end = buffer.shape[0]
    position = np.int64(0)
    least = np.int64(0)
    greatest = np.int64(0)
    null_keys = np.int64(0)
    sequential = True
    for index in range(count):
        record_end, time_delta, offset_delta, _, _, key_size, _ = record_at(
            buffer, position, end, INT_BITS
        )
        if record_end < 0:
            return index, np.uint64(position), least, greatest, null_keys, sequential
        if index == 0:
            least = greatest = time_delta
        else:
            least = min(least, time_delta)
            greatest = max(greatest, time_delta)
        if key_size < 0:
            null_keys += 1
        if offset_delta != index:
            sequential = False
        position = record_end
    return count, np.uint64(position), least, greatest, null_keys, sequential
