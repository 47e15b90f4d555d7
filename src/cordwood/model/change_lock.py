"""A lock for changes made in several slices (`model.pauses`): one change after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from cordwood.model import pauses

T = TypeVar("T")
P = ParamSpec("P")


class ChangeLock:
    """Runs changes one after another, in the order of the requests, each in several slices.

    Work in slices waits for its turn. Other work must find the lock free; the lock is free unless a
    change is between two slices.
    """

    def __init__(self) -> None:
        self._owner: int | None = None
        self._depth = 0
        self._waiting: deque[tuple[int, threading.Event]] = deque()

    @property
    def is_held(self) -> bool:
        """Whether a change is under way."""
        return self._owner is not None

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner is not None and self._owner != me:
            assert pauses.is_pausing(), "a change outside of slices while another is under way"
            mine = threading.Event()
            self._waiting.append((me, mine))
            with pauses.background():
                mine.wait()
            assert self._owner == me
        self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        if self._waiting:  # it is that one's from now on: nobody comes between
            self._owner, event = self._waiting.popleft()
            event.set()


class _Changing(Protocol):
    @property
    def between_changes(self) -> ChangeLock:
        """Held by each change."""


C = TypeVar("C", bound=_Changing)


def one_at_a_time(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[C, P], T]:
    """Decorates a method that holds its object's `between_changes` from beginning to end."""

    @wraps(method)
    def change(self: C, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.between_changes:
            return method(self, *args, **kwargs)

    return change  # type: ignore[return-value]  # what wraps gives is callable alike
