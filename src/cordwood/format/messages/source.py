"""Python source that is put together line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Source:
    """Lines of a function's body, indented by the blocks that are open."""

    def __init__(self, head: str) -> None:
        self._lines = [head]
        self._depth = 1
        self._names = 0

    def add(self, *lines: str) -> None:
        """Appends lines at the current depth."""
        self._lines += ("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block: what is added inside is indented."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, base: str) -> str:
        """A new variable's name, which says what it is for."""
        self._names += 1
        return f"{base}{self._names}"

    def text(self) -> str:
        """The source."""
        return "\n".join(self._lines) + "\n"
