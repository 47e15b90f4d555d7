"""The options of a table: `spark.read.format("cordwood").option(name, value)`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.frames.column_types import COLUMN_TYPES
from cordwood.frames.slices import SLICE_BYTES
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import ConfigError

#: The columns of Spark's Kafka source, which has headers only if asked for.
DEFAULT_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """What is read, and how.

    `log_dirs` are log directories or partitions' directories (option `path`, those given to
    `load`); `topics` are globs (`topics`), all if there is none; `columns` are names of
    `COLUMN_TYPES` (`columns`).
    """

    log_dirs: tuple[Path, ...]
    topics: tuple[str, ...]
    columns: tuple[str, ...]
    isolation: Isolation
    wanted: Wanted
    slice_bytes: int


def parse_options(given: Mapping[str, str]) -> FrameOptions:
    """The options of a `DataFrameReader`, by name, in whatever case.

    Raises:
        ConfigError: one is missing, unknown, or has a wrong value.
    """
    options = {name.lower(): value for name, value in given.items()}
    unknown = options.keys() - _NAMES
    if unknown:
        raise ConfigError(
            f"unknown option {', '.join(sorted(unknown))}: the options of format `cordwood` are "
            f"{', '.join(sorted(_NAMES))}"
        )
    return FrameOptions(
        log_dirs=_log_dirs(options),
        topics=tuple(_names(options.get("topics", ""))),
        columns=_columns(options.get("columns")),
        isolation=_isolation(options.get("isolation", Isolation.READ_UNCOMMITTED)),
        wanted=_wanted(options),
        slice_bytes=_number(options, "slicebytes", SLICE_BYTES, at_least=1),
    )


_NAMES: Final = frozenset(
    {
        *("path", "paths", "topics", "partitions", "columns", "isolation", "slicebytes"),
        *("startingoffset", "endingoffset", "startingtimestamp"),
    }
)


def _names(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def _log_dirs(options: Mapping[str, str]) -> tuple[Path, ...]:
    paths = json.loads(options.get("paths", "[]"))
    paths += [options["path"]] if "path" in options else []
    if not paths:
        raise ConfigError("no log directory is given: spark.read.format('cordwood').load(LOG_DIR)")
    return tuple(map(Path, paths))


def _columns(text: str | None) -> tuple[str, ...]:
    names = DEFAULT_COLUMNS if text is None else tuple(_names(text))
    known = {name.lower(): name for name in COLUMN_TYPES}
    wrong = [name for name in names if name.lower() not in known]
    if wrong or not names:
        raise ConfigError(
            f"option columns: {', '.join(wrong) or 'no name'} is no column of records; they are "
            f"{', '.join(COLUMN_TYPES)}"
        )
    if len({name.lower() for name in names}) < len(names):
        raise ConfigError(f"option columns: a column is named twice: {text}")
    return tuple(known[name.lower()] for name in names)


def _isolation(text: str) -> Isolation:
    try:
        return Isolation(text.lower())
    except ValueError:
        raise ConfigError(f"option isolation: {text!r} is none of {', '.join(Isolation)}") from None


def _wanted(options: Mapping[str, str]) -> Wanted:
    wanted = Wanted()
    if "partitions" in options:
        numbers = [_parsed("partitions", each, 0) for each in _names(options["partitions"])]
        wanted = wanted.of_partitions(frozenset(numbers))
    wanted = wanted.from_offset(_number(options, "startingoffset", 0))
    if "endingoffset" in options:
        wanted = wanted.before_offset(_number(options, "endingoffset", 0))
    return wanted.from_ms(_number(options, "startingtimestamp", -1))


def _number(options: Mapping[str, str], name: str, default: int, *, at_least: int = 0) -> int:
    return _parsed(name, options[name], at_least) if name in options else default


def _parsed(name: str, text: str, at_least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"option {name}: {text!r} is no number") from None
    if number < at_least:
        raise ConfigError(f"option {name}: {number} is less than {at_least}")
    return number
