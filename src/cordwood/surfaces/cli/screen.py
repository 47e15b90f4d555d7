"""Standard error as people see it: lines, and below them progress bars, on one console.

A line that is written while bars are shown goes above them. Where standard error is not a terminal
there are no bars, no colours and no wrapping.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import Progress, ProgressColumn

from cordwood.surfaces.cli.tables import text_lines


class Screen:
    """A context manager with a file handle of its own, as Spark's start silences the process's."""

    def __init__(self, stream: TextIO | None = None, *, width: int | None = None) -> None:
        """Writes to standard error, or to a stream."""
        self._own: TextIO | None = None
        if stream is None:
            stream = self._own = _own_stderr()
        self._stream = stream or sys.stderr
        self.console = Console(
            file=self._stream, highlight=False, markup=False, emoji=False, width=width
        )
        self._lock = threading.Lock()
        self._has_bars = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._own is not None:
            self._own.close()

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal, which can show a bar."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def line(self, text: str, *, style: str | None = None) -> None:
        """Writes a line, above the bars if there are any; the style is used on a terminal only."""
        if self._has_bars or self.is_terminal:
            for each in text_lines(text, width=self.console.width):
                self.console.print(each, style=style, soft_wrap=True)
            return
        with self._lock:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    @contextmanager
    def bars(self, *columns: ProgressColumn | str, transient: bool = False) -> Iterator[Progress]:
        """Shows bars until the context ends; text written to `sys.stderr` appears above them."""
        with Progress(*columns, console=self.console, transient=transient) as progress:
            self._has_bars = True
            try:
                yield progress
            finally:
                self._has_bars = False


def _own_stderr() -> TextIO | None:
    try:
        handle = os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # a test has replaced the stream
        return None
    return os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")
