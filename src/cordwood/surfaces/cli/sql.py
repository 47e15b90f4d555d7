"""`cordwood sql`: queries of Spark SQL over the tables of log directories."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.model.errors import ConfigError, CordwoodError, NotALogDirError
from cordwood.model.extras import SPARK, require_extra
from cordwood.storage.filesystem import OS
from cordwood.storage.log_dir_urls import url_of
from cordwood.surfaces.cli.command import Group, JsonOption, command
from cordwood.surfaces.cli.places import require_writable
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import LogDirsArgument, TopicsOption
from cordwood.surfaces.cli.sql_progress import sql_progress
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.values import parse_path

if TYPE_CHECKING:
    from cordwood.frames.stored_result import StoredResult

EPILOG = """\b
Examples:
  cordwood sql "select topic, count(*) from records group by topic" /kafka/data
  cordwood sql "select * from records where offset = 17" /kafka/data --topic orders
  cordwood sql "select value.id from records" /kafka/data --topic orders
      --value-format json --value-schema "id bigint, name string"
  cordwood sql "select * from records" /kafka/data --output records.parquet
  cordwood sql "show tables" /kafka/data

\b
Exit codes: 0 done; 1 the query failed, or a log cannot be read; 2 usage, or a
query that cannot be used."""

_ROWS: Final = 1000


class _Format(StrEnum):
    """The forms of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


#: Forms of which a name of a column names one column.
_WITH_NAMES: Final = frozenset({_Format.JSON, _Format.PARQUET})


def _decoding(
    key_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Decode keys: JSON, Avro or Protobuf.")
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option(metavar="SCHEMA", help="As --value-schema.")
    ] = None,
    key_message: Annotated[
        str | None, typer.Option(metavar="NAME", help="As --value-message.")
    ] = None,
    key_prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="As --value-prefix.")
    ] = None,
    value_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Decode values: JSON, Avro or Protobuf.")
    ] = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEMA",
            help="JSON: columns in Spark's words, or a JSON schema; Avro: a schema, or its file; "
            "Protobuf: the file of a descriptor set.",
        ),
    ] = None,
    value_message: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of a Protobuf message.")
    ] = None,
    value_prefix: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="confluent: the id of a schema precedes values."),
    ] = None,
    malformed: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="What cannot be decoded: fail or null."),
    ] = None,
) -> dict[str, str]:
    given = {
        "keyFormat": key_format,
        "keySchema": key_schema,
        "keyMessage": key_message,
        "keyPrefix": key_prefix,
        "valueFormat": value_format,
        "valueSchema": value_schema,
        "valueMessage": value_message,
        "valuePrefix": value_prefix,
        "malformed": malformed,
    }
    return {name: value for name, value in given.items() if value is not None}


@command("sql")
def sql_command(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", hidden=True)],
    log_dirs: LogDirsArgument,
    topic: TopicsOption = None,
    *,
    isolation: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="read_uncommitted, read_committed or all."),
    ] = None,
    decoding: Annotated[dict[str, str], Group(_decoding)],
    top: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"So many rows of a table: {_ROWS} by default."),
    ] = None,
    as_json: JsonOption = False,
    form: Annotated[
        _Format | None,
        typer.Option("--format", metavar="FORMAT", help="A table, CSV, JSON or Parquet."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FILE",
            help="Write CSV, JSON or Parquet, by the ending or --format.",
        ),
    ] = None,
) -> None:
    """Queries the tables of log directories with Spark SQL.

    QUERY comes before LOG_DIR; `show tables` lists the tables, and `describe records` the columns
    of one. Only queries are allowed.
    """
    STOPPING.command("cordwood sql", ends_processes=True)
    wanted = _format_of(form, output, as_json=as_json)
    if top is not None and wanted is not _Format.TABLE:
        raise ConfigError("--top is for a table: the query says it of others, with LIMIT")
    if top is not None and top < 1:
        raise ConfigError(f"--top {top}: it is less than 1")
    for each in log_dirs:
        if not OS.is_directory(each):
            raise NotALogDirError(f"{each}: no such directory")
    options = {**decoding, "topics": ",".join(topic or ())}
    if isolation is not None:
        options["isolation"] = isolation
    require_extra(SPARK, what="cordwood sql")
    _run(
        context.with_resource(Screen()),
        query,
        log_dirs,
        options,
        wanted,
        rows=top or _ROWS,
        output=output,
    )


def _format_of(form: _Format | None, output: Path | None, *, as_json: bool) -> _Format:
    """The form that options ask for.

    Raises:
        ConfigError: there is none, or the file cannot be written.
    """
    if as_json:
        if form is not None or output is not None:
            raise ConfigError("--json excludes --format and --output")
        return _Format.JSON
    if output is None:
        if form is _Format.PARQUET:
            raise ConfigError("--format parquet needs --output FILE")
        return form or _Format.TABLE
    if form is None:
        ending = output.suffix.removeprefix(".").lower()
        if ending not in {*_Format} - {_Format.TABLE}:
            raise ConfigError(
                f"--output {output}: it ends with none of .csv, .json and .parquet: --format says "
                "what it is"
            )
        form = _Format(ending)
    if form is _Format.TABLE:
        raise ConfigError("--output takes no table: csv, json or parquet")
    require_writable("--output", output)
    return form


def _run(
    screen: Screen,
    query: str,
    log_dirs: Sequence[Path],
    options: dict[str, str],
    form: _Format,
    *,
    rows: int,
    output: Path | None,
) -> None:
    """Runs the query, and then prints or writes its result."""
    from cordwood.cleanup.engine.spark import archive_maker  # noqa: PLC0415  # if needed
    from cordwood.cleanup.engine.spark.session import (  # noqa: PLC0415
        default_memory_bytes,
        fitting,
        starting_runner,
    )
    from cordwood.frames.options import parse_options  # noqa: PLC0415

    # Spark's processes mount an archive themselves.
    places = [url_of(each) or str(each) for each in log_dirs]
    parse_options({**options, "path": places[0]})
    # What is wrong with a query is said once, in one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    master = fitting("local[*]", default_memory_bytes())
    with starting_runner(master, imports=("cordwood.surfaces.cli.sql_output",)) as started:
        with sql_progress(screen) as watch:
            runner: Any = started()
            watch(runner.context)
            result = _stored(
                runner, query, places, options, form, rows + 1 if form is _Format.TABLE else None
            )
        _put(result, form, rows=rows, output=output)
    archive_maker.start_if_missing()


def _put(result: StoredResult, form: _Format, *, rows: int, output: Path | None) -> None:
    """Prints or writes a result."""
    from cordwood.surfaces.cli import sql_output  # noqa: PLC0415  # loaded by now

    if form is _Format.TABLE:
        sql_output.print_rows(result, rows)
        if result.row_count > rows:
            typer.echo(f"These are the first {rows} rows: --top N shows more.", err=True)
        return
    place = sql_output.standard_output() if output is None else sql_output.new_file(output)
    with place as sink:
        sql_output.WRITERS[form](result, sink)
    if output is not None:
        typer.echo(f"{output}: {result.row_count} rows")


def _stored(
    runner: Any,
    query: str,
    places: Sequence[str],
    options: dict[str, str],
    form: _Format,
    rows: int | None,
) -> StoredResult:
    """The result of the query, of at most so many rows, in temporary files.

    Raises:
        ConfigError: the query cannot be used.
        CordwoodError, OSError: it failed, or a log cannot be read.
    """
    # After the thread that imports them while Spark starts.
    from cordwood.cleanup.engine.spark.error_text import sql_error  # noqa: PLC0415
    from cordwood.frames import stored_result, views  # noqa: PLC0415

    try:
        frame = views.query(runner.session(), query, *places, **options)
        names = frame.columns
        if form in _WITH_NAMES and len(set(names)) < len(names):
            raise ConfigError(
                f"two columns have one name, which {form} cannot have: give one an alias: "
                f"{', '.join(names)}"
            )
        limited = frame if rows is None else frame.limit(rows)
        return stored_result.store(limited, Path(tempfile.mkdtemp()))
    except (CordwoodError, OSError):
        raise
    except Exception as error:
        raise sql_error(error) from error
