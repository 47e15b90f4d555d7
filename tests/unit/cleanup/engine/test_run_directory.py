"""Directories of temporary files: in use, removed at the end, left by a killed process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cordwood.cleanup.engine.run_directory import PREFIX, RunDirectory

HOLD = (
    "import sys, tempfile\n"
    "from cordwood.cleanup.engine.run_directory import RunDirectory\n"
    "tempfile.tempdir = sys.argv[1]\n"
    "print(RunDirectory().path, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(autouse=True)
def system_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_removed_with_all_that_is_in_it() -> None:
    with RunDirectory() as run:
        (run.path / "blockmgr-1").mkdir()
        (run.path / "blockmgr-1" / "shuffle").write_bytes(b"x")
    assert not run.path.exists()
    run.remove()


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_in_use_is_not(
    system_directory: Path,
) -> None:
    command = [sys.executable, "-c", HOLD, str(system_directory)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, alive = processes
    paths = []
    for process in processes:
        assert process.stdout is not None
        paths.append(Path(process.stdout.readline().strip()))
    (paths[0] / "file").touch()
    killed.kill()
    killed.communicate()
    with RunDirectory() as run:
        assert not paths[0].exists()
        assert paths[1].exists()
        assert run.path.exists()
    alive.communicate()


def test_another_file_of_that_name_is_left_alone(system_directory: Path) -> None:
    target = system_directory / "elsewhere"
    target.mkdir()
    (target / "kept").touch()
    (system_directory / f"{PREFIX}link").symlink_to(target)
    (system_directory / f"{PREFIX}file").touch()
    RunDirectory().remove()
    assert (target / "kept").exists()
    assert (system_directory / f"{PREFIX}file").exists()
