"""A simulated cluster of the real code: no guarantee is broken, and planted bugs are found.

A failure names the command that runs its seed again, and shows the history.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.simulation.bugs.table import BUGS
from support.simulation.run import Result, run_seed

_SEEDS_IN_TEST = 20
_SEEDS_A_TEST = 10
_SEEDS_NIGHTLY = 1000
_SEEDS_A_NIGHTLY_TEST = 50
_SEEDS_TO_FIND_A_BUG = 200
FOUND = [(name, bug.seed) for name, bug in BUGS.items() if bug.seed is not None]
#: One bug of so many is put in by `make test`, all of them by `make nightly`.
_ONE_OF = 4
TESTS = Path(__file__).parents[1]


def describe(result: Result, bug: str = "") -> str:
    command = result.command + (f" BUG={bug}" if bug else "")
    return f"seed {result.seed}: {result.violation}\nIts history: {command}"


def require_no_violation(first: int, count: int) -> None:
    for seed in range(first, first + count):
        result = run_seed(seed)
        assert result.violation is None, describe(result)


@pytest.mark.parametrize("first", range(0, _SEEDS_IN_TEST, _SEEDS_A_TEST))
def test_no_guarantee_is_broken(first: int) -> None:
    require_no_violation(first, _SEEDS_A_TEST)


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("first", range(0, _SEEDS_NIGHTLY, _SEEDS_A_NIGHTLY_TEST))
def test_no_guarantee_is_broken_in_a_thousand_seeds(first: int) -> None:
    require_no_violation(first, _SEEDS_A_NIGHTLY_TEST)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(*found, marks=[pytest.mark.nightly] if number % _ONE_OF else [])
        for number, found in enumerate(FOUND)
    ],
)
def test_a_planted_bug_is_found(name: str, seed: int) -> None:
    with BUGS[name].put_in():
        result = run_seed(seed)
    assert result.violation is not None, f"the bug {name} is not found: {result.command} BUG={name}"


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("name", [name for name, _ in FOUND])
def test_a_planted_bug_is_found_from_the_first_seed_on(name: str) -> None:
    with BUGS[name].put_in():
        for seed in range(_SEEDS_TO_FIND_A_BUG):
            violation = run_seed(seed).violation
            if violation is not None:
                print(f"{name}: {seed + 1} seeds, {violation}")
                return
    pytest.fail(f"{name} is not found in {_SEEDS_TO_FIND_A_BUG} seeds")


def test_a_seed_has_one_history() -> None:
    """In any process: the order of sets differs between them, and addresses in memory."""
    lines = []
    for number in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-m", "support.simulation", "3", "--quiet"],
            cwd=TESTS,
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        )
        lines.append(found.stdout.rpartition(", ")[2])
    assert lines[0] == lines[1]
