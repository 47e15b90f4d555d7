"""How a command ends when it is told to stop: Ctrl-C, SIGTERM, or a terminal that is closed.

The first signal ends every process that the command has started, and raises `StoppedError` in the
main thread, so that files are closed and temporary files are removed. A second signal, or an end
that takes longer than `_END_S`, ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from cordwood.model.held_signals import STOP_SIGNALS

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_END_S: Final = 10.0
_SHOW_CURSOR: Final = b"\x1b[?25h"


class StoppedError(KeyboardInterrupt):
    """The command was told to stop by a signal."""


class Stopping:
    """The signals of one process: `install` has to be called by its main thread."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that stopped the command; None while it runs."""
        self._name = "cordwood"
        self._note = ""
        self._first: Callable[[], object] = lambda: None
        self._stderr = 2
        self._is_installed = False

    def install(self) -> None:
        """Has signals stop the command; those that are ignored, as under nohup, stay so."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        # Spark's start redirects the process's stderr.
        self._stderr = os.dup(2)
        self._is_installed = True

    def command(self, name: str, *, note: str = "", ends_processes: bool = False) -> None:
        """Says which command runs.

        Args:
            name: shown before the message.
            note: what the message says beside which signal it was.
            ends_processes: a signal ends every process that this one has started.
        """
        self._name, self._note = name, note
        if ends_processes and self._is_installed:
            from cordwood.cleanup.child_session import (  # noqa: PLC0415  # signals come first
                adopt_orphans,
                end_descendants,
            )

            adopt_orphans()
            self._first = end_descendants

    @property
    def exit_code(self) -> int:
        """That of a process that was stopped by the signal, as shells report it."""
        assert self.signal is not None, "it was stopped"
        return 128 + self.signal

    def message(self) -> str:
        """The last line of a command that was stopped."""
        how = {signal.SIGINT: "interrupted", signal.SIGHUP: "stopped by SIGHUP"}.get(
            signal.Signals(self.signal or signal.SIGTERM), "stopped by SIGTERM"
        )
        return f"{self._name}: {how}{f'; {self._note}' if self._note else ''}"

    def end_now(self) -> NoReturn:
        """Shows the message and ends the process without running anything else."""
        cursor = _SHOW_CURSOR if os.isatty(self._stderr) else b""
        with suppress(OSError):  # nobody reads it
            os.write(self._stderr, cursor + self.message().encode() + b"\n")
        os._exit(self.exit_code)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            self._first()
            self.end_now()
        self.signal = number
        _silence()
        sys.unraisablehook = self._unraisable
        timer = threading.Timer(_END_S, self.end_now)
        timer.daemon = True
        timer.start()
        self._first()
        raise StoppedError

    def _unraisable(self, unraisable: UnraisableHookArgs) -> None:
        """A StoppedError that was raised where Python drops it, such as in a finalizer."""
        if issubclass(unraisable.exc_type, StoppedError):
            self.end_now()


def _silence() -> None:
    """Drops what threads and libraries report of processes and sockets that are gone."""
    # A signal may come before logging is imported, or in the middle of it.
    disable = getattr(sys.modules.get("logging"), "disable", None)
    if disable is not None:
        disable()
    threading.excepthook = lambda _: None


STOPPING: Final = Stopping()
