"""`cordwood restore`: brings logs of an archive back as directories that a broker opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cordwood.archiving.report import RestoredPartition, RestoreReport, RestoreRequest
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, DirectoryInUseError
from cordwood.model.extras import LAKE, require_extra
from cordwood.model.offsets import OFFSET_MAX
from cordwood.model.rng import SystemRng
from cordwood.surfaces.cli.byte_progress import byte_display
from cordwood.surfaces.cli.command import FAILED, IN_USE, JsonOption, command, print_document
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import TopicsOption
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, parse_path, parse_time

EPILOG = """\b
Examples:
  cordwood restore s3://backups/kafka /var/lib/kafka/restored
  cordwood restore s3://backups/kafka ./look --topic orders --from-time 2026-11-01
  cordwood restore file:///mnt/archive ./look --topic orders --from-offset 0 --to-offset 1000

\b
Exit codes: 0 restored; 1 a partition could not be, or is there already; 2 usage;
3 a broker runs on LOG_DIR."""


@command("restore")
def restore_command(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", show_default=False)],
    log_dir: Annotated[
        Path, typer.Argument(parser=parse_path, metavar="LOG_DIR", show_default=False)
    ],
    *,
    topic: TopicsOption = None,
    from_offset: Annotated[
        int, typer.Option(metavar="OFFSET", min=0, help="The first offset of each partition.")
    ] = 0,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="The offset behind the last.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From the first record of this time or later."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Up to the first record of this time or later."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring logs of an archive back as a log directory that a broker opens.

    A partition that LOG_DIR has already is not touched: nothing is restored then. What is copied is
    checked against the SHA-256 of the manifests. A new directory gets the cluster's metadata and
    the identity of the broker, too, if they were archived: the broker that starts on it knows the
    topics, and has empty logs of those that were not restored.

    Batches are whole: a few records behind the last one that was asked for may be there, too.
    """
    STOPPING.command("cordwood restore", note="no part of a partition is left")
    screen = context.with_resource(Screen())
    if "://" not in url:
        raise ConfigError(f"{url}: not the URL of an archive, as s3://BUCKET/PREFIX")
    require_extra(LAKE, what="cordwood restore")
    # What speaks to object storage is loaded where it is used.
    from cordwood.archiving.restore import restore_logs  # noqa: PLC0415
    from cordwood.storage.archives.mount import mounted_archive  # noqa: PLC0415

    request = RestoreRequest(
        into=log_dir,
        topics=tuple(topic or ()),
        first_offset=from_offset,
        end_offset=OFFSET_MAX if to_offset is None else to_offset,
        first_ms=-1 if from_time is None else parse_time(from_time, option="--from-time"),
        end_ms=-1 if to_time is None else parse_time(to_time, option="--to-time"),
    )
    try:
        with byte_display(screen, "restore", shown=not as_json) as listener:
            report = restore_logs(
                request,
                mounted_archive(url),
                clock=SystemClock(),
                rng=SystemRng(),
                listener=listener,
            )
    except DirectoryInUseError as error:
        fail("restore", error, IN_USE)
    if as_json:
        print_document(report)
    else:
        _show(report, log_dir)
    if not report.is_complete:
        raise typer.Exit(FAILED)


_COLUMNS = (
    Column("partition"),
    Column("segments", is_number=True),
    Column("bytes", is_number=True),
    Column("from", is_number=True),
    Column("to", is_number=True),
    Column("why not", is_prose=True),
)


def _show(report: RestoreReport, log_dir: Path) -> None:
    if report.partitions:
        print_table("Restored", _COLUMNS, [_cells(each) for each in report.partitions])
    whole = [each for each in report.partitions if not each.failure]
    metadata = ", and the cluster's metadata" if report.has_metadata else ""
    print_text(
        f"{log_dir}: {counted(len(whole), 'partition')}, "
        f"{format_bytes(sum(each.bytes for each in whole))}{metadata} in {report.elapsed_s:.1f} s"
    )


def _cells(row: RestoredPartition) -> list[str]:
    return [
        f"{row.topic}-{row.partition}",
        f"{row.segments:,}",
        format_bytes(row.bytes),
        f"{row.log_start_offset:,}",
        f"{row.end_offset:,}",
        row.failure,
    ]
