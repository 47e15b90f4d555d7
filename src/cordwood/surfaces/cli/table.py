"""`cordwood table`: brings a Delta table up to date with a topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.extras import TABLES, require_extra
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.command import JsonOption, command, print_document
from cordwood.surfaces.cli.setting_options import LogDirsArgument
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, parse_duration, parse_path
from cordwood.tables.report import TableForm, TablePartition, TableReport, TableRequest

EPILOG = """\b
Examples:
  cordwood table /var/lib/kafka/data --topic orders --into /lake/orders
  cordwood table /data1 /data2 --topic customers --into /lake/customers --form state
  cordwood table /data --topic orders --into /lake/orders --expire 30d \\
      --option valueFormat=json --option 'valueSchema=id bigint, amount double'

\b
Exit codes: 0 the table has all that was committed; 1 it could not be brought up to date, and is as
it was; 2 usage."""

_HOUR_MS = 3_600_000


@command("table")
def table_command(
    log_dirs: LogDirsArgument,
    *,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="The topic of the table.", show_default=False)
    ],
    into: Annotated[
        Path,
        typer.Option(
            parser=parse_path,
            metavar="TABLE",
            help="The directory of the table.",
            show_default=False,
        ),
    ],
    form: Annotated[
        TableForm | None,
        typer.Option(
            metavar="FORM",
            help="Of a new table: rows, or state, which a compacted topic has by default.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="How keys and values are decoded, as of DataFrames."
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps", help="Rows: continue behind records that were deleted unread."
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="State: read all, and delete what the log has not.")
    ] = False,
    expire: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Remove older snapshots, as 30d; an hour at least."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a Delta table up to date with a topic, exactly once.

    LOG_DIR is an entry of a broker's log.dirs, one partition's directory in it, or the URL of an
    archive. It is only read: a Kafka or a Cordwood may run on it. TABLE is made if it is not there.

    A run reads what was committed since the last one, and adds it in one commit of the table, which
    notes the offsets, too. A run that breaks off leaves the table as it was.
    """
    STOPPING.command("cordwood table", note="the table is as it was")
    require_extra(TABLES, what="cordwood table")
    # What knows Arrow and Delta is loaded where it is used.
    from cordwood.tables.update import update_table  # noqa: PLC0415

    request = TableRequest(
        log_dirs=tuple(log_dirs),
        topic=topic,
        into=_table_directory(into),
        form=form,
        decoding=_options(option or ()),
        allows_gaps=allow_gaps,
        is_full=full,
        expire_hours=None if expire is None else _hours(expire),
    )
    report = update_table(request, clock=SystemClock())
    if as_json:
        print_document(report)
    else:
        _show(report)


def _table_directory(into: Path) -> Path:
    """The directory of the table.

    Raises:
        ConfigError: Delta can have no table there.
    """
    try:
        str(into).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"--into {into}: the name of a Delta table has to be UTF-8") from None
    if OS.exists(into) and not OS.is_directory(into):
        raise ConfigError(f"--into {into}: it is there, and no directory")
    return into


def _options(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator:
            raise ConfigError(f"--option {each}: expected NAME=VALUE")
        found[name] = value
    return found


def _hours(text: str) -> int:
    age_ms = parse_duration(text, option="--expire")
    if age_ms < _HOUR_MS:
        raise ConfigError(f"--expire {text}: expected an hour at least")
    # Up: what is younger than that stays.
    return -(-age_ms // _HOUR_MS)


_COLUMNS = (
    Column("partition"),
    Column("from", is_number=True),
    Column("to", is_number=True),
    Column("gone", is_prose=True),
    Column("all of it", is_prose=True),
)


def _show(report: TableReport) -> None:
    shown = [each for each in report.partitions if each.first_offset < each.end_offset]
    if shown:
        print_table("Read", _COLUMNS, [_cells(report.topic, each) for each in shown])
    made = ", a new table" if report.is_created else ""
    text = (
        f"{report.path}: version {report.version}{made}; {counted(report.inserted, 'row')} "
        f"inserted, {report.updated:,} updated, {report.deleted:,} deleted in "
        f"{report.elapsed_s:.1f} s"
    )
    print_text(text)
    if report.expired_files:
        print_text(f"expired: {counted(report.expired_files, 'file')}")


def _cells(topic: str, row: TablePartition) -> list[str]:
    gone = ""
    if row.gap_from is not None and row.gap_to is not None:
        gone = f"offsets {row.gap_from:,} to {row.gap_to - 1:,}"
    return [
        f"{topic}-{row.partition}",
        f"{row.first_offset:,}",
        f"{row.end_offset:,}",
        gone,
        row.full_because,
    ]
