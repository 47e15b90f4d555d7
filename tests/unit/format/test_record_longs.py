"""The numbers in headers of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.access.due_scan import scan_due
from cordwood.cleanup.rules.due import DueRule
from cordwood.cleanup.rules.moments import NEVER
from cordwood.cleanup.rules.time_to_live import TimeToLive
from cordwood.format.record import Header, Record
from cordwood.format.record_batch import build_batch
from cordwood.format.record_longs import expiry_ms, header_long
from cordwood.storage.reading.source import SegmentSource


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), None),
        ((b"\0\0\0\0\0\0\1\2",), 258),
        ((b"\xff" * 8,), -1),
        ((None,), None),
        ((b"",), None),
        ((b"1234567",), None),
        ((b"123456789",), None),
        ((b"\xff" * 8, b"\0" * 7 + b"\5"), 5),
        ((b"\xff" * 8, None), None),
    ],
)
def test_the_last_header_of_eight_bytes_is_the_number(
    values: tuple[bytes | None, ...], expected: int | None
) -> None:
    headers = (*(Header("v", value) for value in values), Header("w", b"\1" * 8))
    assert header_long(Record(0, 0, b"k", b"v", headers), "v") == expected


def long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("value", "timestamp", "expected"),
    [
        (b"250", 1_000, 1_250),
        (long(250), 1_000, 1_250),
        (b"0", 1_000, 1_000),
        (long(0), 1_000, 1_000),
        (b"86400000", 1_000, 86_401_000),  # eight bytes that are digits
        (b"0000000250", 1_000, 1_250),
        (long(MAX - 1_000), 1_000, MAX),
        (long(MAX - 999), 1_000, None),
        (b"%d" % (MAX - 1_000), 1_000, MAX),
        (b"%d" % MAX, 1_000, None),
        (b"9223372036854775808", 0, None),
        (b"9" * 20, 0, None),
        (long(-1), 1_000, None),
        (b"-1", 1_000, None),
        (b"+1", 1_000, None),
        (b" 1", 1_000, None),
        (b"1.5", 1_000, None),
        (b"", 1_000, None),
        (None, 1_000, None),
        (b"250", -1, None),
        (b"250", 0, 250),
    ],
)
def test_a_record_expires_at_its_timestamp_and_its_time_to_live(
    tmp_path: Path, value: bytes | None, timestamp: int, expected: int | None
) -> None:
    headers = (Header("ttl", b"1"), Header("ttl", value), Header("tt", b"2"))
    record = Record(0, timestamp, b"k", b"v", headers)
    assert expiry_ms(record, "ttl") == expected
    path = tmp_path / "log"
    path.write_bytes(build_batch([record], base_offset=0))
    source = SegmentSource(
        path=str(path),
        base_offset=0,
        next_base_offset=1,
        size_bytes=path.stat().st_size,
        modified_ns=0,
    )
    found = scan_due(source, DueRule(removals=(TimeToLive("ttl"),)))
    assert found.expiry_ms == (NEVER if expected is None else expected), "the compiled twin"
