"""A bar for copied bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cordwood.surfaces.cli.screen import Screen


@contextmanager
def byte_display(screen: Screen, what: str, *, shown: bool) -> Iterator[ByteProgress]:
    """A bar on a terminal, gone when the context ends, or a listener that shows nothing."""
    if not (shown and screen.is_terminal):
        yield ByteProgress(None, what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with screen.bars(*columns, transient=True) as progress:
        yield ByteProgress(progress, what)


class ByteProgress:
    """A listener to a copy; shows nothing without bars."""

    def __init__(self, progress: Progress | None, what: str) -> None:
        self._progress = progress
        self._row = None if progress is None else progress.add_task(what, total=None)

    def begin(self, total_bytes: int) -> None:
        """Takes the number of bytes that will be copied."""
        if self._progress is not None and self._row is not None:
            self._progress.update(self._row, total=total_bytes)

    def advance(self, size_bytes: int) -> None:
        """Adds bytes that were read."""
        if self._progress is not None and self._row is not None:
            self._progress.update(self._row, advance=size_bytes)
