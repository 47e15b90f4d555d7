from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.crc32c import crc32c
from cordwood.format.producer_snapshot import (
    ProducerEntry,
    build_producer_snapshot,
    parse_producer_snapshot,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError

KNOWN = bytes.fromhex(
    "0001b498073800000001000000000000001700050000000c000000000000000c000000020000018bcfe5680a"
    "ffffffffffffffffffffffff"
)
ENTRY = ProducerEntry(
    producer_id=23,
    producer_epoch=5,
    last_sequence=12,
    last_offset=12,
    offset_delta=2,
    timestamp=1700000000010,
)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ENTRIES = st.lists(
    st.builds(
        ProducerEntry,
        producer_id=INT64,
        producer_epoch=st.integers(-1, 32767),
        last_sequence=INT32,
        last_offset=INT64,
        offset_delta=INT32,
        timestamp=INT64,
        coordinator_epoch=INT32,
        current_txn_first_offset=INT64,
    ),
    max_size=5,
)


def test_the_known_snapshot() -> None:
    assert build_producer_snapshot([ENTRY]) == KNOWN
    assert parse_producer_snapshot(KNOWN) == [ENTRY]


@given(ENTRIES)
def test_round_trip(entries: list[ProducerEntry]) -> None:
    assert parse_producer_snapshot(build_producer_snapshot(entries)) == entries


def test_unsound_snapshots_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="unknown file version 2"):
        parse_producer_snapshot(b"\0\2" + KNOWN[2:])
    with pytest.raises(CorruptError, match="CRC is no longer valid"):
        parse_producer_snapshot(KNOWN[:-1] + b"\0")
    for size in (0, 9, 20, len(KNOWN) - 1):
        with pytest.raises(CorruptError):
            parse_producer_snapshot(KNOWN[:size])
    for count in (-1, (1 << 31) - 1):
        body = struct.pack(">i", count)
        with pytest.raises(CorruptError, match="schema validation"):
            parse_producer_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)
    body = bytes(5)
    with pytest.raises(CorruptError):
        parse_producer_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


@given(st.binary(max_size=120))
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    body = b"\0\1" + struct.pack(">I", crc32c(data)) + data
    with contextlib.suppress(CorruptError):
        assert build_producer_snapshot(parse_producer_snapshot(body)) == body
