"""Programs that tests build: when, and what a failure leaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.built_programs import (
    ProgramBuildError,
    ProgramUnavailableError,
    built,
    fetch,
    need,
    run,
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    source = tmp_path / "some"
    source.mkdir()
    (source / "main").write_text("one")
    return source


def build(source: Path, target: Path) -> None:
    (target / "built").write_text((source / "main").read_text())


def test_a_program_is_built_once_and_again_when_its_sources_change(source: Path) -> None:
    first = built(source, build, kind="tools")
    assert first.parent == Path.home() / ".cache" / "cordwood" / "tools"
    assert (first / "built").read_text() == "one"
    assert built(source, lambda *_: pytest.fail("built twice"), kind="tools") == first
    (source / "main").write_text("two")
    second = built(source, build, kind="tools")
    assert second != first
    assert (second / "built").read_text() == "two"


def test_a_build_that_failed_leaves_nothing_that_is_taken_for_a_program(source: Path) -> None:
    def fail(source: Path, target: Path) -> None:
        build(source, target)
        raise ProgramBuildError("no")

    with pytest.raises(ProgramBuildError):
        built(source, fail, kind="tools")
    assert (built(source, build, kind="tools") / "built").read_text() == "one"


def test_what_a_program_is_not_built_from_does_not_build_it_again(source: Path) -> None:
    first = built(source, build, ["main"], kind="tools")
    (source / "more").write_text("more")
    assert built(source, build, ["main"], kind="tools") == first
    assert built(source, build, kind="tools") != first


def test_without_a_source_checkout_a_program_is_not_to_be_had(source: Path) -> None:
    with pytest.raises(ProgramUnavailableError, match="source checkout"):
        built(source / "other", build, kind="tools")


def test_a_tool_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramUnavailableError, match="`go` is not on PATH: install Go"):
        need("go", "install Go")


def test_a_step_says_what_it_printed_or_how_it_failed(tmp_path: Path) -> None:
    python = [sys.executable, "-c"]
    assert run([*python, "print('done')"], tmp_path) == "done\n"
    with pytest.raises(ProgramBuildError, match="no such module"):
        run([*python, "raise SystemExit('no such module')"], tmp_path)
    with pytest.raises(ProgramBuildError, match="absent"):
        run([str(tmp_path / "absent")], tmp_path)


def test_a_fetch_is_tried_again_and_gives_up_after_three_times(tmp_path: Path) -> None:
    count = "import pathlib; log = pathlib.Path('log'); log.touch(); n = len(log.read_text()); "
    note = "log.write_text('x' * (n + 1)); "
    fetch([sys.executable, "-c", count + note + "assert n == 1"], tmp_path)
    assert (tmp_path / "log").read_text() == "xx"
    (tmp_path / "log").unlink()
    with pytest.raises(ProgramUnavailableError, match="AssertionError"):
        fetch([sys.executable, "-c", count + note + "assert n == 7"], tmp_path)
    assert (tmp_path / "log").read_text() == "xxx"
