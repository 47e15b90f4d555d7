"""The tables that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.frames.batches import BATCHES
from cordwood.frames.groups import GROUPS
from cordwood.frames.indexes import INDEXES
from cordwood.frames.metadata import METADATA
from cordwood.frames.offsets import OFFSETS
from cordwood.frames.producers import PRODUCERS
from cordwood.frames.records import RECORDS
from cordwood.frames.segments import SEGMENTS
from cordwood.frames.table import Table
from cordwood.frames.transactions import TRANSACTIONS
from cordwood.model.errors import ConfigError

TABLES: Final[Mapping[str, Table]] = {
    each.name: each
    for each in (
        *(RECORDS, BATCHES, SEGMENTS, INDEXES),
        *(OFFSETS, GROUPS, TRANSACTIONS, PRODUCERS, METADATA),
    )
}


def options_of(table: Table, options: Mapping[str, str]) -> dict[str, str]:
    """The options that a table has, of those that are given for several tables.

    Raises:
        ConfigError: no table has one of them.
    """
    for name in options:
        if not any(each.has_option(name) for each in TABLES.values()):
            raise ConfigError(f"option {name}: no table has such an option")
    return {name: value for name, value in options.items() if table.has_option(name)}


def table_of(name: str) -> Table:
    """The table of a name, in whatever case.

    Raises:
        ConfigError: there is none.
    """
    table = TABLES.get(name.lower())
    if table is None:
        raise ConfigError(f"option table: {name!r} is none of {', '.join(TABLES)}")
    return table
