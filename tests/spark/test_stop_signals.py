"""`cordwood clean` on Spark, stopped by signals at any moment: what it says and what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from cordwood.cleanup.engine.run_directory import remove_leftovers
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.spark

_SECONDS_MAX = 600.0
_MARK = "CORDWOOD_TEST_MARK"
_LAST = {
    signal.SIGINT: "cordwood clean: interrupted; replaced segments are kept, the next run "
    "continues",
    signal.SIGTERM: "cordwood clean: stopped by SIGTERM; replaced segments are kept, the next "
    "run continues",
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = LogBuilder("t-0")
    for segment in range(10):
        for number in range(50):
            log.batch([(b"%d" % (number * 20 + key + segment), b"v" * 60) for key in range(20)])
        log.roll()
    log.put(b"end", b"v")
    return write_log_dir(tmp_path_factory.mktemp("stopped") / "before", [log])


class Run(NamedTuple):
    """A command in a process group of its own, and where its temporary files are."""

    process: subprocess.Popen[str]
    mark: str
    temporary: Path

    def processes(self) -> dict[int, bytes]:
        """Processes of the command that have not ended, with their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes()
        return found

    def runs(self, *words: bytes) -> bool:
        """Whether a process with these words in its command line runs."""
        lines = self.processes().values()
        return any(all(word in line for word in words) for line in lines)


@pytest.fixture
def run(before: Path, tmp_path: Path) -> Iterator[Run]:
    logs = shutil.copytree(before, tmp_path / "logs")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = f"{_MARK}={tmp_path}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "cordwood", "clean", str(logs), "--force", "--json"),
            *("--now", str(NOW_MS), "--set", "t:cleanup.policy=compact", "--master", "local[2]"),
            *("--throttle", "100K"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {_MARK: str(tmp_path), "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    running = Run(process, mark, temporary)
    yield running
    for pid in running.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def until(is_true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def require_gone(run: Run, number: signal.Signals) -> None:
    """Nothing is left, and what is said is plain."""
    _, words = run.process.communicate(timeout=_SECONDS_MAX)
    assert run.processes() == {}
    assert words.splitlines() == [_LAST[number]]
    assert run.process.returncode == 128 + number
    assert list(run.temporary.iterdir()) == []


WORKERS = b"-m\0cordwood.cleanup.engine.spark.daemon"
MOMENTS = {
    "the daemon starts": [b"cordwood.cleanup.engine.spark.warm_daemon"],
    "the virtual machine starts": [b"java", b"PythonGatewayServer"],
    "workers run": [WORKERS],
}


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_an_interrupt_while_spark_starts_or_works_leaves_nothing(run: Run, moment: str) -> None:
    until(lambda: run.runs(*MOMENTS[moment]), run.process)
    os.killpg(run.process.pid, signal.SIGINT)
    require_gone(run, signal.SIGINT)


@pytest.mark.parametrize("moment", MOMENTS)
def test_spark_ends_after_a_killed_run_though_the_next_run_removes_leftovers(
    run: Run, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    until(lambda: run.runs(*MOMENTS[moment]), run.process)
    run.process.kill()
    run.process.communicate(timeout=_SECONDS_MAX)
    monkeypatch.setattr(tempfile, "tempdir", str(run.temporary))
    deadline = time.monotonic() + _SECONDS_MAX
    # A process shows no environment for a moment while it becomes another program.
    while run.processes() or list(run.temporary.iterdir()):
        remove_leftovers()
        assert time.monotonic() < deadline, run.processes()
        time.sleep(0.01)


def test_a_signal_to_every_process_at_once_is_told_as_such(run: Run) -> None:
    until(lambda: run.runs(WORKERS), run.process)
    for pid in sorted(run.processes(), reverse=True):  # as systemd does: Spark's come first
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    require_gone(run, signal.SIGTERM)


def has_block_managers_files(directory: Path) -> bool:
    # Not by rglob, which fails where a directory is removed meanwhile.
    names = (name for _, below, _ in os.walk(directory) for name in below)
    return any(name.startswith("blockmgr-") for name in names)


def test_temporary_files_of_a_run_are_in_its_directory(run: Run) -> None:
    until(lambda: run.runs(WORKERS), run.process)
    (directory,) = run.temporary.iterdir()
    assert directory.name.startswith("cordwood-run-")
    until(lambda: has_block_managers_files(directory), run.process)
    os.killpg(run.process.pid, signal.SIGTERM)
    require_gone(run, signal.SIGTERM)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ms", range(200, 6_001, 100))
def test_a_signal_at_any_moment_leaves_nothing(run: Run, number: signal.Signals, ms: int) -> None:
    time.sleep(ms / 1000)
    os.killpg(run.process.pid, number)
    run.process.wait(_SECONDS_MAX)
    assert run.processes() == {}
    assert run.process.returncode in {128 + number, -number}  # before Python has started
    assert list(run.temporary.iterdir()) == []
