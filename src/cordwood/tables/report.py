"""The request and the report of a run that brings a table up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class TableForm(StrEnum):
    """The rows of a table: `rows` one for each record, `state` one for each key that is there."""

    ROWS = "rows"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """The topic of `log_dirs`, and the directory of the table that gets its records.

    `form` is None for that of the table, and of a new one `STATE` where the topic is compacted.
    `decoding` are options of DataFrames that decode keys and values, by name. With `allows_gaps`
    a table of rows continues behind records that are gone. With `is_full` a state is made of all
    that the log has. Snapshots older than `expire_hours` are removed, none if that is None.
    """

    log_dirs: tuple[Path, ...]
    topic: str
    into: Path
    form: TableForm | None = None
    decoding: Mapping[str, str] = field(default_factory=dict)
    allows_gaps: bool = False
    is_full: bool = False
    expire_hours: int | None = None


@dataclass(slots=True, kw_only=True)
class TablePartition:
    """A partition in the report: the offsets from `first_offset` to before `end_offset` were read.

    `full_because` says why all of the log was, "" if only what was new. `gap_from` and `gap_to`
    (exclusive) are offsets whose records were gone before they were read, None if there are none.
    """

    partition: int
    first_offset: int
    end_offset: int
    full_because: str = ""
    gap_from: int | None = None
    gap_to: int | None = None


@dataclass(slots=True, kw_only=True)
class TableReport:
    """The report of a run.

    `version` is the table's after it. Rows were `inserted`, `updated` and `deleted`. The files that
    `expired_files` counts belonged to no snapshot that is kept.
    """

    path: str
    topic: str
    form: TableForm
    version: int
    is_created: bool = False
    partitions: list[TablePartition] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    expired_files: int = 0
    elapsed_s: float = 0.0
