from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.crc32c import crc32c


def test_check_value_of_the_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"x123456789")[1:]) == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(), st.binary())
def test_a_checksum_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc32c(second, value=crc32c(first)) == crc32c(first + second)
