"""A running broker, and tools run on it in this process."""

from __future__ import annotations

import importlib
import io
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from cordwood.surfaces.cli.tools.table import TOOLS
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine


class Said(NamedTuple):
    """Output of a tool."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


def run_tool(line: str, stdin: bytes = b"") -> Said:
    tool, *arguments = shlex.split(line)
    out, err = io.BytesIO(), io.BytesIO()
    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{TOOLS[tool].module}")
    code = module.run(arguments, Terminal(io.BytesIO(stdin), out, err))
    return Said(code, out.getvalue().decode(), err.getvalue().decode())


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    properties = {"auto.create.topics.enable": "false"}
    with RunningBroker(properties, engine=NoEngine) as running:
        yield running


@pytest.fixture
def run(broker: RunningBroker) -> Run:
    """Runs a tool's command line; `-B` stands for the flag with the broker's address."""

    def run_here(line: str, stdin: bytes = b"") -> Said:
        flag = f"--bootstrap-server {broker.bootstrap_servers}"
        said = run_tool(line.replace("-B", flag), stdin)
        # The broker runs in this process: what it logs of a slow machine is not the tool's.
        lines = said.err.splitlines(keepends=True)
        err = "".join(each for each in lines if "(cordwood.serving.event_loop)" not in each)
        return said._replace(err=err)

    return run_here


@pytest.fixture
def run_alone() -> Run:
    """Runs a tool's command line without a broker."""
    return run_tool
