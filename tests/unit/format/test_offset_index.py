from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.offset_index import build_offset_index, lookup_offset, parse_offset_index
from cordwood.model.errors import CorruptError

ENTRIES = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=20).map(
    lambda steps: _sums(steps, start=(1000, 0))
)


def _sums(steps: list[tuple[int, int]], *, start: tuple[int, int]) -> list[tuple[int, int]]:
    out, (first, second) = [], start
    for one, two in steps:
        first, second = first + one, second + two
        out.append((first, second))
    return out


def test_the_known_entry() -> None:
    assert build_offset_index([(12, 73)], 0).hex() == "0000000c00000049"
    assert parse_offset_index(bytes.fromhex("0000000c00000049"), 100) == [(112, 73)]


@given(ENTRIES, st.integers(0, 5))
def test_round_trip_with_zeros_at_the_end(entries: list[tuple[int, int]], zeros: int) -> None:
    data = build_offset_index(entries, 1000)
    assert parse_offset_index(data + bytes(8 * zeros), 1000) in (entries, [(1000, 0)])
    if entries or zeros != 1:
        assert parse_offset_index(data + bytes(8 * zeros), 1000) == entries


@given(ENTRIES, st.integers(0, 1 << 26))
def test_lookup_finds_the_last_entry_not_above(entries: list[tuple[int, int]], target: int) -> None:
    below = [entry for entry in entries if entry[0] <= target]
    assert lookup_offset(entries, target, 1000) == (below[-1] if below else (1000, 0))


@pytest.mark.parametrize(
    "data",
    [
        "00",
        "00000001000000010000000100000002",
        "00000001000000020000000200000002",
        "000000010000000200000000000000000000000300000004",
        "ffffffff00000002",
    ],
)
def test_unsound_indexes_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptError):
        parse_offset_index(bytes.fromhex(data), 0)


def test_entries_that_do_not_ascend_are_not_built() -> None:
    for entries in ([(5, 1), (5, 2)], [(1 << 31, 0)]):
        with pytest.raises(ValueError, match="offset"):
            build_offset_index(entries, 0)


@given(st.binary(max_size=64))
def test_hostile_bytes_are_corrupt_or_round_trip(data: bytes) -> None:
    try:
        entries = parse_offset_index(data, 0)
    except CorruptError:
        return
    assert data.startswith(build_offset_index(entries, 0))
