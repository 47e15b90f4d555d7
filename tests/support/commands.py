"""Runs the command line many times: each run is forked from a process that has imported it.

A run costs milliseconds instead of half a second, so that every command can be given every kind of
bad input. What one run has imported is imported before the next is forked.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

CLOSED_PIPE = "a pipe without a reader"
FULL = "a full disk"


class Outcome(NamedTuple):
    """End of a run; `code` is negative where a signal killed it."""

    code: int
    out: str
    err: str


class Commands:
    """Runs `cordwood` with arguments; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, arguments: Sequence[str], *, stdout: str = "", cwd: Path = Path()) -> Outcome:
        """Runs a command; `stdout` may be `CLOSED_PIPE` or `FULL`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"arguments": list(arguments), "stdout": stdout, "cwd": str(cwd.absolute())}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Outcome(*json.loads(self._process.stdout.readline()))


def _run(order: dict[str, str]) -> Outcome:
    with contextlib.ExitStack() as files:
        out, err, imported = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        child = os.fork()
        if child == 0:
            _be_command(order, out.fileno(), err.fileno(), imported.fileno())
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err, imported):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
    _import(texts.pop().split())
    return Outcome(os.waitstatus_to_exitcode(status), *texts)


def _import(names: Sequence[str]) -> None:
    """Imports modules, and has no later run look through what they made for garbage."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if names:
        gc.collect()
        gc.freeze()


def _be_command(order: dict[str, str], out: int, err: int, imported: int) -> None:
    from cordwood.surfaces.cli.entry import main  # noqa: PLC0415  # loaded by now

    code: object = 99
    before = set(sys.modules)
    try:
        os.chdir(order["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(err, 2)
        os.dup2(_stdout(order["stdout"], out), 1)
        sys.argv = ["cordwood", *order["arguments"]]
        main()
    except SystemExit as stop:
        code = stop.code
    finally:
        os.write(imported, " ".join(sorted(set(sys.modules) - before)).encode())
        os._exit(code if isinstance(code, int) else 98)


def _stdout(kind: str, out: int) -> int:
    if kind == CLOSED_PIPE:
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open("/dev/full", os.O_WRONLY) if kind == FULL else out


def serve() -> None:
    """Answers an outcome for each order on stdin."""
    _import(["cordwood.surfaces.cli.entry"])
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(_run(json.loads(line))), flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    serve()
