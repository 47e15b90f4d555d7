"""`cordwood` as process 1 of a container: signals, zombies, exit codes, and what is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.container import contained, require_containers
from support.kafka import poll_until
from support.ports import free_port
from support.wire import ConnectionClosedError, Wire

_WAIT_S = 120.0
ORPHANS = """
import os, sys
from pathlib import Path
from cordwood.surfaces.cli.first_process import run_below_first_process
run_below_first_process()
assert os.getpid() != 1
for _ in range(3):  # each has a child that outlives it, which process 1 gets
    if os.fork() == 0:
        if os.fork() == 0:
            os.read(0, 1)
        os._exit(0)
    os.wait()
print("orphans", flush=True)
sys.stdin.close()
def states():
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            found.append(each.joinpath("stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            pass
    return found
while len(left := states()) > 2:
    os.sched_yield()
print(*left)
"""
ENDING = """
import os, sys
from cordwood.surfaces.cli.first_process import run_below_first_process
run_below_first_process()
os.kill(os.getpid(), 9) if sys.argv[1] == "killed" else sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module", autouse=True)
def _containers() -> None:
    require_containers()


def test_the_first_process_waits_for_the_children_of_others() -> None:
    done = subprocess.run(
        contained(sys.executable, "-c", ORPHANS),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )
    assert done.stdout.splitlines()[0] == "orphans", done.stderr
    assert len(done.stdout.splitlines()) == 2, done.stderr
    assert "Z" not in done.stdout.splitlines()[1], "only process 1 and the command are left"


@pytest.mark.parametrize(("how", "code"), [("0", 0), ("3", 3), ("killed", 137)])
def test_the_first_process_ends_with_the_code_of_the_command(how: str, code: int) -> None:
    command = contained(sys.executable, "-c", ENDING, how)
    assert subprocess.run(command, timeout=_WAIT_S, check=False).returncode == code


def test_serve_runs_and_stops_as_the_first_process_of_a_bare_container(tmp_path: Path) -> None:
    logs, scratch, log = tmp_path / "logs", tmp_path / "tmp", tmp_path / "log"
    logs.mkdir()
    scratch.mkdir()
    port = free_port()
    serve = (sys.executable, "-m", "cordwood", "serve", "--log-dir", str(logs))
    command = contained(
        *("env", f"TMPDIR={scratch}", *serve, "--port", str(port), "--http-port", "0"),
        writable=(logs, scratch),
    )
    with log.open("wb") as out:
        outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        poll_until(lambda: _answers(outer, port, log), timeout_s=_WAIT_S, what="the start")
        (first,) = _children(outer.pid)
        (command_pid,) = _children(first)
        assert _pid_inside(first) == 1
        assert Path(f"/proc/{command_pid}/stat").exists()
        os.kill(first, signal.SIGTERM)
        assert outer.wait(_WAIT_S) == 0, log.read_text()
    finally:
        outer.kill()
        outer.wait()
    assert "Shut down completed" in log.read_text()
    assert (logs / ".kafka_cleanshutdown").exists()


def test_a_signal_during_the_imports_ends_the_first_process(tmp_path: Path) -> None:
    """Without a handler the kernel drops what is sent to process 1."""
    command = contained(
        *(sys.executable, "-c"),
        "from cordwood.surfaces.cli.first_process import run_below_first_process\n"
        "run_below_first_process()\n"
        "import os, signal\n"
        "os.kill(1, signal.SIGTERM)\n"
        "signal.pause()\n",
    )
    assert subprocess.run(command, timeout=_WAIT_S, check=False, cwd=tmp_path).returncode == 143


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with Wire(port, timeout_s=5) as wire:
            return bool(wire.versions())
    except (ConnectionClosedError, OSError):
        return False


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _pid_inside(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("NSpid:")]
    return int(line.split()[-1])
