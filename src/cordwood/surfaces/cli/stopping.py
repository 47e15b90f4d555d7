"""Stops a command on Ctrl-C, SIGTERM, or when its terminal is closed.

The first signal ends every process that the command has started, and raises `StoppedError` in the
main thread, so that files are closed and temporary files are removed. Where Python drops the
exception, such as in a finalizer or a callback of an import, it is raised again soon. A second
signal, or a shutdown that takes longer than `_END_S`, ends the process immediately.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from cordwood.model.held_signals import STOP_SIGNALS

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_END_S: Final = 10.0
_AGAIN_S: Final = 0.01
_SHOW_CURSOR: Final = b"\x1b[?25h"


class StoppedError(KeyboardInterrupt):
    """A signal stopped the command."""


class Stopping:
    """The signal handling of one process; the main thread must call `install`."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that stopped the command; None while it runs."""
        self._name = "cordwood"
        self._note = ""
        self._first: Callable[[], object] = lambda: None
        self._stderr = 2
        self._is_installed = False
        self._is_dropped = False

    def install(self) -> None:
        """Installs the signal handlers; ignored signals, as under nohup, stay ignored."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        # Spark's start redirects the process's stderr.
        self._stderr = os.dup(2)
        self._is_installed = True

    def command(self, name: str, *, note: str = "", ends_processes: bool = False) -> None:
        """Sets the command that runs.

        Args:
            name: shown before the message.
            note: text of the message after the signal's name.
            ends_processes: whether a signal ends every process that this one has started.
        """
        self._name, self._note = name, note
        if ends_processes and self._is_installed:
            from cordwood.cleanup.engine.child_session import (  # noqa: PLC0415  # signals come first
                adopt_orphans,
                end_descendants,
            )

            adopt_orphans()
            self._first = end_descendants

    @property
    def exit_code(self) -> int:
        """The exit code of a process stopped by the signal, as shells report it."""
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

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_dropped:
            if _is_in(frame, Stopping._unraisable.__code__):  # Python would drop it there, too
                self._raise_again()
                return
            self._is_dropped = False
            self._first()  # processes that started in between
            raise StoppedError
        if self.signal is not None:
            self._first()
            self.end_now()
        self.signal = number
        _silence()
        sys.unraisablehook = self._unraisable
        _after(_END_S, self.end_now)
        self._first()
        raise StoppedError

    def _unraisable(self, unraisable: UnraisableHookArgs) -> None:
        """Has a StoppedError that Python dropped raised again, by a signal to the main thread."""
        if issubclass(unraisable.exc_type, StoppedError):
            self._is_dropped = True
            self._raise_again()

    def _raise_again(self) -> None:
        number, main = self.signal, threading.main_thread().ident
        assert number is not None, "the command was stopped"
        assert main is not None, "the main thread runs"
        _after(_AGAIN_S, lambda: signal.pthread_kill(main, number))


def _after(seconds: float, function: Callable[[], object]) -> None:
    def wait() -> None:
        threading.Event().wait(seconds)
        function()

    # threading.Timer.start() waits for its thread, and the signal would come in that wait.
    _thread.start_new_thread(wait, ())


def _is_in(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _silence() -> None:
    """Hides errors that threads and libraries report about ended processes and sockets."""
    # A signal may come before logging is imported, or in the middle of it.
    disable = getattr(sys.modules.get("logging"), "disable", None)
    if disable is not None:
        disable()
    threading.excepthook = lambda _: None


STOPPING: Final = Stopping()
