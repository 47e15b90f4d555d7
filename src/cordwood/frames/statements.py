"""Statements of SQL that only ask, which the plan shows that Spark's parser makes of a text.

Source: org.apache.spark.sql.catalyst.parser.AstBuilder, catalyst.plans.logical.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from cordwood.model.errors import ConfigError

_CATALYST: Final = "org.apache.spark.sql.catalyst"
#: What a node of a plan is that does something: `INSERT` is no command, but a statement of its own
#: kind; `CALL` and `EXECUTE IMMEDIATE` are run by the analysis; scripts are compound statements.
_DOING: Final = tuple(
    f"{_CATALYST}.{name}"
    for name in (
        *("plans.logical.Command", "plans.logical.ParsedStatement"),
        *("plans.logical.InsertIntoDir", "plans.logical.AutoCdcInto"),
        *("plans.logical.ExecutableDuringAnalysis", "analysis.UnresolvedExecuteImmediate"),
        "plans.logical.CompoundPlanStatement",
    )
)
#: The beginnings of names of commands that only show something.
_SHOWING: Final = ("Show", "Describe", "Explain")
#: Parts of names of nodes that statements of SQL do not have.
_NOT_OF_SQL: Final = re.compile(r"^Unresolved|Command$|Statement$")
_WORD: Final = re.compile(r"[A-Z][a-z]*")


def require_query(spark: Any, text: str) -> None:
    """Refuses a statement that is no query, before any of it is run.

    Args:
        spark: a session, not one of Spark Connect.
        text: of SQL.

    Raises:
        ConfigError: the statement changes something, or may; names it.
        pyspark.errors.ParseException: it is no SQL.
    """
    class_for = spark._jvm.java.lang.Class.forName
    doing = [class_for(name) for name in _DOING]
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    for node in _nodes(plan):
        name = str(node.getClass().getSimpleName())
        if any(each.isInstance(node) for each in doing) and not name.startswith(_SHOWING):
            raise ConfigError(
                "only queries are allowed: SELECT, WITH, VALUES, SHOW, DESCRIBE and EXPLAIN; not "
                f"{_in_sql(name)}"
            )


def _nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan of which a statement consists; those of expressions are queries."""
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def _in_sql(name: str) -> str:
    """The name of a node as words: `CREATE TABLE AS SELECT` of CreateTableAsSelect."""
    if name == "CompoundBody":
        return "BEGIN"
    return " ".join(_WORD.findall(_NOT_OF_SQL.sub("", name))).upper()
