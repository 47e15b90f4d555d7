"""The entry point of the `cordwood` command, and its exit codes and final messages.

A command that is stopped by a signal, whose output pipe is closed, or that fails, ends with one
line on stderr and a documented exit code. Only a bug has a traceback, shown on request.
"""

from __future__ import annotations

# Built into the interpreter: an interrupt during the imports below ends the process by its default
# action, without a traceback.
import _signal  # type: ignore[import-not-found]  # typeshed knows `signal` alone

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import io
import os
import sys
from typing import Final, NoReturn

from cordwood.surfaces.cli.error_text import (
    DEBUG_VARIABLE,
    FAILED,
    command_name,
    text_and_code,
)
from cordwood.surfaces.cli.first_process import run_below_first_process
from cordwood.surfaces.cli.loading import stop_collector
from cordwood.surfaces.cli.stopping import STOPPING, StoppedError

# What a command makes mostly lives until it ends: the collector need not look for garbage so often.
_GARBAGE_MIN: Final = 50_000


def main() -> NoReturn:
    """Runs the command line and ends the process.

    The exit code is the command's, or 128 plus the signal number after SIGINT, SIGTERM and SIGHUP.
    """
    if not __debug__:
        sys.exit("cordwood does not run under python -O: its assertions guard your data")
    run_below_first_process()
    _open_missing_streams()
    gc.set_threshold(_GARBAGE_MIN, *gc.get_threshold()[1:])
    stop_collector()
    code = 0
    try:
        STOPPING.install()
        import logging  # noqa: PLC0415  # signals come first

        # A log line that cannot be written is lost; the command itself reports what it could not
        # write.
        logging.raiseExceptions = False
        code = run(sys.argv[1:])
    except StoppedError:
        pass  # reported below
    if STOPPING.signal is not None:
        STOPPING.end_now()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs a command and returns its exit code; errors are shown on stderr.

    Raises:
        StoppedError: a signal stopped the command.
    """
    name = command_name(arguments)
    STOPPING.command(name)
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except StoppedError:
        raise
    except BrokenPipeError:
        _drop_stdout()
        return FAILED
    except Exception as error:
        code = _tell(name, error)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return code


def _invoke(arguments: list[str]) -> int:
    if arguments == ["--version"]:  # asked of every installation: it need not wait for typer
        from cordwood.surfaces.cli.version import version_text  # noqa: PLC0415

        print(version_text())  # noqa: T201  # the answer
        return 0
    from cordwood.surfaces.cli.main import app  # noqa: PLC0415  # signals come first

    try:
        app(arguments)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)  # noqa: T201  # as the interpreter would
            return FAILED
        return stop.code or 0
    return 0


def _tell(name: str, error: Exception) -> int:
    text, code = text_and_code(name, error)
    if os.environ.get(DEBUG_VARIABLE):
        import traceback  # noqa: PLC0415  # hardly ever

        traceback.print_exception(error)
        return code
    print(f"{name}: {text}", file=sys.stderr)  # noqa: T201  # the last line
    return code


def _open_missing_streams() -> None:
    """Opens descriptors 0 to 2 if they are closed, so that no other file gets their numbers.

    Writing to one that was closed fails, as it would without.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115  # as long as it runs
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names of files that are not UTF-8 go out as they came in.
        if isinstance(stream, io.TextIOWrapper):
            is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if is_utf8 else "replace")


def _drop_stdout() -> None:
    """Discards buffered output, so that the interpreter does not write to the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
