from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.transaction_index import (
    AbortedTransaction,
    build_transaction_index,
    parse_transaction_index,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError

KNOWN = "00000000000000000017000000000000000a000000000000000d000000000000000e"
ENTRY = AbortedTransaction(producer_id=23, first_offset=10, last_offset=13, last_stable_offset=14)


def test_the_known_entry() -> None:
    assert build_transaction_index([ENTRY]).hex() == KNOWN
    assert parse_transaction_index(bytes.fromhex(KNOWN)) == [ENTRY]


@given(st.sets(st.integers(0, 1 << 60), max_size=10), st.integers(0, 1 << 60))
def test_round_trip(last_offsets: set[int], producer_id: int) -> None:
    entries = [
        AbortedTransaction(
            producer_id=producer_id, first_offset=0, last_offset=last, last_stable_offset=last + 1
        )
        for last in sorted(last_offsets)
    ]
    assert parse_transaction_index(build_transaction_index(entries)) == entries


def test_unsound_indexes_are_refused() -> None:
    data = bytes.fromhex(KNOWN)
    with pytest.raises(CorruptError, match="multiple"):
        parse_transaction_index(data[:-1])
    with pytest.raises(CorruptError, match="follows"):
        parse_transaction_index(data + data)
    for version in (b"\0\1", b"\xff\xff"):
        with pytest.raises(UnsupportedVersionError):
            parse_transaction_index(version + data[2:])
    with pytest.raises(ValueError, match="follows"):
        build_transaction_index([ENTRY, ENTRY])


@given(st.binary(max_size=150))
def test_hostile_bytes_are_corrupt_or_round_trip(data: bytes) -> None:
    try:
        entries = parse_transaction_index(data)
    except CorruptError:
        return
    if all(entry.last_offset >= 0 for entry in entries):
        assert build_transaction_index(entries) == data
