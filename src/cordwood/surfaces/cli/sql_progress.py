"""The progress of `cordwood sql` on a terminal: how many of Spark's tasks are done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from cordwood.surfaces.cli.screen import Screen

_LOOK_S: Final = 0.25


class _TasksColumn(ProgressColumn):
    """The tasks that are done, and all that are known; empty before the first."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        return Text("" if not task.total else f"{task.completed:.0f}/{task.total:.0f} tasks")


@contextmanager
def sql_progress(screen: Screen) -> Iterator[Callable[[Any], None]]:
    """A row of progress, if standard error is a terminal; yields what takes the SparkContext."""
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), _TasksColumn(), TimeElapsedColumn()
    over = threading.Event()
    watchers: list[threading.Thread] = []
    with screen.bars(*columns, transient=True) as bars:
        row = bars.add_task("starting Spark", total=None)

        def watch(context: Any) -> None:
            bars.update(row, description="reading")
            watcher = threading.Thread(
                target=_watch, args=(context, bars, row, over), name="sql-progress", daemon=True
            )
            watchers.append(watcher)
            watcher.start()

        try:
            yield watch
        finally:
            over.set()
            for each in watchers:
                each.join()


def _watch(context: Any, bars: Progress, row: Any, over: threading.Event) -> None:
    """Shows the tasks of all stages that have begun, until it is over."""
    tasks = TaskCount(context.statusTracker())
    while not over.wait(_LOOK_S):
        try:
            tasks.look()
        except Exception:  # of Py4J: the virtual machine has ended, and the query fails
            return
        bars.update(row, completed=tasks.done, total=tasks.total or None)


class TaskCount:
    """The tasks of all stages that Spark has begun, also of those that are done."""

    def __init__(self, tracker: Any) -> None:
        """Takes the status tracker of a SparkContext."""
        self._tracker = tracker
        self._stages: dict[int, tuple[int, int]] = {}

    @property
    def done(self) -> int:
        """The number that is done."""
        return sum(done for done, _ in self._stages.values())

    @property
    def total(self) -> int:
        """The number of all."""
        return sum(total for _, total in self._stages.values())

    def look(self) -> None:
        """Asks Spark; a stage that it has forgotten stays as it was."""
        for each in {*self._stages, *self._tracker.getActiveStageIds()}:
            info = self._tracker.getStageInfo(each)
            if info is not None:
                self._stages[each] = info.numCompletedTasks, info.numTasks
