"""Duties of a container's first process, for the command that runs in it.

The kernel gives process 1 of a PID namespace two duties: the processes whose parents have ended
become its children, and stay as zombies until it waits for them; and a signal without a handler
does not end it. So the command runs as its child, as under the init programs of containers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from typing import Final

_SENT_BY_KERNEL: Final = 0x80
"""`si_code` of a signal that a terminal sends, to every process of its group."""

_OWN: Final = {
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS),
    *(signal.SIGTRAP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
}
"""Signals about this process itself, or its terminal: they are not handed on."""


def run_below_first_process() -> None:
    """Forks if this is process 1, and returns in the child; process 1 ends with the child's code.

    Elsewhere it does nothing. To be called before there are threads, and before the command has
    opened anything.
    """
    if os.getpid() != 1:
        return
    every = signal.valid_signals() - _OWN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, every)
    child = os.fork()
    if child:
        os._exit(_guard(child, every))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _guard(child: int, signals: Collection[int]) -> int:
    """Hands signals on and waits for processes until the child has ended; its exit code."""
    while True:
        came = signal.sigwaitinfo(signals)
        if came.si_signo != signal.SIGCHLD:
            if came.si_code != _SENT_BY_KERNEL:
                os.kill(child, came.si_signo)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
