"""Texts of SQL at a real Spark: which are queries, what they give, what is said of errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.engine.spark.error_text import sql_error
from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.frames.statements import require_query
from cordwood.frames.stored_result import StoredResult, store
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.surfaces.cli.sql_values import plain_values

pytestmark = pytest.mark.spark

ALLOWED = (
    "select 1",
    "with a as (select 1 as b) select * from a",
    "values (1), (2)",
    "from values (1) as t(a) |> where a = 1",
    "(select 1) union all (select 2)",
    "show tables",
    "describe function length",
    "explain select 1",
    "explain insert into a select 1",
)
REFUSED = {
    "insert into a values (1)": "INSERT INTO",
    "with a as (select 1) insert into b select * from a": "INSERT INTO",
    "from values (1) as t(a) insert into b select a insert into c select a": "INSERT INTO",
    "insert overwrite directory '/tmp/b' using csv select 1": "INSERT INTO DIR",
    "create table a using parquet as select 1": "CREATE TABLE AS SELECT",
    "create or replace temporary view records as select 1": "CREATE VIEW",
    "drop view records": "DROP VIEW",
    "delete from a": "DELETE FROM TABLE",
    "set spark.sql.ansi.enabled = false": "SET",
    "cache table a as select 1": "CACHE TABLE AS SELECT",
    "execute immediate 'drop view records'": "EXECUTE IMMEDIATE",
    "call a.b()": "CALL",
    "begin select 1; end": "BEGIN",
}
FAILING = {
    "select nothing from values (1) as t(a)": (ConfigError, "UNRESOLVED_COLUMN", 1, 8),
    "select a,\n  from values (1) as t(a) where": (ConfigError, "PARSE_SYNTAX_ERROR", 2, 15),
    "select a\nfrom nowhere": (ConfigError, "TABLE_OR_VIEW_NOT_FOUND", 2, 6),
    "select\n 1 div a from values (0) as t(a)": (CordwoodError, "DIVIDE_BY_ZERO", 2, 2),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_runner("local[2]") as runner:
        yield runner.session()


def test_queries_are_allowed_and_nothing_else(spark: Any) -> None:
    for text in ALLOWED:
        require_query(spark, text)
    refused = {}
    for text in REFUSED:
        with pytest.raises(ConfigError, match="only queries are allowed") as caught:
            require_query(spark, text)
        refused[text] = str(caught.value).partition("; not ")[2]
    assert refused == REFUSED


def rows_of(result: StoredResult) -> list[tuple[Any, ...]]:
    return [
        row
        for batch in result.batches()
        for row in zip(*map(plain_values, batch.columns), strict=True)
    ]


def test_results_keep_names_types_and_order(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id as n, id % 3 as `n`, map('k', X'FF') as `a.b`, decimal(1.50) as d, "
        "timestamp'2026-01-01 00:00:00' as t from range(0, 25000, 1, 4) order by id desc"
    )
    result = store(frame, tmp_path)
    assert result.schema.names == ["n", "n", "a.b", "d", "t"]
    assert result.types[:3] == ("bigint", "bigint", "map<string,binary>")
    rows = rows_of(result)
    assert [row[0] for row in rows] == list(range(24999, -1, -1))
    assert rows[0][1:3] == (24999 % 3, {"k": "X'FF'"})
    assert rows[0][4] == "2026-01-01T00:00:00.000Z"
    assert result.row_count == len(rows)
    nothing = store(spark.sql("select 1 as a where false"), tmp_path)
    assert (nothing.schema.names, nothing.row_count, rows_of(nothing)) == (["a"], 0, [])


def test_a_type_that_arrow_does_not_have_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_TYPE") as caught:
        store(spark.sql("select interval 1 month"), tmp_path)
    assert "YearMonthIntervalType" in str(sql_error(caught.value))


def test_errors_have_their_place_in_the_query(spark: Any, tmp_path: Path) -> None:
    for text, (kind, condition, line, position) in FAILING.items():
        with pytest.raises(Exception, match=condition) as caught:
            store(spark.sql(text), tmp_path)
        error = sql_error(caught.value)
        assert type(error) is kind, text
        assert str(error).startswith(f"[{condition}"), text
        assert str(error).endswith(f" (line {line}, position {position})"), text
        assert "\n" not in str(error)
