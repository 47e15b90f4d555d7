"""`cordwood archive`: copies the closed segments of logs to object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cordwood.archiving.report import (
    ArchivedPartition,
    ArchiveReport,
    ArchiveRequest,
    ArchiveStatus,
)
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.extras import LAKE, require_extra
from cordwood.model.rng import SystemRng
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.byte_progress import byte_display
from cordwood.surfaces.cli.command import FAILED, JsonOption, command, print_document
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import TopicsOption
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, parse_size

EPILOG = """\b
Examples:
  cordwood archive /var/lib/kafka/data s3://backups/kafka
  cordwood archive /data1 /data2 s3://backups/kafka --topic 'orders*' --throttle 50M
  cordwood archive /data file:///mnt/archive --dry-run
  cordwood archive /data gs://backups/kafka --active     the broker has stopped
  cordwood archive /data s3://backups/kafka --collect-garbage
  cordwood explain s3://backups/kafka                    an archive is a LOG_DIR

\b
The keys of the store and its endpoint are those of its own tools: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS,
AZURE_STORAGE_ACCOUNT_NAME, ...

\b
Exit codes: 0 all is archived; 1 a partition could not be, or the store failed;
2 usage, or a directory that is not Kafka's."""


@command("archive")
def archive_command(
    context: typer.Context,
    places: Annotated[list[str], typer.Argument(metavar="LOG_DIR... URL", show_default=False)],
    *,
    topic: TopicsOption = None,
    active: Annotated[
        bool,
        typer.Option("--active", help="Active segments too, of a broker that stopped cleanly."),
    ] = False,
    throttle: Annotated[
        str | None, typer.Option(metavar="RATE", help="Bytes copied per second, such as 50M.")
    ] = None,
    collect_garbage: Annotated[
        bool,
        typer.Option(
            "--collect-garbage", help="Remove objects that no manifest has named for a day."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be copied; copy nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy the closed segments of logs to an archive in object storage.

    LOG_DIR is an entry of a broker's log.dirs, or one partition's directory in it. It is only read:
    a Kafka or a Cordwood may run on it. URL is s3://BUCKET/PREFIX, gs://, az:// or file:///DIR.

    What the archive has already is not copied again. A run that breaks off continues where it was.
    Files are Kafka's own; a manifest for each partition names them, with their SHA-256. Of two runs
    that archive one partition at the same time, one is refused.
    """
    STOPPING.command("cordwood archive", note="what was committed to the archive stays there")
    screen = context.with_resource(Screen())
    if len(places) < 2 or "://" not in places[-1]:
        raise ConfigError("name one LOG_DIR at least, then the URL of the archive")
    require_extra(LAKE, what="cordwood archive")
    # What speaks to object storage is loaded where it is used.
    from cordwood.archiving.archive_logs import archive_logs  # noqa: PLC0415
    from cordwood.storage.archives.archive import Archive  # noqa: PLC0415
    from cordwood.storage.objects.object_store import ObjectStore  # noqa: PLC0415

    log_dirs = tuple(map(Path, places[:-1]))
    clock = SystemClock()
    settings = reread(lambda: read_settings(SettingOptions(log_dirs=log_dirs, defaults=True)))
    request = ArchiveRequest(
        logs=CleanRequest(
            log_dirs=log_dirs,
            resolve=settings.resolve,
            now_ms=clock.now_ms(),
            topics=tuple(topic or ()),
            dry_run=True,
            for_reading=True,
            producer_expiration_ms=settings.broker.producer_id_expiration_ms,
            metadata_version=settings.metadata_version,
        ),
        has_active=active,
        bytes_per_second=None if throttle is None else parse_size(throttle, option="--throttle"),
        collects_garbage=collect_garbage,
        dry_run=dry_run,
    )
    archive = Archive(ObjectStore(places[-1]))
    with byte_display(screen, "archive", shown=not as_json) as listener:
        report = archive_logs(request, archive, clock=clock, rng=SystemRng(), listener=listener)
    for warning in report.warnings:
        screen.line(warning)
    if as_json:
        print_document(report)
    else:
        _show(report)
    if not report.is_complete:
        raise typer.Exit(FAILED)


_COLUMNS = (
    Column("partition"),
    Column("result"),
    Column("segments", is_number=True),
    Column("bytes", is_number=True),
    Column("from", is_number=True),
    Column("to", is_number=True),
    Column("not yet", is_number=True),
    Column("why", is_prose=True),
)


def _show(report: ArchiveReport) -> None:
    shown = [
        each
        for each in report.partitions
        if each.status not in {ArchiveStatus.UNCHANGED, ArchiveStatus.LEFT_ALONE}
    ]
    if shown:
        print_table(
            "Archived" if not report.dry_run else "Would be archived",
            _COLUMNS,
            [_cells(each) for each in shown],
        )
    copied = sum(each.bytes for each in shown)
    segments = sum(each.segments for each in shown)
    print_text(
        f"{report.url}: {counted(segments, 'segment')}, {format_bytes(copied)} of "
        f"{counted(len(report.partitions), 'partition')} in {report.elapsed_s:.1f} s; "
        f"{counted(sum(report.requests.values()), 'request')}"
    )
    if report.garbage_objects:
        print_text(
            f"garbage: {counted(report.garbage_objects, 'object')}, "
            f"{format_bytes(report.garbage_bytes)}"
        )


def _cells(row: ArchivedPartition) -> list[str]:
    why = row.reason
    if row.lost_from is not None and row.lost_to is not None:
        why = f"offsets {row.lost_from:,} to {row.lost_to - 1:,} were deleted before"
    return [
        f"{row.topic}-{row.partition}",
        row.status,
        f"{row.segments:,}",
        format_bytes(row.bytes),
        _offset(row.log_start_offset),
        _offset(row.end_offset),
        format_bytes(row.bytes_left),
        why,
    ]


def _offset(offset: int | None) -> str:
    return "" if offset is None else f"{offset:,}"
