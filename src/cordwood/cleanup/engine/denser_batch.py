"""A rebuilt batch compressed once more, where the codec's default level has made it larger.

A producer may have compressed a batch at a higher level than the default one, at which a cleaner
compresses what it rebuilds. A batch that loses records cannot keep its bytes: a superseded record
that stayed would be the newest of its key again when its tombstone goes.

Differs: Kafka's cleaner writes the larger batch (KAFKA-20036).
"""

from __future__ import annotations

import struct
from typing import Final

from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.crc32c import crc32c

#: A growth of fewer bytes, or of a smaller share of the batch, is not worth the time.
GROWTH_BYTES_MIN: Final = 512
GROWTH_SHARE: Final = 32

#: The highest levels that take no more memory for a long window; snappy has no levels.
_DENSEST: Final = {Codec.GZIP: 9, Codec.LZ4: 12, Codec.ZSTD: 19}
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_LENGTH_AT: Final = 8
_LENGTH_COUNTS_FROM: Final = 12
_CRC_AT: Final = 17
_CRC_COUNTS_FROM: Final = 21
_ATTRIBUTES_LOW_AT: Final = 22
_CODEC_MASK: Final = 7


def has_grown(before_bytes: int, after_bytes: int) -> bool:
    """Whether a batch has grown by so much that `denser` is worth the time."""
    growth = after_bytes - before_bytes
    return growth > max(GROWTH_BYTES_MIN, before_bytes // GROWTH_SHARE)


def denser(batch: memoryview) -> memoryview:
    """A batch of magic 2 compressed at its codec's densest level; itself if that is not smaller."""
    codec = Codec(batch[_ATTRIBUTES_LOW_AT] & _CODEC_MASK)
    if codec not in _DENSEST:
        return batch
    records = decompress(codec, batch[HEADER_BYTES:])
    out = bytearray(batch[:HEADER_BYTES])
    out += compress(codec, records, level=_DENSEST[codec])
    if len(out) >= len(batch):
        return batch
    _LENGTH.pack_into(out, _LENGTH_AT, len(out) - _LENGTH_COUNTS_FROM)
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[_CRC_COUNTS_FROM:]))
    return memoryview(out)
