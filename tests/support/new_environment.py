"""A new environment of a user: the wheel found in a directory, and no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from support.downloads import DOWNLOAD_ATTEMPTS

ROOT: Final = Path(__file__).resolve().parents[2]
UV: Final = Path(sys.executable).with_name("uv")


def build_plain_wheel(target: Path) -> None:
    """Writes the wheel that runs on every Python into a directory."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environment = os.environ | {"CORDWOOD_COMPILE": "0"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)


def bare_environment(directory: Path, dist: Path) -> dict[str, str]:
    """The variables of a shell in which there is neither a compiler nor this process's Python.

    Args:
        directory: for its programs and what they install; exists.
        dist: where the wheel is; what it needs comes from the package index.
    """
    (directory / "bin").mkdir()
    for program in (UV, "/usr/bin/dirname", "/usr/bin/realpath"):
        (directory / "bin" / Path(program).name).symlink_to(program)
    outer = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    outer.pop("VIRTUAL_ENV", None)
    return outer | {
        "PATH": str(directory / "bin"),
        "CC": "/bin/false",
        "PIP_FIND_LINKS": str(dist),
        "UV_FIND_LINKS": str(dist),
        "UV_TOOL_DIR": str(directory / "tools"),
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_HOME": str(directory / "pipx"),
    }


def output_of(
    command: Sequence[str],
    environment: Mapping[str, str],
    text: str = "",
    *,
    cwd: Path | None = None,
) -> str:
    """The output of a command, given a text on standard input.

    Raises:
        AssertionError: it failed.
    """
    done = subprocess.run(
        command,
        input=text,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def patiently(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The output of a command, repeated while the network fails."""
    for _ in range(DOWNLOAD_ATTEMPTS - 1):
        try:
            return output_of(command, environment)
        except AssertionError:
            continue
    return output_of(command, environment)
