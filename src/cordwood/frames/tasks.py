"""Puts parts of a table together: what one task reads, one part after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Part(Protocol):
    """A part of a table, of a known size."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are read, at most."""


P = TypeVar("P", bound=Part)


def tasks_of(parts: Sequence[P], task_bytes: int) -> list[tuple[P, ...]]:
    """The parts of each task, all in their order.

    A task reads no more than `task_bytes`, unless its only part does.
    """
    tasks: list[tuple[P, ...]] = []
    together: list[P] = []
    size_bytes = 0
    for part in parts:
        if together and size_bytes + part.size_bytes > task_bytes:
            tasks.append(tuple(together))
            together, size_bytes = [], 0
        together.append(part)
        size_bytes += part.size_bytes
    if together:
        tasks.append(tuple(together))
    return tasks
