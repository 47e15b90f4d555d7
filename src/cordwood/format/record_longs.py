"""Numbers in the headers of records: versions (KIP-280), and times to live."""

from __future__ import annotations

from cordwood.format.record import Record

_LONG_BYTES = 8
_LONG_MAX = (1 << 63) - 1
_LONG_DIGITS = 19


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


def duration_ms(value: bytes | None) -> int | None:
    """A number of milliseconds: decimal digits, or a big-endian integer of 8 bytes, not negative.

    None where it is neither. Eight digits are digits: as an integer they are 100 million years.
    """
    if not value or len(value) > _LONG_DIGITS:
        return None
    if value.isdigit():
        number = int(value)
    elif len(value) == _LONG_BYTES:
        number = int.from_bytes(value, "big", signed=True)
    else:
        return None
    return number if 0 <= number <= _LONG_MAX else None


def expiry_ms(record: Record, key: str) -> int | None:
    """The expiry of a record (ms): its timestamp, and the time to live in its last header `key`.

    None where it has no such header, an unreadable one, or no timestamp, and beyond 2^63 - 1.
    """
    ttl_ms = duration_ms(last_header(record, key))
    if ttl_ms is None or record.timestamp < 0 or record.timestamp > _LONG_MAX - ttl_ms:
        return None
    return record.timestamp + ttl_ms
