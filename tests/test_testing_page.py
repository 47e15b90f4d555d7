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


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(example, encoding="utf-8")
    is_test = "def test_" in example
    program = ["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"] if is_test else []
    done = subprocess.run(
        [sys.executable, *program, path.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout or not is_test
