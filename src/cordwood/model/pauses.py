"""Points in long-running work at which other work may run first.

Code that may run for long calls `pause` in its loops, and does blocking work that does not use the
broker's state in a `background` block. Both have an effect only on a thread on which
`cordwood.serving.slices` runs a request's work; elsewhere they do nothing. Never call either while
holding a lock: the other work may need that lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol, TypeVar

T = TypeVar("T")


class Pausing(Protocol):
    """Work that can be interrupted."""

    def pause(self) -> None:
        """Lets others go first if the work has run for long enough."""

    def leave(self) -> None:
        """Lets other work run while this work does not use shared state."""

    def come_back(self) -> None:
        """Waits until the work may use the shared state again."""


class _Here(threading.local):
    work: Pausing | None = None


_here = _Here()


@contextmanager
def running(work: Pausing | None) -> Iterator[None]:
    """Connects `pause` and `background` on this thread to `work`, or disables them if None."""
    before, _here.work = _here.work, work
    try:
        yield
    finally:
        _here.work = before


def is_pausing() -> bool:
    """Whether `pause` has an effect on this thread."""
    return _here.work is not None


def pause() -> None:
    """Lets other work go first if this work has run for long enough.

    Shared state may have changed when it returns.
    """
    work = _here.work
    if work is not None:
        work.pause()


@contextmanager
def background() -> Iterator[None]:
    """A block of work that uses no shared state: the event loop runs in the meantime."""
    work = _here.work
    if work is None:
        yield
        return
    work.leave()
    _here.work = None
    try:
        yield
    finally:
        _here.work = work
        work.come_back()


def in_steps(items: Iterable[T], *, every: int = 1) -> Iterator[T]:
    """The items, with a pause after every `every` of them: more than one if a step is short."""
    return iter(items) if _here.work is None else _with_pauses(items, every)


def _with_pauses(items: Iterable[T], every: int) -> Iterator[T]:
    source = iter(items)
    while few := list(islice(source, every)):
        yield from few
        pause()
