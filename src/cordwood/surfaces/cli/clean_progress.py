"""The progress of `cordwood clean` on a terminal: a row for each phase; rows are never removed.

Rows of finished phases remain; of compactions, which may be many, only the last few remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.text import Text

_ROWS_MAX: Final = 8
_ESTIMATED_FROM: Final = 0.1


class _PercentColumn(ProgressColumn):
    """The percentage done; empty while the length of a phase is unknown."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        return Text("" if task.total is None else f"{task.percentage:>3.0f}%")


class _CountColumn(ProgressColumn):
    """Bytes per second if bytes are counted, else the count and the total, if known."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = TransferSpeedColumn()

    def render(self, task: Task) -> Text:
        """The column's text."""
        if task.fields.get("in_bytes"):
            has_speed = (task.finished_speed or task.speed) is not None
            return self._bytes.render(task) if has_speed else Text("")
        if not task.fields.get("is_counted"):
            return Text("")
        return Text(f"{task.completed:.0f}/{task.total:.0f}")


class _TimeLeftColumn(ProgressColumn):
    """Time left for a row that is estimated, shown once a tenth of it is done."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        share = task.completed / task.total if task.total else 0.0
        if not task.fields.get("is_estimated") or not _ESTIMATED_FROM <= share < 1.0:
            return Text("")
        left_s = round((task.elapsed or 0.0) * (1.0 - share) / share)
        return Text(f"{left_s // 3600}:{left_s // 60 % 60:02}:{left_s % 60:02} left")


def columns() -> tuple[ProgressColumn, ...]:
    """The columns of a row."""
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        _PercentColumn(),
        _CountColumn(),
        TimeElapsedColumn(),
        _TimeLeftColumn(),
    )


class CleanProgress:
    """A listener to the progress of a cleaning and its engine; shows nothing without bars."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._phase = ""
        self._row: TaskID | None = None
        self._compactions: dict[str, TaskID] = {}
        self._finished: list[TaskID] = []
        self._passes: dict[str, int] = {}
        self._overall: TaskID | None = None

    def say(self, phase: str) -> None:
        """A phase of unknown length begins."""
        self._open(phase, None)

    def begin(self, phase: str, total: int) -> None:
        """A phase over `total` partitions begins."""
        if total:
            self._open(phase, total)

    def advance(self, name: str) -> None:
        """Counts one finished partition of the phase."""
        if self._progress is not None and self._row is not None:
            self._progress.update(self._row, advance=1, description=f"{self._phase} {name}")

    def bytes_done(self, name: str, phase: str, done: int, total: int) -> None:
        """Shows the progress of a compaction; the progress never goes back."""
        if self._progress is None:
            return
        self.finish()
        key = f"{phase} {name}"
        row = self._compactions.get(key)
        if row is None or (self._task(row).finished and done < total):
            row = self._progress.add_task(key, total=1.0, in_bytes=True)
            self._compactions[key] = row
        self._move(row, done, total)
        if self._task(row).finished and row not in self._finished:
            self._finished.append(row)
            self._drop_old()

    def overall(self, done: int, total: int) -> None:
        """Shows how far all compactions of a pass are, and how long they will still take."""
        if self._progress is None:
            return
        row = self._overall
        if row is None or (self._task(row).finished and done < total):
            row = self._overall = self._progress.add_task(
                "all compactions", total=1.0, in_bytes=True, is_estimated=True
            )
        self._move(row, done, total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Shows no bars until the context ends: a question is asked."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def finish(self) -> None:
        """The phase is over."""
        if self._progress is None or self._row is None:
            return
        total = self._task(self._row).total
        self._progress.update(
            self._row,
            description=self._phase,
            total=1 if total is None else total,
            completed=1 if total is None else total,
        )
        self._row = None

    def _open(self, phase: str, total: int | None) -> None:
        self.finish()
        number = self._passes[phase] = self._passes.get(phase, 0) + 1
        self._phase = phase if number == 1 else f"{phase} (pass {number})"
        if self._progress is not None:
            self._row = self._progress.add_task(
                self._phase, total=total, is_counted=total is not None
            )

    def _move(self, row: TaskID, done: int, total: int) -> None:
        """Sets how far a row is; it never goes back."""
        assert self._progress is not None, "checked by the caller"
        task = self._task(row)
        if total <= 0:
            done = total = 1
        done = min(done, total)
        # A share that is carried over to another total would be rounded, possibly downwards.
        if done / total >= (task.completed / task.total if task.total else 0.0):
            self._progress.update(row, total=total, completed=done)

    def _task(self, row: TaskID) -> Task:
        assert self._progress is not None, "checked by the caller"
        return next(task for task in self._progress.tasks if task.id == row)

    def _drop_old(self) -> None:
        assert self._progress is not None, "checked by the caller"
        while len(self._finished) > _ROWS_MAX:
            row = self._finished.pop(0)
            self._progress.remove_task(row)
            known: Any = [key for key, each in self._compactions.items() if each == row]
            for key in known:
                del self._compactions[key]
