"""The options of a table: `spark.read.format("cordwood").option(name, value)`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.frames.decoding.encoding import Encoding, parse_encodings
from cordwood.frames.option_values import number_of, parse_number
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import ConfigError
from cordwood.storage.log_dir_urls import log_dir_of

#: A part of a table is cut where it is larger, by default.
SLICE_BYTES: Final = 128 << 20

#: The options that every table has.
COMMON_OPTIONS: Final = ("table", "path", "paths", "columns", "sliceBytes")
#: Those of a table of which a part of all partitions can be read.
PARTITIONS_OPTIONS: Final = ("topics", "partitions")
#: Those of a table of which a part of all offsets can be read.
OFFSETS_OPTIONS: Final = ("startingOffset", "endingOffset")

_RECORDS: Final = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """The choice of what is read, and how.

    `table` is the name of a table (option `table`); `log_dirs` are log directories or partitions'
    directories (`path`, those given to `load`); `topics` are globs (`topics`), all if there is
    none; `columns` are names of columns (`columns`), None for those that the table has by default;
    `encodings` are those of columns that are decoded. `given` are the names of all options that
    were given, in lower case: a table refuses those that it does not know.
    """

    table: str
    log_dirs: tuple[Path, ...]
    topics: tuple[str, ...]
    columns: tuple[str, ...] | None
    isolation: Isolation
    wanted: Wanted
    slice_bytes: int
    given: frozenset[str]
    encodings: tuple[Encoding, ...] = ()


def parse_options(given: Mapping[str, str]) -> FrameOptions:
    """The options of a `DataFrameReader`, by name, in whatever case.

    Raises:
        ConfigError: one is missing, or has a wrong value.
        OSError: the file of a schema cannot be read.
    """
    options = {name.lower(): value for name, value in given.items()}
    columns = options.get("columns")
    return FrameOptions(
        table=options.get("table", _RECORDS),
        log_dirs=_log_dirs(options),
        topics=tuple(_names(options.get("topics", ""))),
        columns=None if columns is None else tuple(_names(columns)),
        isolation=_isolation(options.get("isolation", Isolation.READ_UNCOMMITTED)),
        wanted=_wanted(options),
        slice_bytes=number_of(options, "sliceBytes", SLICE_BYTES, at_least=1),
        given=frozenset(options),
        encodings=parse_encodings(options),
    )


def _names(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def _log_dirs(options: Mapping[str, str]) -> tuple[Path, ...]:
    paths = json.loads(options.get("paths", "[]"))
    paths += [options["path"]] if "path" in options else []
    if not paths:
        raise ConfigError("no log directory is given: spark.read.format('cordwood').load(LOG_DIR)")
    return tuple(map(log_dir_of, paths))


def _isolation(text: str) -> Isolation:
    try:
        return Isolation(text.lower())
    except ValueError:
        raise ConfigError(f"option isolation: {text!r} is none of {', '.join(Isolation)}") from None


def _wanted(options: Mapping[str, str]) -> Wanted:
    wanted = Wanted()
    if "partitions" in options:
        numbers = [parse_number("partitions", each, 0) for each in _names(options["partitions"])]
        wanted = wanted.of_partitions(frozenset(numbers))
    wanted = wanted.from_offset(number_of(options, "startingOffset", 0))
    if "endingoffset" in options:
        wanted = wanted.before_offset(number_of(options, "endingOffset", 0))
    return wanted.from_ms(number_of(options, "startingTimestamp", -1))
