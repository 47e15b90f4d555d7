"""Queries of Spark SQL over golden-a: their answers, and what they read for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.frames.options import parse_options
from cordwood.frames.records import RECORDS
from support.golden import Golden

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_runner("local[2]") as runner:
        yield runner.session()


def records(log_dir: Path, topic: str) -> list[dict[str, Any]]:
    """The records of a topic, read without Spark."""
    options = parse_options({"path": str(log_dir), "topics": topic})
    return [
        row
        for part in RECORDS.parts(options, options.wanted)
        for batch in RECORDS.batches(part, options)
        for row in batch.to_pylist()
    ]


def read_columns(frame: Any) -> list[list[str]]:
    """The columns of each part of a plan that reads logs."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    leaves = plan.collectLeaves()
    found = []
    for number in range(leaves.size()):
        output = leaves.apply(number).output()
        found.append([output.apply(at).name() for at in range(output.size())])
    return found


def test_a_query_reads_the_columns_that_it_refers_to_and_no_others(
    spark: Any, golden_a: Golden
) -> None:
    from cordwood.frames.views import query  # noqa: PLC0415  # PySpark is slow to import

    log_dir = golden_a.root / "before"
    expected = records(log_dir, "codec-lz4")

    def asked(text: str) -> tuple[list[list[str]], list[Any]]:
        frame = query(spark, text, log_dir, topics="codec-lz4")
        return read_columns(frame), [tuple(row) for row in frame.collect()]

    assert asked("SELECT count(*) FROM records") == ([["partition"]], [(len(expected),)])
    assert asked("SELECT max(offset) FROM (SELECT * FROM records ORDER BY timestamp)") == (
        [["offset"]],
        [(max(row["offset"] for row in expected),)],
    )
    columns, rows = asked("SELECT value FROM records WHERE offset = 17")
    assert columns == [["value", "offset"]]
    assert [bytes(value) for (value,) in rows] == [expected[17]["value"]]
    columns, rows = asked("SELECT offset FROM records UNION ALL SELECT offset FROM records")
    assert columns == [["offset"], ["offset"]]
    assert len(rows) == 2 * len(expected)
    columns, rows = asked(
        "SELECT a.offset, length(b.key) FROM records a JOIN records b ON a.offset = b.offset "
        "WHERE a.offset < 3 ORDER BY 1"
    )
    assert columns == [["key", "offset"]] * 2
    assert rows == [(row["offset"], len(row["key"] or b"")) for row in expected[:3]]
    columns, rows = asked("SELECT * EXCEPT (value, headers) FROM records LIMIT 1")
    assert "value" not in columns[0]
    assert len(rows[0]) == len(RECORDS.schema.names) - 2


def test_all_tables_are_views_with_all_their_columns(spark: Any, golden_a: Golden) -> None:
    from cordwood.frames.views import views  # noqa: PLC0415

    views(spark, golden_a.root / "before", topics="codec-none")
    frame = spark.sql("SELECT * FROM records")
    assert frame.columns == RECORDS.schema.names
    assert frame.count() == len(records(golden_a.root / "before", "codec-none"))


def test_malformed_values_are_named_and_null_on_request(spark: Any, golden_a: Golden) -> None:
    from cordwood.frames.views import query  # noqa: PLC0415

    options = {"topics": "codec-none", "valueFormat": "json", "valueSchema": "a int"}
    log_dir = golden_a.root / "before"
    frame = query(spark, "SELECT value.a FROM records", log_dir, **options)
    with pytest.raises(Exception, match=r"codec-none-0 offset \d+: the value cannot be decoded"):
        frame.collect()
    text = "SELECT count(*), count(value.a) FROM records"
    (row,) = query(spark, text, log_dir, malformed="null", **options).collect()
    assert tuple(row) == (len(records(log_dir, "codec-none")), 0)
