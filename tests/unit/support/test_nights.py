"""The tests that run in one of several nights."""

from __future__ import annotations

import pytest

from support.nights import EVERY_NIGHT, NIGHTS, left_out_at

SEEDS = [f"tests/test_a.py::test_it[{n}]" for n in range(10)]
OTHERS = ["tests/test_a.py::test_other[x]", "tests/test_b.py::test_it[x]"]


def run_at(night: int) -> list[str]:
    left_out = set(left_out_at(str(night), [*SEEDS, *OTHERS]))
    return [each for each in (*SEEDS, *OTHERS) if each not in left_out]


@pytest.mark.parametrize("first", [0, 7, 20_785])
def test_each_runs_in_exactly_one_of_the_nights_in_a_row(first: int) -> None:
    ran = [each for night in range(first, first + NIGHTS) for each in run_at(night)]
    assert sorted(ran) == sorted([*SEEDS, *OTHERS])


def test_a_night_has_about_a_quarter() -> None:
    assert [len(run_at(night)) for night in range(NIGHTS)] == [5, 3, 2, 2]


def test_all_run_where_all_are_asked_for() -> None:
    assert list(left_out_at(EVERY_NIGHT, SEEDS)) == []


def test_another_night_is_refused() -> None:
    with pytest.raises(ValueError, match="tonight"):
        list(left_out_at("tonight", SEEDS))
