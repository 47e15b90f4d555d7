"""Compresses rebuilt batches once more that the codec's default level has made larger.

A producer may have compressed a batch at a higher level than the default one, at which a cleaner
compresses what it rebuilds. A batch that loses records cannot keep its bytes: a superseded record
that stayed would be the newest of its key again when its tombstone goes.

Differs: Kafka's cleaner writes the larger batch (KAFKA-20036).
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from cordwood.cleanup.scan import Ints
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels

#: The highest levels that take no more memory for a long window; snappy has no levels.
_DENSEST: Final = {Codec.GZIP: 9, Codec.LZ4: 12, Codec.ZSTD: 19}
_GROWTH_BYTES_MIN: Final = 512
_GROWTH_SHARE: Final = 32
# Attributes, base timestamp, maximum timestamp and count of a batch of magic 2.
_FIELDS: Final = struct.Struct(">21xh4xqq14xi")


def without_growth(data: memoryview, written: Ints, before: Ints) -> tuple[memoryview, Ints]:
    """Batches, those that have grown compressed at their codec's densest level if that is smaller.

    A growth of less than 512 bytes, or a 32nd, is not worth the time.

    Args:
        data: the batches, of magic 2.
        written: int64 (n, 3), size, last offset and maximum timestamp of each; is not changed.
        before: int64[n], the size of the batch that each is made of.

    Returns:
        Both, unchanged where nothing has grown.
    """
    growth = written[:, 0] - before
    has_grown = growth > np.maximum(_GROWTH_BYTES_MIN, before // _GROWTH_SHARE)
    if not has_grown.any():
        return data, written
    written = written.copy()
    pieces = []
    ends = np.cumsum(written[:, 0])
    for row, end in enumerate(ends.tolist()):
        batch = data[end - int(written[row, 0]) : end]
        if has_grown[row]:
            batch = _denser(batch)
            written[row, 0] = len(batch)
        pieces.append(batch)
    return memoryview(b"".join(pieces)), written


def _denser(batch: memoryview) -> memoryview:
    attributes, base_timestamp, max_timestamp, count = _FIELDS.unpack_from(batch)
    codec = Codec(attributes & 7)
    if codec not in _DENSEST:
        return batch
    records = decompress(codec, batch[rows_of.HEADER_SIZE :])
    payload = compress(codec, records, level=_DENSEST[codec])
    size = rows_of.HEADER_SIZE + len(payload)
    if size >= len(batch):
        return batch
    out = np.empty(size, dtype=np.uint8)
    out[rows_of.HEADER_SIZE :] = np.frombuffer(payload, dtype=np.uint8)
    source = np.frombuffer(batch[: rows_of.HEADER_SIZE], dtype=np.uint8)
    kernels.put_header(out, 0, source, 0, size, attributes, base_timestamp, max_timestamp, count)
    return out.data
