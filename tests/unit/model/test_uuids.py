from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.errors import CorruptError
from cordwood.model.uuids import (
    ZERO_UUID,
    fresh_uuid,
    parse_uuid,
    uuid_of_bytes,
    uuid_text,
    uuid_texts,
)


@given(st.uuids())
def test_uuids_round_trip(uuid: UUID) -> None:
    assert parse_uuid(uuid_text(uuid)) == uuid_of_bytes(uuid.bytes) == uuid
    assert len(uuid_text(uuid)) == 22


def test_uuids_are_printed_as_kafka_prints_them() -> None:
    assert uuid_texts([ZERO_UUID, UUID(int=1)]) == ["A" * 22, "A" * 21 + "Q"]


@given(st.text(max_size=24))
def test_other_text_is_no_uuid(text: str) -> None:
    with contextlib.suppress(CorruptError):
        parse_uuid(text)


def test_padding_may_follow() -> None:
    assert parse_uuid("A" * 21 + "Q==") == UUID(int=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "decoded as 0 bytes"),
        ("A", "at least have 2 bytes"),
        ("A" * 21, "Illegal base64"),
        ("A" * 20, "decoded as 15 bytes"),
        ("A" * 23, "decoded as 17 bytes"),
        ("$" * 22, "Illegal base64"),
        ("+" * 22, "Illegal base64"),
        ("A" * 22 + "**", "Illegal base64"),
        ("A" * 22 + "=", "Illegal base64"),
        ("A" * 25, "too long to be decoded"),
    ],
)
def test_a_text_of_another_length_or_alphabet_is_refused(text: str, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason):
        parse_uuid(text)


def test_fresh_uuids_have_no_dash() -> None:
    class Drawn:
        """Two UUIDs with a dash, and one without."""

        def __init__(self) -> None:
            self.drawn = ["-" + "A" * 21, "A" * 20 + "-A", "A" * 22]

        def unique_id(self) -> str:
            return parse_uuid(self.drawn.pop(0)).hex

        def below(self, bound: int) -> int:
            raise AssertionError(bound)

    assert fresh_uuid(Drawn()) == ZERO_UUID
