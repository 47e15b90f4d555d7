"""A bar for copied bytes."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


def columns() -> tuple[ProgressColumn, ...]:
    """The columns of the bar."""
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )


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
