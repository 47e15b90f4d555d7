"""Why a record that is asked for is not there."""

from __future__ import annotations

import pytest

from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.answer import ExplainedLog
from cordwood.queries.explain.directories import RecordQuestion


def log(partition: int, start: int, end: int) -> ExplainedLog:
    """A log with these offsets, the end exclusive, and nothing else to be said of it."""
    return ExplainedLog(
        topic="t",
        partition=partition,
        log_dir="/data",
        policy="delete",
        log_start_offset=start,
        last_stable_offset=end,
        high_watermark=end,
        log_end_offset=end,
        size_bytes=0,
        deletable_segments=0,
        deletable_bytes=0,
        settings={},
        open_transactions=(),
        groups=(),
        losses=(),
        compaction=None,
        segments=(),
        warnings=(),
    )


@pytest.mark.parametrize(
    ("offset", "span", "says"),
    [
        (4, (5, 9), "This record was removed, with all before the log start offset: t-0 has"),
        (6, (5, 9), "removed by a compaction, or no record ever had this offset: t-0 has offsets"),
        (9, (5, 9), "No record has this offset yet: t-0 has offsets 5 to 8"),
        (0, (5, 5), "before the log start offset: t-0 is empty, its next offset is 5"),
    ],
)
def test_why_an_offset_has_no_record_is_said_by_where_it_is(
    offset: int, span: tuple[int, int], says: str
) -> None:
    asked = RecordQuestion(partition=TopicPartition("t", 0), offset=offset)
    assert says in asked.not_found([log(0, *span)])


def test_the_partitions_without_a_key_are_counted() -> None:
    said = RecordQuestion(key=b"k").not_found([log(number, 0, 2) for number in range(5)])
    assert said.startswith("No record has the key k: t-0 has offsets 0 to 1; t-1 ")
    assert said.endswith("; 2 more partitions were read")
