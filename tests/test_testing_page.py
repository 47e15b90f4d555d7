"""The examples of docs/testing.md run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 9


def run(directory: Path, *program: str) -> str:
    done = subprocess.run(
        [sys.executable, *program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_pass(tmp_path: Path) -> None:
    tests = [each for each in EXAMPLES if "def test_" in each]
    for number, example in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(example, encoding="utf-8")
    said = run(tmp_path, *("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"))
    assert f"{len(tests)} passed" in said


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "def test_" not in each])
def test_a_program_runs(example: str, tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(example, encoding="utf-8")
    run(tmp_path, "it.py")
