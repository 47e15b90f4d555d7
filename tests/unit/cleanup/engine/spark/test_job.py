"""Report of a job on Spark about errors of its tasks."""

from __future__ import annotations

import json

from cordwood.cleanup.engine.spark import worker
from cordwood.cleanup.engine.spark.job import _failures, _pack
from cordwood.cleanup.engine.spark.runner import Row
from cordwood.cleanup.plan.compaction_values import failure_to_json
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.model.errors import CorruptError, EngineError, NoSpaceError
from cordwood.storage.filesystem import FileFacts
from cordwood.storage.reading.source import SegmentSource


def compaction_of(name: str, size_bytes: int) -> LogCompaction:
    source = SegmentSource(
        path=f"/{name}-0/00000000000000000000.log",
        base_offset=0,
        next_base_offset=1,
        size_bytes=size_bytes,
        modified_ns=0,
    )
    return LogCompaction(
        name=name,
        directory=f"/{name}-0",
        rules=RecordRules(now_ms=0),
        first_dirty=0,
        first_uncleanable=1,
        retained_end=1,
        index_interval_bytes=4096,
        segment_bytes=1 << 20,
        segments=(source,),
        groups=((0,),),
        producers=(),
        aborted=(),
        model=FileFacts(size_bytes=0, modified_ms=0, modified_ns=0, mode=0, uid=0, gid=0),
        seed=0,
    )


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


def test_each_task_gets_its_logs_in_their_order_and_about_as_many_bytes() -> None:
    sizes = {"e": 30, "a": 50, "d": 10, "b": 20, "c": 40}
    packed = _pack([compaction_of(name, size) for name, size in sizes.items()], 2)
    assert [[each.name for each in some] for some in packed] == [["a", "d", "b"], ["e", "c"]]
    assert _pack([], 2) == []
