"""Tables of logs as temporary views of a session of Spark, and queries that read what they need.

Spark prunes no columns of a source in Python. A query is therefore planned twice: over empty views,
whose optimized plan says which columns it refers to, and over the logs with these columns; the
others are null there, so that all names mean the same.

Source: org.apache.spark.sql.catalyst.plans.QueryPlan.references, optimizer.ColumnPruning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from cordwood.frames.catalog import TABLES, options_of
from cordwood.frames.data_source import NAME, register
from cordwood.frames.options import parse_options
from cordwood.frames.statements import require_query
from cordwood.frames.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Nodes of a plan that need no more of what is below them than they refer to or give out.
_NARROW: Final = frozenset(
    {
        *("Project", "Aggregate", "Filter", "Join", "Sort", "Window", "Generate", "Expand"),
        *("LocalLimit", "GlobalLimit", "Offset", "Sample", "SubqueryAlias"),
    }
)


def views(spark: SparkSession, *log_dirs: str | Path, **options: str) -> None:
    """Makes each table a temporary view of its name, with all its columns.

    Spark reads all columns of such a view, whatever a query needs: see `query`.

    Args:
        spark: a session.
        log_dirs: log directories, or partitions' directories.
        options: those of `spark.read.format("cordwood")`, without `table` and `columns`; a table
            is given those that it has.

    Raises:
        ConfigError: no table has an option.
        pyspark.errors.AnalysisException: an option cannot be used.
    """
    register(spark)
    for table in TABLES.values():
        _frame(spark, table, table.schema.names, log_dirs, options).createOrReplaceTempView(
            table.name
        )


def query(spark: SparkSession, text: str, *log_dirs: str | Path, **options: str) -> DataFrame:
    """The result of a query over the tables, of which it reads only the columns that it refers to.

    Afterwards the tables are temporary views, in which columns that the query does not need are
    null.

    Args:
        spark: a session, not one of Spark Connect.
        text: of SQL.
        log_dirs, options: as of `views`.

    Raises:
        ConfigError: an option cannot be used, or the text is a statement that is no query.
        MissingExtraError: what decodes values is not installed.
        pyspark.errors.AnalysisException: the query cannot be used.
    """
    require_query(spark, text)
    register(spark)
    paths = {"path": str(log_dirs[0])} if log_dirs else {}
    schemas = {}
    for table in TABLES.values():
        all_columns = ",".join(table.schema.names)
        given = options_of(table, options)
        parsed = parse_options({**given, **paths, "table": table.name, "columns": all_columns})
        schemas[table.name] = from_arrow_schema(table.schema_of(parsed))
        empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), schemas[table.name])
        empty.createOrReplaceTempView(table.name)
    plan: Any = spark.sql(text)._jdf.queryExecution().optimizedPlan()
    for name, used in _referenced(plan, schemas).items():
        table = TABLES[name]
        columns = [each for each in table.schema.names if each in used] or [_smallest(table)]
        frame = _frame(spark, table, columns, log_dirs, options)
        frame.selectExpr(
            *(
                f"`{field.name}`"
                if field.name in columns
                else f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
                for field in schemas[name].fields
            )
        ).createOrReplaceTempView(name)
    return spark.sql(text)


def _frame(
    spark: SparkSession,
    table: Table,
    columns: Sequence[str],
    log_dirs: Sequence[str | Path],
    options: Mapping[str, str],
) -> DataFrame:
    reader = spark.read.format(NAME).options(**options_of(table, options))
    reader = reader.option("table", table.name).option("columns", ",".join(columns))
    return reader.load([str(each) for each in log_dirs])


def _smallest(table: Table) -> str:
    """A column that takes little to read, for a query that only counts rows."""
    numbers = [each.name for each in table.schema if pa.types.is_integer(each.type)]
    names: list[str] = numbers or table.schema.names
    return names[0]


def _referenced(plan: Any, schemas: Mapping[str, StructType]) -> dict[str, set[str]]:
    """The columns that a plan needs of each table that is in it."""
    by_columns = {tuple(schema.fieldNames()): name for name, schema in schemas.items()}
    used: set[int] = set()
    leaves: list[Any] = []
    todo = [plan]
    used.update(_ids(plan.output()))
    while todo:
        node = todo.pop()
        children = list(_items(node.children()))
        used.update(_ids(node.references().toSeq()))
        if node.nodeName() not in _NARROW:
            for child in children:
                used.update(_ids(child.output()))
        for each in _items(node.subqueries()):
            used.update(_ids(each.output()))
            todo.append(each)
        todo += children
        if not children:
            leaves.append(node)
    found: dict[str, set[str]] = {}
    for leaf in leaves:
        output = list(_items(leaf.output()))
        name = by_columns.get(tuple(each.name() for each in output))
        if name is not None:
            columns = found.setdefault(name, set())
            columns.update(each.name() for each in output if each.exprId().id() in used)
    return found


def _ids(attributes: Any) -> Iterable[int]:
    return (each.exprId().id() for each in _items(attributes))


def _items(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (sequence.apply(number) for number in range(sequence.size()))
