"""Cleans a log directory in a child process that is killed at the n-th change it makes to files.

Every method of `cordwood.storage.filesystem` that changes something on disk, or makes it last,
counts as a step, whether the log's owner calls it or a task. Which of the two is to be killed is
chosen, because tasks run beside the owner: each side's steps come in the same order every time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.format.varint import Buffer
from cordwood.model.config import LogConfig
from cordwood.storage.filesystem import DirectoryLock, OsFile, OsFileSystem
from support.in_process_engine import clean_in_process

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
    """How a child ended: killed, or after so many steps of the owner and of tasks."""

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


def clean_killed(
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
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the test runner may happen in the child, whatever goes wrong.
        status = 1
        try:
            os.close(reader)
            steps = _Steps(side, kill_at)
            _instrument(steps)
            failed = clean_here(log_dir, configs, now_ms=now_ms)
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
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return Ended(killed=True, steps={})
    owner, task, problems = said.split(" ", 2)
    assert os.waitstatus_to_exitcode(status) == 0, problems
    assert not problems, problems
    return Ended(killed=False, steps={OWNER: int(owner), TASK: int(task)})
