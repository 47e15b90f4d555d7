"""Steps from nothing to a first record, without a C compiler: by pip, uvx and pipx.

The wheel is found in a directory instead of a package index; what it needs comes from the index.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.kafka import poll_until
from support.new_environment import UV, bare_environment, output_of, patiently
from support.ports import free_port, listens
from support.release_tool import release_tool

TOOL = release_tool()
VERSIONS = (TOOL.pythons()[0], TOOL.pythons()[-1])
WAYS = ("pip", "uvx", "pipx")
START_SECONDS_MAX = 120


@pytest.fixture
def environment(tmp_path: Path, plain_wheel_dir: Path) -> dict[str, str]:
    """No program can be found but what uv's scripts call, and nothing of this process's Python."""
    return bare_environment(tmp_path, plain_wheel_dir)


def command_by(way: str, python: Path, directory: Path) -> tuple[list[list[str]], list[str]]:
    """Commands to run once, and the words that stand for `cordwood` after them."""
    if way == "pip":
        venv = directory / "venv"
        install = [str(venv / "bin" / "pip"), "install", "-q", "cordwood"]
        return [[str(python), "-m", "venv", str(venv)], install], [str(venv / "bin" / "cordwood")]
    if way == "uvx":
        return [], [str(UV), "tool", "run", "--python", str(python), "cordwood"]
    pipx = [str(UV), "tool", "run", "--python", str(python), "pipx==1.18.4"]
    return [], [*pipx, "run", "--python", str(python), "cordwood"]


@pytest.mark.parametrize(
    ("way", "version"),
    [
        ("pip", VERSIONS[0]),
        *((way, VERSIONS[-1]) for way in WAYS),
        *(pytest.param(way, VERSIONS[0], marks=pytest.mark.nightly) for way in WAYS[1:]),
    ],
)
def test_the_first_record_takes_seconds_and_no_compiler(
    way: str,
    version: str,
    environment: dict[str, str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    python = TOOL.interpreter(version)
    if python is None:
        pytest.skip(f"PYTHON {version} IS NOT HERE, AND NO PACKAGE OF THIS SYSTEM HAS IT")
    begun = time.monotonic()
    once, cordwood = command_by(way, python, tmp_path)
    for command in once:
        patiently(command, environment)
    said = patiently([*cordwood, "--version"], environment)
    assert re.fullmatch(r"cordwood [\d.]+ \(kernels: none; request path: Python\)\n", said)
    installed = time.monotonic()
    port = free_port()
    places = ["--log-dir", str(tmp_path / "logs"), "--port", str(port), "--http-port", "0"]
    server = ["--bootstrap-server", f"127.0.0.1:{port}", "--topic", "prices"]
    with (
        (tmp_path / "serve.log").open("w") as log,
        subprocess.Popen(
            [*cordwood, "serve", *places],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as broker,
    ):
        try:
            poll_until(lambda: listens(port), timeout_s=START_SECONDS_MAX, what="the port")
            output_of([*cordwood, "console-producer", *server], environment, "10.50\n")
            read = [*cordwood, "console-consumer", *server, "--from-beginning"]
            assert output_of([*read, "--max-messages", "1"], environment) == "10.50\n"
        finally:
            os.killpg(broker.pid, signal.SIGTERM)
    record_property(
        "figure",
        f"{way}, Python {version}: installed in {installed - begun:.1f} s, first record "
        f"{time.monotonic() - installed:.1f} s later",
    )
