"""The number in a header of a record."""

from __future__ import annotations

import pytest

from cordwood.format.record import Header, Record
from cordwood.format.record_longs import header_long


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
