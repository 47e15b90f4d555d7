"""Commands that are stopped by signals: exit codes, last lines, and processes that are left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

BEGIN = (
    "import os, signal, subprocess, sys, threading, time\n"
    "from cordwood.surfaces.cli.stopping import STOPPING, StoppedError\n"
    "STOPPING.install()\n"
    "STOPPING.command('cordwood work', note='nothing is lost', ends_processes=True)\n"
    "def tell(number):\n"
    "    os.kill(os.getpid(), number)\n"
    "    threading.Event().wait(30)\n"
)
END = "STOPPING.end_now()\n"


def outcome(program: str, number: int, *arguments: str) -> tuple[int, Sequence[str]]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(int(number)), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_a_signal_has_an_exit_code_and_a_plain_line(number: int, code: int, how: str) -> None:
    program = "try:\n    tell(int(sys.argv[1]))\nexcept StoppedError:\n    pass\n" + END
    assert outcome(program, number) == (code, [f"cordwood work: {how}; nothing is lost"])


def test_every_process_below_is_ended_also_in_another_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "script = 'sleep 600 & echo $! >>$0; (sleep 600 & echo $! >>$0);'\n"
        "script += 'echo $$ >>$0; echo; wait'\n"
        "child = subprocess.Popen(['sh', '-c', script, sys.argv[2]], start_new_session=True,\n"
        "                         stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "try:\n    tell(int(sys.argv[1]))\nexcept StoppedError:\n    pass\n"
    ) + END
    code, _ = outcome(program, signal.SIGTERM, str(pids))
    assert code == 143
    started = pids.read_text().split()
    assert len(started) == 3
    for pid in started:
        # What was left of it may be collected at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            assert ") Z" in Path("/proc", pid, "stat").read_text()


def test_a_second_signal_ends_the_process() -> None:
    program = (
        "try:\n    tell(int(sys.argv[1]))\nexcept StoppedError:\n    tell(int(sys.argv[1]))\n"
        "threading.Event().wait(30)\n"
    )
    code, lines = outcome(program, signal.SIGINT)
    assert (code, lines) == (130, ["cordwood work: interrupted; nothing is lost"])


@pytest.mark.parametrize("times", [1, 3])
def test_an_exception_that_python_drops_is_raised_again_and_files_are_removed(times: int) -> None:
    program = (
        "class Dropping:\n"
        "    def __init__(self, number):\n"
        "        self.number = number\n"
        "    def __del__(self):\n"
        "        tell(self.number) if self.number else threading.Event().wait(30)\n"
        "try:\n"
        "    d = Dropping(int(sys.argv[1])); del d\n"
        "    for _ in range(int(sys.argv[2]) - 1):\n"
        "        d = Dropping(0); del d\n"
        "    threading.Event().wait(30)\n"
        "except StoppedError:\n"
        "    print('removed', file=sys.stderr)\n"
    ) + END
    code, lines = outcome(program, signal.SIGINT, str(times))
    assert (code, lines) == (130, ["removed", "cordwood work: interrupted; nothing is lost"])


def test_the_signal_that_comes_again_before_the_hook_of_dropped_exceptions_has_ended() -> None:
    program = (
        "from cordwood.surfaces.cli import stopping\n"
        "after, sent = stopping._after, threading.Event()\n"
        "def wait_until_sent(seconds, function):\n"
        "    after(seconds, lambda: (function(), sent.set()))\n"
        "    if not sent.is_set() and seconds < 1:\n"
        "        sent.wait(30)\n"
        "stopping._after = wait_until_sent\n"
        "class Dropping:\n"
        "    def __del__(self):\n"
        "        tell(int(sys.argv[1]))\n"
        "try:\n"
        "    d = Dropping(); del d\n"
        "    threading.Event().wait(30)\n"
        "except StoppedError:\n"
        "    print('removed', file=sys.stderr)\n"
    ) + END
    code, lines = outcome(program, signal.SIGINT)
    assert (code, lines) == (130, ["removed", "cordwood work: interrupted; nothing is lost"])


def test_a_signal_that_is_ignored_as_under_nohup_stays_ignored() -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from cordwood.surfaces.cli.stopping import STOPPING\n"
        "STOPPING.install()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_a_signal_in_the_middle_of_an_import_is_no_traceback() -> None:
    program = (
        "import types\n"
        "sys.modules['logging'] = types.ModuleType('logging')\n"
        "try:\n    tell(int(sys.argv[1]))\nexcept StoppedError:\n    pass\n"
    ) + END
    code, lines = outcome(program, signal.SIGTERM)
    assert (code, lines) == (143, ["cordwood work: stopped by SIGTERM; nothing is lost"])


def test_a_thread_that_fails_after_the_signal_prints_nothing() -> None:
    program = (
        "go = threading.Event()\n"
        "def fail():\n"
        "    go.wait(30)\n"
        "    raise ConnectionRefusedError('Connection refused')\n"
        "thread = threading.Thread(target=fail)\n"
        "thread.start()\n"
        "try:\n    tell(int(sys.argv[1]))\nexcept StoppedError:\n    go.set()\n    thread.join()\n"
    ) + END
    code, lines = outcome(program, signal.SIGTERM)
    assert (code, lines) == (143, ["cordwood work: stopped by SIGTERM; nothing is lost"])
