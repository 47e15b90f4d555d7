from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.time_index import build_time_index, lookup_timestamp, parse_time_index
from cordwood.model.errors import CorruptError

STEPS = st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(0, 1 << 20)), max_size=20)


def entries_of(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out, timestamp, offset = [], 0, 50
    for later, further in steps:
        timestamp, offset = timestamp + later, offset + further
        out.append((timestamp, offset))
    return out


def test_the_known_entry() -> None:
    data = bytes.fromhex("0000018bcfe5680a0000000c")
    assert parse_time_index(data, 0) == [(1700000000010, 12)]
    assert build_time_index([(1700000000010, 12)], 0) == data


def test_the_only_entry_may_be_all_zeros() -> None:
    assert parse_time_index(bytes(12), 7) == [(0, 7)]
    assert parse_time_index(bytes(24), 7) == []


@given(STEPS, st.integers(0, 4))
def test_round_trip_with_zeros_at_the_end(steps: list[tuple[int, int]], zeros: int) -> None:
    entries = entries_of(steps)
    if entries or zeros != 1:
        data = build_time_index(entries, 50) + bytes(12 * zeros)
        assert parse_time_index(data, 50) == entries


@given(STEPS, st.integers(-1, 1 << 34))
def test_lookup_finds_the_last_entry_not_later(steps: list[tuple[int, int]], target: int) -> None:
    entries = entries_of(steps)
    earlier = [entry for entry in entries if entry[0] <= target]
    assert lookup_timestamp(entries, target, 50) == (earlier[-1] if earlier else (-1, 50))


@pytest.mark.parametrize("entries", [[(5, 1), (5, 2)], [(5, 3), (6, 2)], [(5, 1 << 31)], [(5, -1)]])
def test_entries_that_do_not_ascend_are_not_built(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"follows|out of reach"):
        build_time_index(entries, 0)


@pytest.mark.parametrize(
    "data",
    [
        "00",
        "000000000000000500000001000000000000000500000002",
        "000000000000000500000003000000000000000600000002",
        "0000000000000005ffffffff",
        "000000000000000500000003000000000000000000000000000000000000000600000004",
    ],
)
def test_unsound_indexes_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptError):
        parse_time_index(bytes.fromhex(data), 0)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_corrupt_or_round_trip(data: bytes) -> None:
    try:
        entries = parse_time_index(data, 0)
    except CorruptError:
        return
    assert data.startswith(build_time_index(entries, 0))
