"""Planting of a bug: a context manager that replaces a function while a seed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A function or method of a module or class is another one."""
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def all_of(*each: AbstractContextManager[None]) -> Iterator[None]:
    """Several functions are others."""
    with ExitStack() as stack:
        for one in each:
            stack.enter_context(one)
        yield


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, and the first seed in which a checker finds it; None if none does."""

    put_in: Callable[[], AbstractContextManager[None]]
    seed: int | None
