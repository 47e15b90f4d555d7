"""Cleans or erases in a child process that is killed at the n-th change it makes to files.

Every method of `cordwood.storage.filesystem` that changes something on disk, or makes it last,
counts as a step, whether the log's owner calls it or a task. Which of the two is to be killed is
chosen, because tasks run beside the owner: each side's steps come in the same order every time.

The children are forks of a small process, which is started for that: a fork of a test process,
which may have a gigabyte, takes longer than the cleaning.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from cordwood.configs.log_config import LogConfig
from cordwood.format.varint import Buffer
from cordwood.storage.filesystem import DirectoryLock, OsFile, OsFileSystem
from support.erasing import erase_here
from support.erasing_online import erase_running_here, running_logs
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS

OWNER, TASK = "owner", "task"

# `OsFile.write_at` is wrapped on its own: there the process dies in the middle.
_METHODS: tuple[tuple[type, str], ...] = (
    (OsFileSystem, "create"),
    (OsFileSystem, "make_directory"),
    (OsFileSystem, "remove"),
    (OsFileSystem, "remove_directory"),
    (OsFileSystem, "rename"),
    (OsFileSystem, "set_modified"),
    (OsFileSystem, "sync_directory"),
    (OsFileSystem, "take_after"),
    (OsFile, "sync"),
    (OsFile, "truncate"),
    (DirectoryLock, "release"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of a child: killed, or after so many steps of the owner and of tasks."""

    killed: bool
    steps: dict[str, int]


class _Steps:
    """Counts steps, and ends the process at the one that was asked for."""

    def __init__(self, side: str, kill_at: int) -> None:
        self.counts = {OWNER: 0, TASK: 0}
        self._side = side
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def is_last(self) -> bool:
        """Counts one; whether the process is to die in it."""
        side = OWNER if threading.current_thread() is threading.main_thread() else TASK
        with self._lock:
            self.counts[side] += 1
            return side == self._side and self.counts[side] == self._kill_at

    def step(self) -> None:
        """Counts one, and dies before it is taken."""
        if self.is_last():
            os.kill(os.getpid(), signal.SIGKILL)


def _counted(function: Callable[..., Any], steps: _Steps) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        steps.step()
        return function(*args, **options)

    return counted


def _instrument(steps: _Steps) -> None:
    for owner, name in _METHODS:
        setattr(owner, name, _counted(getattr(owner, name), steps))
    write_at = OsFile.write_at

    def write_half(self: OsFile, parts: Sequence[Buffer], position: int) -> None:
        if steps.is_last():
            whole = b"".join(parts)
            write_at(self, [whole[: len(whole) // 2]], position)
            os.kill(os.getpid(), signal.SIGKILL)
        write_at(self, parts, position)

    OsFile.write_at = write_half  # type: ignore[method-assign]


def clean_here(log_dir: Path, configs: Mapping[str, LogConfig], *, now_ms: int) -> list[str]:
    """Cleans in this process, whatever the dirty ratio; what failed and why."""
    report = clean_in_process(log_dir, configs, now_ms=now_ms, force=True)
    return [f"{p.topic}-{p.partition}: {p.reason}" for p in report.failed]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A cleaning in a child that dies at step `kill_at` of `side`; in the parent itself if None."""

    log_dir: Path
    configs: Mapping[str, LogConfig]
    now_ms: int
    side: str = OWNER
    kill_at: int | None = None
    erased: tuple[str, ...] = ()
    is_online: bool = False

    def work(self) -> list[str]:
        """Cleans, or erases from some topics; what failed and why."""
        if self.is_online:
            (topic,) = self.erased
            with running_logs(self.log_dir, self.configs) as logs:
                result = erase_running_here(logs, topic)
            return [f"{name}: {why}" for name, why in result.failed.items()]
        if self.erased:
            result = erase_here(
                self.log_dir, *self.erased, configs=self.configs, now_ms=self.now_ms
            )
            return [f"{name}: {why}" for name, why in result.failed.items()]
        return clean_here(self.log_dir, self.configs, now_ms=self.now_ms)


class KillableCleanings:
    """The process that forks a child for each cleaning; a context manager that ends it."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            # Not with `-m`: what a module pickles as `__main__`, another process cannot load.
            program = "import support.killing; support.killing.main()"
            command = [sys.executable, "-c", program, str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.wait()

    def load(self, log_dir: Path, configs: Mapping[str, LogConfig], *, now_ms: int) -> None:
        """Cleans in the parent: what a cleaning imports is loaded once, not in every child."""
        self._ask(_Job(log_dir=log_dir, configs=configs, now_ms=now_ms))

    def clean(
        self,
        log_dir: Path,
        configs: Mapping[str, LogConfig],
        *,
        now_ms: int,
        side: str = OWNER,
        kill_at: int = 0,
    ) -> Ended:
        """Cleans in a child that dies at step `kill_at` of `side`; 0 lets it live.

        Raises:
            AssertionError: the child failed, other than by being killed.
        """
        return self._ask(
            _Job(log_dir=log_dir, configs=configs, now_ms=now_ms, side=side, kill_at=kill_at)
        )

    def erase(
        self,
        log_dir: Path,
        topic: str,
        configs: Mapping[str, LogConfig],
        *,
        side: str = OWNER,
        kill_at: int | None = 0,
        is_online: bool = False,
    ) -> Ended:
        """Erases `support.erasing.KEY` from a topic, as `clean` cleans; None is for `load`.

        With `is_online`, `log_dir` is above the log directory of logs that run.
        """
        return self._ask(
            _Job(
                log_dir=log_dir,
                configs=configs,
                now_ms=NOW_MS,
                side=side,
                kill_at=kill_at,
                erased=(topic,),
                is_online=is_online,
            )
        )

    def _ask(self, job: _Job) -> Ended:
        self._connection.send(job)
        ended = self._connection.recv()
        assert isinstance(ended, Ended), ended
        return ended


def _clean_in_child(job: _Job) -> Ended | str:
    """Cleans in a child; returns its end, or its failure."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the parent may happen in the child, whatever goes wrong.
        status = 1
        try:
            os.close(reader)
            steps = _Steps(job.side, job.kill_at or 0)
            _instrument(steps)
            failed = job.work()
            words = f"{steps.counts[OWNER]} {steps.counts[TASK]} {'; '.join(failed)}"
            os.write(writer, words.encode())
            status = 0
        except BaseException as error:
            os.write(writer, f"-1 -1 {type(error).__name__}: {error}".encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL:
        return Ended(killed=True, steps={})
    if code < 0:
        return f"ended by signal {-code}"
    owner, task, problems = said.split(" ", 2)
    if problems or code:
        return problems or f"exit code {code}"
    return Ended(killed=False, steps={OWNER: int(owner), TASK: int(task)})


def _clean_in_parent(job: _Job) -> Ended | str:
    failed = job.work()
    # A collection in a child would write to, and so copy, the memory it shares with this process.
    gc.collect()
    gc.freeze()
    return "; ".join(failed) or Ended(killed=False, steps={})


def main() -> None:
    """The process that `KillableCleanings` starts: ends when its connection is closed."""
    with Connection(int(sys.argv[1])) as connection:
        while True:
            try:
                job: _Job = connection.recv()
            except EOFError:
                return
            run = _clean_in_parent if job.kill_at is None else _clean_in_child
            connection.send(run(job))
