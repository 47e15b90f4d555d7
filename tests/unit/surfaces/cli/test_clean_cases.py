"""`cordwood clean` on unusual directories and with unusual arguments: a row of a table each."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.clean_case import NOBODY, Case, Ended, run_case
from support.clean_cases import CASES


@pytest.fixture
def top() -> Iterator[Path]:
    """A directory that every user may enter, which pytest's own is not."""
    path = Path(tempfile.mkdtemp(prefix="clean-case-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_clean_ends_as_the_table_says(
    top: Path,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def run(arguments: list[str], as_nobody: bool) -> Ended:
        """Runs the command in this process, without any rights if that is asked for."""
        gives_up_rights = as_nobody and os.geteuid() == 0
        if gives_up_rights:
            os.seteuid(NOBODY)
        try:
            done = CliRunner().invoke(app, ["clean", *arguments], catch_exceptions=False)
        finally:
            if gives_up_rights:
                os.seteuid(0)
        # The report on partitions is written to the process's own standard error.
        return Ended(
            exit_code=done.exit_code,
            output=done.stdout,
            errors=done.stderr + capfd.readouterr().err,
        )

    monkeypatch.chdir("/")
    ended, wrong = run_case(case, top, run)
    assert not wrong, f"{wrong}\n{ended.output}\n{ended.errors}"
