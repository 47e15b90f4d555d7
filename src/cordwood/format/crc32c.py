"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots."""

from __future__ import annotations

import crc32c as _native

from cordwood.format.varint import Buffer


def crc32c(data: Buffer, *, value: int = 0) -> int:
    """The checksum (0 .. 2^32-1) of `data`; `value` is that of the bytes before it."""
    return _native.crc32c(data, value)
