from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.record import (
    SEQUENCE_MAX,
    Header,
    Record,
    build_record,
    increment_sequence,
    parse_fields,
)
from cordwood.model.errors import CorruptError

BYTES = st.none() | st.binary(max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 1 << 62),
    timestamp=st.integers(-1, 1 << 50),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.builds(Header, TEXT, BYTES), max_size=3).map(tuple),
)


def record_at(data: bytes, position: int, base_offset: int, base_timestamp: int) -> Record:
    fields = parse_fields(data, position)
    assert fields.end == len(data)
    return Record(
        base_offset + fields.offset_delta,
        base_timestamp + fields.timestamp_delta,
        fields.key,
        fields.value,
        fields.headers,
    )


@given(RECORDS, st.integers(0, 1000), st.integers(-(1 << 40), 1 << 50))
def test_round_trip(record: Record, delta: int, base_timestamp: int) -> None:
    base_offset = max(0, record.offset - delta)
    data = build_record(record, base_offset=base_offset, base_timestamp=base_timestamp)
    assert record_at(data, 0, base_offset, base_timestamp) == record
    assert record_at(b"before" + data, 6, base_offset, base_timestamp) == record


def test_the_record_of_a_known_vector() -> None:
    data = bytes.fromhex("12000000026b04763100")
    record = record_at(data, 0, 10, 1000)
    assert record == Record(10, 1000, b"k", b"v1")
    assert build_record(record, base_offset=10, base_timestamp=1000) == data


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(SEQUENCE_MAX, 1) == 0
    assert increment_sequence(SEQUENCE_MAX - 1, 3) == 1
    assert increment_sequence(5, 3) == 8


@pytest.mark.parametrize(
    "data",
    [
        "",
        "13000000026b04763100",  # negative length
        "10000000026b04763100",  # shorter than it is
        "14000000026b04763100",  # longer than what is there
        "1200000002",
        "12000000026b04763101",  # -1 headers
        "12000000026b047631fe01",  # more headers than bytes
        "160000000101020100",  # a header whose key is null
    ],
)
def test_malformed_records_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptError):
        parse_fields(bytes.fromhex(data), 0)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        parse_fields(data, 0)
