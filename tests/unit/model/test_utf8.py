from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.utf8 import decode_utf8


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),  # a surrogate is one malformed sequence to Java
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xbf\xbf\xed\xa0\x80", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x9f\x98A", "\ufffdA"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xc0\x80", "\ufffd" * 2),
        (b"\xe0\x80\x80", "\ufffd" * 3),
        (b"\xe2\x82", "\ufffd"),
    ],
)
def test_malformed_bytes_become_what_java_makes_of_them(data: bytes, text: str) -> None:
    assert decode_utf8(data) == text


@given(st.text())
def test_text_survives(text: str) -> None:
    assert decode_utf8(memoryview(text.encode())) == text


@given(st.binary())
def test_any_bytes_are_text(data: bytes) -> None:
    decode_utf8(data).encode()
