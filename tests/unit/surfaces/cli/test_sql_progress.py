"""The count of Spark's tasks that `cordwood sql` shows."""

from __future__ import annotations

import io
from typing import NamedTuple

from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.sql_progress import TaskCount, sql_progress


class Stage(NamedTuple):
    numCompletedTasks: int  # noqa: N815  # as Spark has it
    numTasks: int  # noqa: N815


class Tracker:
    """A status tracker whose stages a test sets."""

    def __init__(self) -> None:
        self.active: list[int] = []
        self.stages: dict[int, Stage] = {}

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return self.active

    def getStageInfo(self, stage: int) -> Stage | None:  # noqa: N802
        return self.stages.get(stage)


def test_tasks_of_stages_that_are_done_stay_counted() -> None:
    tracker = Tracker()
    tasks = TaskCount(tracker)
    tasks.look()
    assert (tasks.done, tasks.total) == (0, 0)
    tracker.active, tracker.stages = [1], {1: Stage(3, 8)}
    tasks.look()
    assert (tasks.done, tasks.total) == (3, 8)
    tracker.active, tracker.stages = [2], {1: Stage(8, 8), 2: Stage(0, 4)}
    tasks.look()
    assert (tasks.done, tasks.total) == (8, 12)
    tracker.active, tracker.stages = [], {2: Stage(4, 4)}
    tasks.look()
    assert (tasks.done, tasks.total) == (12, 12)


def test_nothing_is_shown_where_standard_error_is_no_terminal() -> None:
    stream = io.StringIO()
    with sql_progress(Screen(stream)) as watch:
        watch(None)
    assert stream.getvalue() == ""
