"""Points of strata: one in each, those of a level among those of the level before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.estimate.points import LEVEL_MAX, NestedPoints

LEVELS = st.integers(0, 12)
RANGES = st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 13))


@given(seed=st.integers(0, (1 << 127) - 1), level=LEVELS, start=st.integers(0, 1 << 40))
def test_each_stratum_has_one_point(seed: int, level: int, start: int) -> None:
    first = start >> level
    points = NestedPoints(seed).at(level, first << level, first + 50 << level)
    assert (points >> level).tolist() == list(range(first, first + 50))


@given(seed=st.integers(0, 1 << 64), level=LEVELS, span=RANGES)
def test_points_of_a_level_are_points_of_the_one_below(
    seed: int, level: int, span: tuple[int, int]
) -> None:
    points, start, end = NestedPoints(seed), span[0], sum(span)
    below, above = points.at(level, start, end), points.at(level + 1, start, end)
    assert set(above.tolist()) <= set(below.tolist())
    highest = points.highest(level, below)
    assert set(below[highest > level].tolist()) == set(above.tolist())
    assert (highest >= level).all()
    assert (highest <= LEVEL_MAX).all()


@given(seed=st.integers(0, 1 << 64), level=LEVELS, span=RANGES, cut=st.integers(0, 1 << 13))
def test_points_do_not_depend_on_the_range_that_is_asked_for(
    seed: int, level: int, span: tuple[int, int], cut: int
) -> None:
    points, start, end = NestedPoints(seed), span[0], sum(span)
    middle = min(start + cut, end)
    parts = [points.at(level, start, middle), points.at(level, middle, end)]
    assert np.concatenate(parts).tolist() == points.at(level, start, end).tolist()


@pytest.mark.parametrize("level", [1, 4, 9])
def test_each_byte_of_a_stratum_is_as_likely(level: int) -> None:
    width, seeds = 1 << level, 64
    count = 256 * 64
    places = np.concatenate(
        [NestedPoints(seed).at(level, 0, width * count // seeds) % width for seed in range(seeds)]
    )
    found = np.bincount(places >> max(0, level - 4))
    expected = count / len(found)
    assert np.abs(found - expected).max() < 5 * expected**0.5


def test_neighbours_are_independent() -> None:
    """A pattern of batches that repeats is not met at the same place each time."""
    points = NestedPoints(3).at(10, 0, 4_000 << 10) % 1024
    assert abs(float(np.corrcoef(points[1:], points[:-1])[0, 1])) < 0.08
