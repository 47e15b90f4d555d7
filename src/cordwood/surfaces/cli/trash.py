"""`cordwood trash`: what was removed from logs: listed, put back, deleted.

Everything is done in the directory of a stopped broker, or asked of a running one, which holds the
lock of its trash.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cleanup.access.offline.directories import find_places, locked, open_log_dirs
from cordwood.cleanup.access.offline.trash_restore import Restored, restore
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.hold import parse_target
from cordwood.queries.brokers import (
    AddressedBroker,
    BrokerQuestion,
    Place,
    find_brokers,
)
from cordwood.queries.trash import (
    EmptiedTrash,
    RestoredSegments,
    RestoredTopic,
    merged,
    of_topics,
)
from cordwood.storage.filesystem import OS
from cordwood.storage.trash import TrashedPartition, trashed_partitions
from cordwood.storage.trash_contents import (
    TrashContents,
    TrashedSegments,
    empty_trash,
    read_contents,
)
from cordwood.storage.trashed_topics import TrashedTopics
from cordwood.surfaces.cli.clean_progress import columns
from cordwood.surfaces.cli.command import (
    JsonOption,
    PlaceOptions,
    addressed_broker,
    command,
    print_brokers,
    print_document,
    require_stopped,
)
from cordwood.surfaces.cli.command_group import command_group
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument
from cordwood.surfaces.cli.tables import print_text
from cordwood.surfaces.cli.trash_tables import print_removals, print_total
from cordwood.surfaces.cli.user import user_name
from cordwood.surfaces.cli.values import counted, parse_duration, parse_path, parse_time

EPILOG = """\b
Examples:
  cordwood trash list --bootstrap-server localhost:9092
  cordwood trash restore --log-dir /data1 --topic orders --hold case-7
  cordwood trash list /mnt/spare/trash
  cordwood trash restore /mnt/spare/trash /data1 /data2 --topic orders --dry-run
  cordwood trash restore /mnt/spare/trash /data1 --since 2026-11-26T00:00
  cordwood trash empty /mnt/spare/trash --older-than 7d

\b
Exit codes: 0 done; 1 something could not be done; 2 usage; 3 a directory is
in use."""

app = command_group(
    "trash",
    epilog=EPILOG,
    help="What a broker with cordwood.trash.dir, or `cordwood clean --trash DIR`, has removed. "
    "TRASH is that directory, of a stopped broker; a running Cordwood broker is named by "
    "--log-dir, --bootstrap-server or --url.",
)

_Trash = Annotated[Path | None, typer.Argument(parser=parse_path, metavar="TRASH", hidden=True)]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@app.command("list", epilog=EPILOG)
@command("trash list")
def list_command(
    trash: _Trash = None,
    topic: Annotated[str, typer.Option(metavar="GLOB", help="Only these topics.")] = "*",
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Lists deleted topics, and removals of segments, the oldest first."""
    if trash is not None:
        require_stopped("TRASH", place)
        answer = read_contents(trash)
    else:
        brokers = find_brokers(place)
        print_brokers(brokers, as_json=True)
        answer = merged(brokers.ask(BrokerQuestion(path="/trash", answer=TrashContents)))
    answer = of_topics(answer, topic)
    if as_json:
        print_document(answer)
        return
    print_removals(f"Trash {answer.directory or 'of all brokers'}", answer.removals)
    if answer.unknown:
        print_text(f"{len(answer.unknown)} other files, which no note describes")
    if not answer.removals and not answer.unknown:
        print_text("Nothing is in the trash.")


@app.command("restore", epilog=EPILOG)
@command("trash restore")
def restore_command(
    trash: _Trash = None,
    log_dirs: OptionalLogDirsArgument = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC[:PARTITION]", help="Only this topic, or partition."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only removals since then: ms or ISO 8601."),
    ] = None,
    dry_run: _DryRun = False,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="TOPIC_ID", help="Of several deleted topics of this name.  [the last]"
        ),
    ] = None,
    hold: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Hold the restored topic by a hold of this name."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who holds it.  [default: the user's name]"),
    ] = None,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Restores a deleted topic at a running broker, or removed segments of a stopped one.

    A topic comes back with its name, id, settings, records and the committed offsets of groups.
    Unless it is held, its settings apply at the next check: what expired meanwhile goes again.

    Segments are put back into the logs of LOG_DIR..., the newest removal first. The log is then as
    before the removal, except for what was appended since. Where it has changed otherwise, the
    removal and all before it stay in the trash.
    """
    broker = _running(trash, place)
    if broker is not None:
        _require_for_topic(topic, since=since, dry_run=dry_run)
        name = user_name() if by is None else by
        query = {"topic": topic or "", "hold": hold or "", "by": name, "topic_id": id_ or ""}
        question = BrokerQuestion(
            path="/trash/restore", answer=RestoredTopic, parameters=query, method="POST"
        )
        _show_topic(broker.ask(question), as_json=as_json)
        return
    if hold is not None or id_ is not None:
        raise ConfigError(
            "--id and --hold are for a deleted topic at a running broker; `cordwood hold add` "
            "holds one of a stopped broker"
        )
    if trash is None or not log_dirs:
        raise ConfigError("LOG_DIR is missing: where the segments are to be put back")
    since_ms = 0 if since is None else parse_time(since, option="--since")
    wanted = _wanted(trash, topic)
    results = _restore(trash, wanted, log_dirs, since_ms=since_ms, dry_run=dry_run)
    _show_restored(results, as_json=as_json, dry_run=dry_run)
    if any(each.refused for each in results):
        raise typer.Exit(1)


@app.command("empty", epilog=EPILOG)
@command("trash empty")
def empty_command(
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only what went there before: 7d, 12h; 0s for all."),
    ],
    trash: _Trash = None,
    dry_run: _DryRun = False,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Deletes what was removed longer ago than a time; it cannot be put back any more."""
    age_ms = parse_duration(older_than, option="--older-than")
    broker = _running(trash, place)
    if broker is None:
        assert trash is not None, "or a broker"
        answer = _empty(trash, age_ms, dry_run=dry_run)
    else:
        query = {"older_than_ms": str(age_ms), "dry_run": str(dry_run).lower()}
        question = BrokerQuestion(
            path="/trash/empty", answer=EmptiedTrash, parameters=query, method="POST"
        )
        answer = broker.ask(question)
    if as_json:
        print_document(answer)
        return
    print_removals("Would be deleted" if dry_run else "Deleted", answer.deleted)
    print_total(answer.deleted)


def _empty(trash: Path, age_ms: int, *, dry_run: bool) -> EmptiedTrash:
    until_ms = SystemClock().now_ms() - age_ms
    if dry_run:
        deleted = read_contents(trash).removed_until(until_ms)
    else:
        deleted = empty_trash(trash, until_ms, with_unknown=not age_ms)
    return EmptiedTrash(dry_run=dry_run, deleted=deleted)


def _running(trash: Path | None, place: Place) -> AddressedBroker | None:
    """The running broker that is meant; None if a directory is.

    Raises:
        ConfigError: both are named, or neither.
        CordwoodError: no broker runs there.
    """
    if trash is None:
        return addressed_broker(place)
    require_stopped("TRASH", place)
    return None


def _require_for_topic(topic: str | None, *, since: str | None, dry_run: bool) -> None:
    if topic is None:
        raise ConfigError("--topic is missing: which deleted topic is to be restored?")
    if since is not None or dry_run:
        raise ConfigError("--since and --dry-run are for segments, of a stopped broker")


def _show_topic(answer: RestoredTopic, *, as_json: bool) -> None:
    if as_json:
        print_document(answer)
        return
    topic, offsets = answer.restored, answer.offsets
    print_removals("Restored", [topic])
    if offsets is None:
        print_text("The offsets of its groups are written when the broker starts next.")
    else:
        print_text(f"{counted(offsets, 'committed offset')}, {counted(len(topic.groups), 'group')}")
    if answer.hold:
        print_text(f"It is held by {answer.hold}: nothing of it goes until that is released.")
    else:
        print_text("Its settings apply again: what expired meanwhile goes at the next check.")


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
    if not found and topic is not None and _is_deleted_topic(trash, topic):
        raise ConfigError(
            f"{topic} was deleted: it is restored by the running broker, which is named by "
            "--log-dir, --bootstrap-server or --url"
        )
    if not found:
        what = "" if topic is None else f" of {topic}"
        raise ConfigError(f"{trash}: there is nothing{what} in this trash")
    return found


def _is_deleted_topic(trash: Path, topic: str) -> bool:
    return any(each.name == topic for each in TrashedTopics(trash).all())


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
    answer = RestoredSegments(
        dry_run=dry_run,
        restored=[
            TrashedSegments.of(each.topic_partition, removal, log_dir=each.log_dir)
            for each in results
            for removal in each.removals
        ],
        refused={str(each.topic_partition): each.refused for each in results if each.refused},
    )
    if as_json:
        print_document(answer)
        return
    for name, reason in answer.refused.items():
        typer.echo(f"{name}: not restored: {reason}", err=True)
    print_removals("Would be restored" if dry_run else "Restored", answer.restored)
    print_total(answer.restored)
