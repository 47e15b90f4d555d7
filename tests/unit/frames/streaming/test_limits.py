"""Shares of partitions in a limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood.frames.streaming.limits import shares


def test_shares_are_in_proportion_to_what_there_is() -> None:
    assert shares({"a": 300, "b": 100, "c": 0}, 40) == {"a": 30, "b": 10, "c": 0}
    assert shares({"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}
    assert shares({}, 10) == {}


@given(st.dictionaries(st.integers(), st.integers(0, 1 << 62), max_size=8), st.integers(1, 1 << 40))
def test_each_advances_and_none_beyond_its_size(sizes: dict[int, int], at_most: int) -> None:
    found = shares(sizes, at_most)
    assert found.keys() == sizes.keys()
    assert all(min(size, 1) <= found[key] <= size for key, size in sizes.items())
    assert sum(found.values()) <= at_most + len(sizes)
    if sum(sizes.values()) <= at_most:
        assert found == sizes
