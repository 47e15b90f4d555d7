"""`cordwood trash`: what `cordwood clean --trash` has removed: listed, put back, deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from cordwood.format.trash_notes import Removal
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.hold import parse_target
from cordwood.storage.filesystem import OS, DirectoryLock
from cordwood.storage.offline_directories import find_places, locked, open_log_dirs
from cordwood.storage.trash import TrashedPartition, trashed_partitions
from cordwood.storage.trash_restore import Restored, restore
from cordwood.surfaces.cli.clean_progress import columns
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)
from cordwood.surfaces.cli.running_broker import broker_command
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.values import format_bytes, parse_duration, parse_path, parse_time

EPILOG = """\b
Examples:
  cordwood trash list /mnt/spare/trash
  cordwood trash restore /mnt/spare/trash /data1 /data2 --topic orders --dry-run
  cordwood trash restore /mnt/spare/trash /data1 --since 2026-11-26T00:00
  cordwood trash empty /mnt/spare/trash --older-than 7d

\b
Exit codes: 0 done; 1 something could not be done; 2 usage; 3 a directory is
in use."""

Value = dict[str, Any]

app = typer.Typer(
    name="trash",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
    help="What `cordwood clean --trash DIR` has removed from logs. TRASH is that DIR.",
)

_Trash = Annotated[Path, typer.Argument(parser=parse_path, metavar="TRASH", hidden=True)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@app.callback()
def _options(
    context: typer.Context,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    context.obj = {"log_level": log_level, "log_format": log_format, "log_file": log_file}


@app.command("list", epilog=EPILOG)
def list_command(
    context: typer.Context,
    trash: _Trash,
    topic: Annotated[str, typer.Option(metavar="GLOB", help="Only these topics.")] = "*",
    as_json: _Json = False,
) -> None:
    """Lists the removals whose segments are in a trash, the oldest first."""
    with broker_command(context, "trash list", **context.obj):
        found = [
            (each, each.removals(), each.unknown())
            for each in trashed_partitions(trash)
            if fnmatchcase(each.topic_partition.topic, topic)
        ]
    removals = [
        _removal(each.topic_partition, removal) for each, notes, _ in found for removal in notes
    ]
    unknown = [str(each.directory / name) for each, _, names in found for name in names]
    if as_json:
        typer.echo(json.dumps({"removals": removals, "unknown": unknown}))
        return
    if removals:
        print_table(f"Trash {trash}", _COLUMNS, [_row(each) for each in removals])
    if unknown:
        typer.echo(f"{len(unknown)} other files, which no note describes")
    if not removals and not unknown:
        typer.echo("Nothing is in the trash.")


@app.command("restore", epilog=EPILOG)
def restore_command(
    context: typer.Context,
    trash: _Trash,
    log_dirs: Annotated[
        list[Path], typer.Argument(parser=parse_path, metavar="LOG_DIR", hidden=True)
    ],
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC[:PARTITION]", help="Only this topic, or partition."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only removals since then: ms or ISO 8601."),
    ] = None,
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Puts removed segments back into the logs of a stopped broker, the newest removal first.

    The log is then as before the removal, except for what was appended since. Where it has changed
    otherwise, the removal and all before it stay in the trash.
    """
    with broker_command(context, "trash restore", **context.obj):
        since_ms = 0 if since is None else parse_time(since, option="--since")
        wanted = _wanted(trash, topic)
        results = _restore(trash, wanted, log_dirs, since_ms=since_ms, dry_run=dry_run)
    _show_restored(results, as_json=as_json, dry_run=dry_run)
    if any(each.refused for each in results):
        raise typer.Exit(1)


@app.command("empty", epilog=EPILOG)
def empty_command(
    context: typer.Context,
    trash: _Trash,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only what went there before: 7d, 12h; 0s for all."),
    ],
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Deletes what was removed longer ago than a time; it cannot be put back any more."""
    with broker_command(context, "trash empty", **context.obj), ExitStack() as stack:
        age_ms = parse_duration(older_than, option="--older-than")
        until_ms = SystemClock().now_ms() - age_ms
        partitions = trashed_partitions(trash)
        if not dry_run:
            stack.callback(DirectoryLock(trash).release)
        deleted = []
        for each in partitions:
            for removal in each.removals():
                if removal.at_ms <= until_ms:
                    deleted.append(_removal(each.topic_partition, removal))
                    if not dry_run:
                        each.forget(removal)
            if not age_ms and not dry_run and OS.exists(each.directory):
                OS.remove_tree(each.directory)
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run, "deleted": deleted}))
        return
    if deleted:
        title = "Would be deleted" if dry_run else "Deleted"
        print_table(title, _COLUMNS, [_row(each) for each in deleted])
    total = format_bytes(sum(each["bytes"] for each in deleted))
    typer.echo(f"{len(deleted)} removals, {total}")


def _wanted(trash: Path, topic: str | None) -> list[TrashedPartition]:
    found = trashed_partitions(trash)
    if topic is not None:
        name, number = parse_target(topic)
        found = [
            each
            for each in found
            if each.topic_partition.topic == name
            and number in {None, each.topic_partition.partition}
        ]
    if not found:
        what = "" if topic is None else f" of {topic}"
        raise ConfigError(f"{trash}: there is nothing{what} in this trash")
    return found


def _restore(
    trash: Path,
    wanted: Sequence[TrashedPartition],
    paths: Sequence[Path],
    *,
    since_ms: int,
    dry_run: bool,
) -> list[Restored]:
    log_dirs = open_log_dirs(paths)
    if any(OS.identity_of(each.path) == OS.identity_of(trash) for each in log_dirs):
        raise ConfigError(f"{trash}: it is the trash; LOG_DIR is where its segments are to go")
    results = []
    with locked(log_dirs, dry_run=dry_run) as locks, ExitStack() as stack:
        locks.take(trash)
        places = {
            place.partition.topic_partition: place
            for place in find_places(log_dirs)
            if place.partition.left_alone is None
        }
        screen = stack.enter_context(Screen())
        bar = None
        if screen.is_terminal:
            bar = stack.enter_context(screen.bars(*columns()))
            task = bar.add_task("restoring", total=len(wanted))
        for each in wanted:
            place = places.get(each.topic_partition)
            if place is None:
                where = ", ".join(str(log_dir.path) for log_dir in log_dirs)
                results.append(_refused(each, log_dirs[0].path, f"there is no such log in {where}"))
            elif (refused := place.refused or locks.take_for(place)) is not None:
                results.append(_refused(each, place.log_dir.path, refused))
            else:
                try:
                    found = restore(each, place.log_dir, since_ms=since_ms, dry_run=dry_run)
                except (CordwoodError, OSError) as error:
                    found = _refused(each, place.log_dir.path, str(error))
                results.append(found)
            if bar is not None:
                bar.advance(task)
    return results


def _refused(trashed: TrashedPartition, log_dir: Path, reason: str) -> Restored:
    return Restored(trashed.topic_partition, log_dir, refused=reason)


def _show_restored(results: Sequence[Restored], *, as_json: bool, dry_run: bool) -> None:
    restored = [
        _removal(each.topic_partition, removal) | {"log_dir": str(each.log_dir)}
        for each in results
        for removal in each.removals
    ]
    refused = {str(each.topic_partition): each.refused for each in results if each.refused}
    if as_json:
        document = {"dry_run": dry_run, "restored": restored, "refused": refused}
        typer.echo(json.dumps(document))
        return
    for name, reason in refused.items():
        typer.echo(f"{name}: not restored: {reason}", err=True)
    if restored:
        title = "Would be restored" if dry_run else "Restored"
        print_table(title, _COLUMNS, [_row(each) for each in restored])
    total = format_bytes(sum(each["bytes"] for each in restored))
    typer.echo(f"{len(restored)} removals, {total}")


_COLUMNS = (
    Column("partition"),
    Column("removed"),
    Column("by"),
    Column("segments", is_number=True),
    Column("offsets", is_number=True),
    Column("size", is_number=True),
)


def _removal(partition: object, removal: Removal) -> Value:
    return {
        "partition": str(partition),
        "at_ms": removal.at_ms,
        "why": removal.why,
        "topic_id": removal.topic_id,
        "base_offset": removal.segments[0],
        "end_offset": removal.end_offset,
        "segments": list(removal.segments),
        "bytes": removal.size_bytes,
    }


def _row(removal: Value) -> list[str]:
    moment = datetime.fromtimestamp(removal["at_ms"] / 1000, UTC)
    return [
        removal["partition"],
        moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        removal["why"],
        str(len(removal["segments"])),
        f"{removal['base_offset']}-{removal['end_offset'] - 1}",
        format_bytes(removal["bytes"]),
    ]
