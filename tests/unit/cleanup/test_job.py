"""What a job on Spark reports of the errors of its tasks."""

from __future__ import annotations

import json

from cordwood.cleanup.compaction_values import failure_to_json
from cordwood.cleanup.spark import worker
from cordwood.cleanup.spark.job import _failures
from cordwood.cleanup.spark.runner import Row
from cordwood.model.errors import CorruptError, EngineError, NoSpaceError


def row_of(task: int, error: Exception) -> Row:
    return Row(task, worker.ERROR, json.dumps({"round": "t-0"} | failure_to_json(error)).encode())


def test_the_error_that_ended_the_other_tasks_is_reported_first() -> None:
    rows = [
        row_of(0, EngineError("the compaction was given up")),
        Row(1, worker.COUNT, b"{}"),
        row_of(2, NoSpaceError("the group takes 3 bytes")),
        row_of(3, CorruptError("a bad batch", path="0.log")),
    ]
    failures = _failures(rows)
    assert [type(each) for each in failures] == [NoSpaceError, CorruptError, EngineError]
    assert str(failures[0]) == "the group takes 3 bytes"
