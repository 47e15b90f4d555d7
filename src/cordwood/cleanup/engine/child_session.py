"""Linux functions for processes that must not outlive the process that started them.

A child is started as the leader of a session of its own; all processes that it starts, directly or
not, stay in the session, even if their parent has changed. So the whole session can be ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cordwood.model.clock import SystemClock, pause

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_END_S = 10.0


def die_with(parent: int) -> None:
    """Lets the kernel kill this process when the thread of `parent` that started it ends.

    Raises:
        SystemExit: `parent` has ended already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def ignore_stop_signals() -> None:
    """Ignores signals to stop: the parent of this process ends it.

    A terminal, systemd and `timeout` send such a signal to every process of a group.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def adopt_orphans() -> None:
    """Makes this process the parent of every process below it whose own parent ends.

    So `end_descendants` finds all processes that this process has started, directly or not.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _Process(NamedTuple):
    """A process that has not ended yet."""

    pid: int
    parent: int
    session: int


def _processes() -> Iterator[_Process]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", entry, "stat").read_bytes()
                # The name is in parentheses, and may contain any.
                state, parent, _, session = stat[stat.rindex(b")") + 2 :].split()[:4]
                if state not in {b"Z", b"X"}:
                    yield _Process(int(entry), int(parent), int(session))


def members(session: int) -> list[int]:
    """The processes of a session that have not ended yet."""
    return [process.pid for process in _processes() if process.session == session]


def descendants() -> list[int]:
    """The processes that this one has started, and those that they have started."""
    children: dict[int, list[int]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    at = [os.getpid()]
    while at:
        below = children.get(at.pop(), [])
        found += below
        at += below
    return found


def end_descendants() -> bool:
    """Kills every process below this one; whether none is left. See `adopt_orphans`."""
    clock = SystemClock()
    deadline = clock.monotonic_s() + _END_S
    while clock.monotonic_s() < deadline:
        left = descendants()
        if not left:
            return True
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pause(0.005)
    return False


def end_session(session: int, *, sparing: int | None = None) -> bool:
    """Kills every process of a session but `sparing`; whether none is left.

    The session's leader must not have been waited for yet: its number could be another's.
    """
    clock = SystemClock()
    deadline = clock.monotonic_s() + _END_S
    while clock.monotonic_s() < deadline:
        left = [pid for pid in members(session) if pid != sparing]
        if not left:
            return True
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pause(0.005)
        for pid in left:
            if pid != session:  # the process that started it waits for that one
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # ours by now, if nobody else collects orphans
    return False
