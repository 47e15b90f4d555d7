"""Processes that must not outlive the one that started them: Linux's means to see to it.

A child is started as the leader of a session of its own; whatever it starts, and what that starts,
stays in the session, whoever is its parent by then. So a whole session can be ended for certain.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

from cordwood.model.clock import SystemClock, pause

_PR_SET_PDEATHSIG = 1
_END_S = 10.0


def die_with(parent: int) -> None:
    """Has this process killed when the thread of `parent` that started it ends.

    Raises:
        SystemExit: `parent` is gone already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def members(session: int) -> list[int]:
    """The processes of a session that have not ended yet."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", entry, "stat").read_bytes()
                # The name is in parentheses, and may contain any.
                state, _, _, sid = stat[stat.rindex(b")") + 2 :].split()[:4]
                if int(sid) == session and state not in {b"Z", b"X"}:
                    found.append(int(entry))
    return found


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
            if pid != session:  # that one is waited for by whoever started it
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # ours by now, if nobody else collects orphans
    return False
