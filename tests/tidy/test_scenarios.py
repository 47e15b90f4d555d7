"""The page of Kafka's scenarios names tests that are there, and counts them rightly."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kafka-test-scenarios.md"

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)?)`")
_NOT_SHOWN = re.compile(r"not shown: ([\w ]+)")


class Scenario(NamedTuple):
    """A row of a class's table; `tests` are (path, name), `not_shown` is why there are none."""

    line: str
    tests: Sequence[tuple[str, str]]
    not_shown: str | None


def cells_of(lines: Sequence[str]) -> Iterator[list[str]]:
    """The rows of tables, without their heads."""
    for before, line in zip(["", *lines], lines, strict=False):
        is_head = line.startswith("| ---") or not line.startswith("| ")
        if not is_head and before.startswith("| "):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def page() -> tuple[list[list[str]], list[Scenario]]:
    """The rows of the head's tables, and the scenarios."""
    head, *classes = PAGE.read_text(encoding="utf-8").split("\n## ")
    scenarios = []
    for section in classes:
        for cells in cells_of(section.splitlines()):
            assert len(cells) == 2, f"a row needs a scenario and its tests: {cells}"
            tests = _TEST.findall(cells[1])
            why = _NOT_SHOWN.fullmatch(cells[1])
            rest = _TEST.sub("", cells[1]).strip()
            assert why or (tests and not rest), f"name tests, or say `not shown: why`: {cells}"
            scenarios.append(Scenario(cells[0], tests, why[1] if why else None))
    return list(cells_of(head.splitlines())), scenarios


@cache
def names_of(path: str) -> frozenset[str]:
    """The names of a file's tests; those of a class also with its name."""
    found = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names = [inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)]
            found.update([*names, *(f"{node.name}::{name}" for name in names)])
    return frozenset(name for name in found if "test_" in name)


def test_every_test_that_shows_a_scenario_is_there() -> None:
    _, scenarios = page()
    assert scenarios
    for scenario in scenarios:
        for path, name in scenario.tests:
            assert (ROOT / path).is_file(), f"{PAGE.name} names {path}, which is not there"
            assert name in names_of(path), f"{PAGE.name} names {path}::{name}, which is not there"


def test_the_counts_at_the_top_are_right() -> None:
    head, scenarios = page()
    counts = {cells[0]: int(cells[1]) for cells in head if len(cells) == 2}
    not_shown = [s.not_shown for s in scenarios if s.not_shown is not None]
    assert counts == {
        "all": len(scenarios),
        "shown by a test": len(scenarios) - len(not_shown),
        "not shown": len(not_shown),
    }


def test_every_reason_not_to_show_a_scenario_is_explained_and_counted() -> None:
    head, scenarios = page()
    told = {cells[0]: int(cells[1]) for cells in head if len(cells) == 3}
    assert told == Counter(s.not_shown for s in scenarios if s.not_shown is not None)
    assert all(cells[2] for cells in head if len(cells) == 3)
