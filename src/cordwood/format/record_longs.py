"""Numbers in the headers of records: versions (KIP-280)."""

from __future__ import annotations

from cordwood.format.record import Record

_LONG_BYTES = 8


def last_header(record: Record, key: str) -> bytes | None:
    """The value of the last header with a key, as Kafka's `Headers.lastHeader`."""
    values = [header.value for header in record.headers if header.key == key]
    return values[-1] if values else None


def header_long(record: Record, key: str) -> int | None:
    """The value of a header that is a big-endian integer of 8 bytes; None where there is none."""
    value = last_header(record, key)
    if value is None or len(value) != _LONG_BYTES:
        return None
    return int.from_bytes(value, "big", signed=True)
