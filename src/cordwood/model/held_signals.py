"""Holds signals back for a moment, so that a command is not stopped in the middle of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: What stops a command: Ctrl-C, a service manager, a terminal that is closed.
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """Defers the first of `STOP_SIGNALS` that arrives in the block until the end of the block.

    A second signal is handled immediately: the step may wait for a disk that does not respond.
    Outside the main thread this does nothing: Python handles signals in the main thread.

    Raises:
        BaseException: the exception of the signal's handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    held: list[tuple[int, FrameType | None]] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append((number, frame))
        if len(held) > 1:
            release()

    def release() -> None:
        for number, handler in handled.items():
            signal.signal(number, handler)
        while held:
            held_number, frame = held.pop(0)
            handled[signal.Signals(held_number)](held_number, frame)

    try:
        for number in handled:
            signal.signal(number, hold)
        yield
    finally:
        release()
