"""The pytest plugin, in a project of its own that says nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TEST = """\
def test_a_broker_is_there(cordwood_broker, cordwood_shared_broker):
    assert cordwood_broker.port != cordwood_shared_broker.port
    assert cordwood_broker.node.settings.integer("num.partitions") == 3
"""
CONFTEST = """\
import pytest

@pytest.fixture(scope="session")
def cordwood_properties():
    return {"num.partitions": 3}
"""


def run_pytest(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"),
            *(*options, "test_it.py"),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("named", ["", 'pytest_plugins = ["cordwood.testing.pytest_plugin"]\n'])
def test_pytest_finds_the_fixtures_by_itself_and_may_be_told_of_them(
    tmp_path: Path, named: str
) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(named + CONFTEST, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_project_can_leave_the_fixtures_out(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    done = run_pytest(tmp_path, "-p", "no:cordwood.testing.pytest_plugin")
    assert "fixture 'cordwood_broker' not found" in done.stdout


def test_a_project_that_uses_no_fixture_loads_nothing_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('cordwood'))\n"
        "    assert ours == ['cordwood', 'cordwood.testing', 'cordwood.testing.pytest_plugin']\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
