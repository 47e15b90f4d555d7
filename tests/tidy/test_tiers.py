"""Every test has exactly one tier, and the Makefile, CI and tests/README.md agree on them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.tiers import (
    BOTH,
    COLLECTED,
    COMPAT,
    LONGEST,
    MARKS_OF_COMPAT,
    SMALL_FORMS,
    Tier,
    may_run_in_compat,
    names,
    tier_of,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "README.md"
MARKS: Mapping[Tier, frozenset[str]] = {
    "test": frozenset(),
    "both": frozenset({"both"}),
    "compat": frozenset({"compat"}),
    "nightly": frozenset({"nightly"}),
}
#: What each target of the Makefile runs.
RUN_BY: Mapping[str, set[Tier]] = {
    "test": {"test", "both"},
    "compat": {"compat", "both"},
    "nightly": {"test", "both", "compat", "nightly"},
}
MARK_NAMES = frozenset[str]().union(*MARKS.values())
ENTRIES = (*COMPAT, *BOTH, *(entry for entries in SMALL_FORMS.values() for entry in entries))


def selected_by(target: str) -> set[Tier]:
    """The tiers that the `-m` of a target of the Makefile selects."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf'^{target}:.*\n\t.* -m pytest .* -m "([a-z ]+)"$', makefile, re.MULTILINE)
    assert found, f"`make {target}` runs no pytest with -m"
    words = set(found[1].split())
    assert words <= MARK_NAMES | {"not", "and", "or"}, f"another mark in {found[1]!r}"
    return {
        tier
        for tier, marks in MARKS.items()
        if eval(found[1], {}, {mark: mark in marks for mark in MARK_NAMES})
    }


@pytest.mark.parametrize("target", RUN_BY)
def test_a_target_runs_its_tier(target: str) -> None:
    assert selected_by(target) == RUN_BY[target]


def test_make_compat_loads_the_files_of_which_it_runs_tests(
    request: pytest.FixtureRequest,
) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f'-m "{MARKS_OF_COMPAT}"\n' in makefile
    for node_id, tier in request.config.stash[COLLECTED].items():
        assert tier not in {"compat", "both"} or may_run_in_compat(node_id.partition("::")[0])
    assert not may_run_in_compat("tests/tidy/test_tiers.py")


def test_ci_runs_test_and_compat() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in lines, "a failure of the first tier has to end .ci/run"
    assert [line for line in lines if "make" in line] == ["make test", "make compat"]


def test_every_collected_test_has_the_marks_of_one_tier(request: pytest.FixtureRequest) -> None:
    tiers = request.config.stash[COLLECTED]
    for item in request.session.items:
        marks = {mark.name for mark in item.iter_markers()} & MARK_NAMES
        assert marks == MARKS[tiers[item.nodeid]], item.nodeid


def test_only_conftest_gives_the_marks_of_the_tables() -> None:
    given = re.compile(r"\bmark\." + "(both|compat)" + r"\b")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path != ROOT / "tests" / "conftest.py":
            assert not given.search(path.read_text(encoding="utf-8")), (
                f"{path.relative_to(ROOT)}: add an entry to tests/support/tiers.py instead"
            )


@pytest.mark.parametrize("entry", [*ENTRIES, *LONGEST])
def test_an_entry_points_at_what_is_there(entry: str) -> None:
    file, _, rest = entry.partition("::")
    path = ROOT / file
    assert path.is_dir() if file.endswith("/") else path.is_file(), (
        f"tests/support/tiers.py: no {file}"
    )
    function = rest.partition("[")[0].rpartition("::")[2]
    if function:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert function in defined, f"tests/support/tiers.py: {file} has no {function}"


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_tests_of_its_tier(entry: str, request: pytest.FixtureRequest) -> None:
    """Of a run of single files or tests, no entry has to name any of these."""
    tiers = request.config.stash[COLLECTED]
    found = {tier for node_id, tier in tiers.items() if names(entry, node_id)}
    place = entry.partition("::")[0]
    is_whole = any(node_id.startswith(place) for node_id in tiers) and not any(
        ".py" in argument for argument in request.config.args
    )
    wanted: Tier = "compat" if entry in COMPAT else "both" if entry in BOTH else "test"
    assert not is_whole or wanted in found, (
        f"tests/support/tiers.py: {entry} names no test of this tier"
    )
    assert entry in (*COMPAT, *BOTH) or found <= {"test", "nightly"}


def test_no_entry_says_what_another_says() -> None:
    assert len(set(ENTRIES)) == len(ENTRIES)
    for entries in (COMPAT, BOTH):
        for entry in entries:
            others = [other for other in entries if other != entry and names(other, entry)]
            assert not others, f"tests/support/tiers.py: {entry} is in {others}"


def test_a_mark_comes_before_the_table_and_a_small_form_before_its_directory() -> None:
    (golden, *_) = SMALL_FORMS["golden"]
    assert tier_of(golden, is_nightly=False) == "test"
    assert tier_of(golden, is_nightly=True) == "nightly"
    assert tier_of(golden.replace("[1]", "[2]"), is_nightly=False) == "compat"
    assert tier_of("tests/test_of_something.py::test_it", is_nightly=False) == "test"
    assert tier_of("tests/hostile/test_it.py::test_it", is_nightly=False) == "both"
    assert not names("tests/a.py::test_it", "tests/a.py::test_it_again")
    assert names("tests/a.py::test_it", "tests/a.py::test_it[one]")
    assert names("tests/a.py::test_it[one-", "tests/a.py::test_it[one-two]")


def test_the_page_names_the_targets_and_what_they_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `make (\w+)` \|", page, re.MULTILINE)
    assert rows == list(RUN_BY)


def test_the_page_lists_what_compat_runs() -> None:
    section = part("## What `make compat` runs")
    assert re.findall(r"^- `(tests/[^`]+)`", section, re.MULTILINE) == [*COMPAT, *BOTH]


def test_the_page_lists_the_small_forms() -> None:
    rows = re.findall(r"^\| ([^|`]+) \| ([^|]+) \|", part("## Small forms"), re.MULTILINE)
    listed = {name: tuple(re.findall(r"`(tests/[^`]+)`", forms)) for name, forms in rows}
    listed = {name: forms for name, forms in listed.items() if forms}
    assert listed == {name: tuple(forms) for name, forms in SMALL_FORMS.items()}


def test_the_page_says_of_every_comparison_where_its_small_form_is() -> None:
    section = part("## Small forms")
    for directory in ("tests/compat", "tests/spark"):
        for path in sorted((ROOT / directory).glob("test_*.py")):
            assert f"`{path.stem}`" in section, (
                f"tests/README.md, Small forms: add `{path.stem}` to the row of a comparison"
            )


def part(heading: str) -> str:
    """A section of the page."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n{heading}\n" in page, f"tests/README.md has no section {heading!r}"
    return page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
