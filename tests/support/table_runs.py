"""Runs of `cordwood table` in children that are ended by a signal at a chosen moment.

A child is forked of a process that has imported everything and used nothing of Delta, whose threads
would not be in the child.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from typing import Self

from cordwood.frames.options import parse_options
from cordwood.frames.records import RECORDS
from cordwood.tables.report import TableRequest
from cordwood.tables.update import update_table
from cordwood.testing.manual_clock import ManualClock
from support.log_builder import NOW_MS


class KillableRuns:
    """The process that forks a child for each run; a context manager that ends it."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            program = "import support.table_runs; support.table_runs.main()"
            command = [sys.executable, "-c", program, str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.wait()

    def run(self, request: TableRequest, *, end_after_s: float = 0.0) -> bool:
        """Brings a table up to date; whether the run was ended before it was done.

        Args:
            request: of the run.
            end_after_s: when the child is ended, 0 to let it live.

        Raises:
            AssertionError: the run failed by itself.
        """
        self._connection.send((request, end_after_s))
        code = self._connection.recv()
        assert code in {0, -signal.SIGALRM}, f"the child ended with {code}"
        return bool(code)


def _run_in_child(request: TableRequest, end_after_s: float) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # Its action by default ends the process at once, as SIGKILL does.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, end_after_s)
            update_table(request, clock=ManualClock(NOW_MS))
            signal.setitimer(signal.ITIMER_REAL, 0)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _load(request: TableRequest) -> None:
    """Reads the logs here: what that needs is then loaded in every child."""
    options = parse_options({"paths": json.dumps([str(each) for each in request.log_dirs])})
    for part in RECORDS.parts(options, options.wanted):
        for _ in RECORDS.batches(part, options):
            pass


def main() -> None:
    """The process that `KillableRuns` starts: ends when its connection is closed."""
    is_loaded = False
    with Connection(int(sys.argv[1])) as connection:
        while True:
            try:
                request, end_after_s = connection.recv()
            except EOFError:
                return
            if not is_loaded:
                _load(request)
                is_loaded = True
            connection.send(_run_in_child(request, end_after_s))
