"""Processes that do not outlive the one that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil

from cordwood.surfaces.local_cluster.child_process import ChildProcess
from support.kafka import poll_until

WAIT_S = 30.0


def python(program: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(program)]


def started(program: str, log_file: Path) -> ChildProcess:
    """A process that has printed `ready`."""
    child = ChildProcess(python(program), log_file=log_file)
    poll_until(lambda: "ready" in child.log, timeout_s=WAIT_S, what="the start of a child")
    return child


SLEEPER = """
import time
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_its_output_is_in_the_file_and_its_exit_code_is_known(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_text("of an earlier start\n", encoding="utf-8")
    child = ChildProcess(python("print('hello'); raise SystemExit(3)"), log_file=log_file)
    assert child.wait(WAIT_S) == 3
    assert child.exit_code == 3
    assert child.log == "hello\n"
    assert child.end_of_log == "hello"
    assert log_file.read_text(encoding="utf-8") == "of an earlier start\nhello\n"


def test_it_takes_a_request_to_stop_though_it_is_suspended(tmp_path: Path) -> None:
    child = started(SLEEPER, tmp_path / "log")
    child.pause()
    process = psutil.Process(child.pid)
    poll_until(
        lambda: process.status() == psutil.STATUS_STOPPED, timeout_s=WAIT_S, what="it is suspended"
    )
    child.ask_to_stop()
    assert child.wait(WAIT_S) == -15


def test_to_kill_it_ends_what_it_has_started_too(tmp_path: Path) -> None:
    child = started(
        """
        import subprocess, sys, time
        below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("below", below.pid, "ready", flush=True)
        time.sleep(600)
        """,
        tmp_path / "log",
    )
    below = psutil.Process(int(child.log.split()[1]))
    child.kill()
    assert child.exit_code == -9
    poll_until(lambda: not below.is_running(), timeout_s=WAIT_S, what="the end of the grandchild")


def test_a_signal_to_the_process_group_does_not_reach_it(tmp_path: Path) -> None:
    child = started(SLEEPER, tmp_path / "log")
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
    finally:
        child.kill()


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    program = f"""
    import time
    from pathlib import Path
    from cordwood.surfaces.local_cluster.child_process import ChildProcess
    child = ChildProcess(["sleep", "600"], log_file=Path({str(tmp_path / "log")!r}))
    print(child.pid, flush=True)
    time.sleep(600)
    """
    with subprocess.Popen(python(program), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        poll_until(lambda: child.name() == "sleep", timeout_s=WAIT_S, what="the start of a child")
        parent.kill()
        poll_until(lambda: not child.is_running(), timeout_s=WAIT_S, what="the child's end")
