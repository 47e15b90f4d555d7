"""The garbage collector of a command's process."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app

_RUN = """
import atexit, gc, sys
atexit.register(lambda: print(f"collector: {gc.isenabled()}, kept: {gc.get_freeze_count() > 0}"))
from cordwood.surfaces.cli.entry import main
sys.argv = ["cordwood", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("command", ["serve", "clean", "topics", "hold"])
def test_the_collector_runs_once_a_command_is_loaded(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, command, "--help"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "collector: True, kept: True", done


def test_nothing_is_kept_from_the_collector_of_another_process() -> None:
    kept = gc.get_freeze_count()
    assert CliRunner().invoke(app, ["clean", "--help"]).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() <= kept
