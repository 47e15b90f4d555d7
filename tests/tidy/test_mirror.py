"""Files of tests/unit mirror the modules that they test, and start no broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
PACKAGE = ROOT / "src" / "cordwood"
#: Packages whose tests may start a broker: it is what they test, or what their commands are for.
WITH_A_BROKER = ("support/", "surfaces/", "testing/")
BROKER = re.compile(r"\b(RunningBroker|ServedBroker)\b")


def unit_files() -> Iterator[tuple[str, Path]]:
    """Each file of tests, with its path below tests/unit."""
    for path in sorted(UNIT.rglob("test_*.py")):
        yield path.relative_to(UNIT).as_posix(), path


def has_a_module(file: str) -> bool:
    """Whether `a/test_b.py` or `a/test_b_aspect.py` has a module or package `a/b` that it tests."""
    directory, _, name = file.removesuffix(".py").rpartition("/")
    source = ROOT / "tests" if directory.split("/")[0] == "support" else PACKAGE
    words = name.removeprefix("test_").split("_")
    candidates = (source / directory / "_".join(words[:n]) for n in range(1, len(words) + 1))
    return any(each.with_suffix(".py").is_file() or each.is_dir() for each in candidates)


def test_a_file_is_named_after_the_module_that_it_tests() -> None:
    without = [file for file, _ in unit_files() if not has_a_module(file)]
    assert not without, (
        f"{without}: tests/unit/PACKAGE/test_MODULE.py, or test_MODULE_ASPECT.py, tests "
        "PACKAGE/MODULE.py; tests of several modules together are in tests/integration"
    )


def test_no_unit_test_starts_a_broker() -> None:
    starting = [
        file
        for file, path in unit_files()
        if not file.startswith(WITH_A_BROKER) and BROKER.search(path.read_text(encoding="utf-8"))
    ]
    assert not starting, f"these belong to tests/integration: {starting}"
