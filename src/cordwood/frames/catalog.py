"""The tables that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.frames.records import RECORDS
from cordwood.frames.table import Table
from cordwood.model.errors import ConfigError

TABLES: Final[Mapping[str, Table]] = {each.name: each for each in (RECORDS,)}


def table_of(name: str) -> Table:
    """The table of a name, in whatever case.

    Raises:
        ConfigError: there is none.
    """
    table = TABLES.get(name.lower())
    if table is None:
        raise ConfigError(f"option table: {name!r} is none of {', '.join(TABLES)}")
    return table
