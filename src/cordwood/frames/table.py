"""A table of logs: its columns, and how tasks read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cordwood.frames.options import FrameOptions
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, by the name that the option `table` has.

    `schema` are all its columns, `default_columns` those of a table without the option `columns`.
    `parts` gives what tasks read, each of it a value that can be pickled: all rows that are in
    `Wanted`, and perhaps more. `read` gives the rows of a part as Arrow batches that have the named
    columns, in this order.

    `parts` and `read` raise `CordwoodError` and `OSError` where a log cannot be read.
    """

    name: str
    schema: pa.Schema
    default_columns: tuple[str, ...]
    parts: Callable[[FrameOptions, Wanted], Sequence[Any]]
    read: Callable[[Any, Sequence[str]], Iterator[pa.RecordBatch]]

    def columns(self, options: FrameOptions) -> tuple[str, ...]:
        """The columns that are wanted, as the schema spells them.

        Raises:
            ConfigError: the table has no such column, or one is named twice.
        """
        if options.columns is None:
            return self.default_columns
        known = {name.lower(): name for name in self.schema.names}
        wrong = [name for name in options.columns if name.lower() not in known]
        if wrong or not options.columns:
            raise ConfigError(
                f"option columns: {', '.join(wrong) or 'no name'} is no column of table "
                f"{self.name}; they are {', '.join(self.schema.names)}"
            )
        names = tuple(known[name.lower()] for name in options.columns)
        if len(set(names)) < len(names):
            raise ConfigError(f"option columns: a column is named twice: {', '.join(names)}")
        return names
