"""The result of a query, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumn:
    """A column, with its type in Spark's words."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The columns and rows of a result; a row has a value, or None, by the name of a column."""

    columns: Sequence[QueryColumn]
    rows: Sequence[Mapping[str, Any]]
