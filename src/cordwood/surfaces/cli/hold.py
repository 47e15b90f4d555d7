"""`cordwood hold`: legal holds on topics, of a stopped log directory or at a running broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cleanup.access.offline.directories import locked, open_log_dirs
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.hold import Hold, parse_target
from cordwood.model.rng import SystemRng
from cordwood.queries.brokers import BrokerQuestion, Place, find_brokers
from cordwood.queries.holds import merged
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldAnswer, HoldRegistry, Holds, holds_of
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
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.user import user_name
from cordwood.surfaces.cli.values import iso_moment

EPILOG = """\b
Examples:
  cordwood hold add /data1 /data2 --topic orders --reason 'case 7'
  cordwood hold add --log-dir /tmp/logs --topic orders:3 --id case-7
  cordwood hold list --bootstrap-server localhost:9092
  cordwood hold release --log-dir /tmp/logs --id case-7

\b
Exit codes: 0 done; 1 failed; 2 usage; 3 a directory is in use."""

_KAFKA = (
    "Cordwood removes nothing of it. A Kafka that runs on a log directory, or has another replica, "
    "ignores holds."
)

app = command_group(
    "hold",
    epilog=EPILOG,
    help="Legal holds: while a topic or a partition is held, nothing of it is removed by "
    "retention, compaction, DeleteRecords or DeleteTopics of a Cordwood broker, nor by `cordwood "
    "clean`. A Kafka that runs on a log directory ignores holds. LOG_DIR... "
    "are all log directories of a stopped broker; a running Cordwood broker is named by "
    "--log-dir, --bootstrap-server or --url.",
)


@app.command("add", epilog=EPILOG)
@command("hold add")
def add_command(
    topic: Annotated[
        str, typer.Option(metavar="TOPIC[:PARTITION]", help="What is held from now on.")
    ],
    log_dirs: OptionalLogDirsArgument = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its name.  [default: made]")
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who ask.")] = "",
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who adds it.  [default: the user's name]"),
    ] = None,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Adds a hold; when this returns, Cordwood removes nothing any more that it covers.

    It also covers partitions that the topic gets later. A Kafka that runs on a log directory, or
    has another replica, ignores holds.
    """
    name, partition = parse_target(topic)
    hold = Hold(
        id=f"hold-{SystemRng().unique_id()[:8]}" if id_ is None else id_,
        topic=name,
        partition=partition,
        reason=reason,
        by=user_name() if by is None else by,
        created_ms=SystemClock().now_ms(),
    )
    if _is_stopped(log_dirs, place):
        answer = _add_offline(log_dirs or [], hold)
    else:
        query = {"id": hold.id, "topic": name, "reason": reason, "by": hold.by}
        if partition is not None:
            query["partition"] = str(partition)
        answer = addressed_broker(place).ask(_question("/holds/add", query))
    _print(answer, as_json=as_json, line=f"Added: {hold.target} is held by {hold.id}.\n{_KAFKA}")


@app.command("list", epilog=EPILOG)
@command("hold list")
def list_command(
    log_dirs: OptionalLogDirsArgument = None,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Lists the holds, the oldest first. LOG_DIR may be in use."""
    if _is_stopped(log_dirs, place):
        answer = holds_of(_read(_whole(log_dirs or [])))
    else:
        brokers = find_brokers(place)
        print_brokers(brokers, as_json=True)
        answer = merged(brokers.ask(BrokerQuestion(path="/holds", answer=Holds)))
    _print(answer, as_json=as_json)
    for text in answer.unreadable.values():
        typer.echo(f"cordwood hold list: {text}", err=True)
    if answer.unreadable:
        raise typer.Exit(1)


@app.command("release", epilog=EPILOG)
@command("hold release")
def release_command(
    id_: Annotated[str, typer.Option("--id", metavar="ID", help="The hold.")],
    log_dirs: OptionalLogDirsArgument = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who releases it.  [default: the user's name]"),
    ] = None,
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Releases a hold: what expired meanwhile goes at the next check."""
    name = user_name() if by is None else by
    if _is_stopped(log_dirs, place):
        with _locked(log_dirs or []) as (registry, _):
            registry.release(id_, by=name)
            answer = holds_of(registry)
    else:
        answer = addressed_broker(place).ask(_question("/holds/release", {"id": id_, "by": name}))
    _print(answer, as_json=as_json, line=f"Released: {id_}.")


def _question(path: str, parameters: Mapping[str, str]) -> BrokerQuestion[Holds]:
    """A change, which is answered by the holds after it."""
    return BrokerQuestion(path=path, answer=Holds, parameters=parameters, method="POST")


def _is_stopped(log_dirs: Sequence[Path] | None, place: Place) -> bool:
    """Whether directories of a stopped broker are meant.

    Raises:
        ConfigError: a running broker is named, too.
    """
    if log_dirs:
        require_stopped("LOG_DIR", place)
    return bool(log_dirs)


def _whole(paths: Sequence[Path]) -> list[OfflineLogDirectory]:
    found = open_log_dirs(paths)
    for each in found:
        if each.only is not None:
            raise ConfigError(
                f"{paths[0]}: a partition's directory; holds are in the log directory {each.path}"
            )
    return found


def _read(log_dirs: Sequence[OfflineLogDirectory]) -> HoldRegistry:
    registry = HoldRegistry(OS)
    registry.read(each.path for each in log_dirs)
    return registry


@contextmanager
def _locked(paths: Sequence[Path]) -> Iterator[tuple[HoldRegistry, list[OfflineLogDirectory]]]:
    log_dirs = _whole(paths)
    with locked(log_dirs, dry_run=False):
        yield _read(log_dirs), log_dirs


def _add_offline(paths: Sequence[Path], hold: Hold) -> Holds:
    with _locked(paths) as (registry, log_dirs):
        partitions = [each.topic_partition for d in log_dirs for each in d.partitions()]
        if not any(hold.covers(partition) for partition in partitions):
            where = ", ".join(str(each.path) for each in log_dirs)
            raise ConfigError(f"--topic {hold.target}: there is no such log in {where}")
        registry.add(hold)
        return holds_of(registry)


_COLUMNS = (
    Column("hold"),
    Column("held"),
    Column("since"),
    Column("by"),
    Column("reason", is_prose=True),
)


def _print(answer: Holds, *, as_json: bool, line: str = "") -> None:
    if as_json:
        print_document(answer)
        return
    if line:
        typer.echo(line)
    if answer.holds:
        print_table("Holds", _COLUMNS, [_row(each) for each in answer.holds])
    elif not answer.unreadable:
        typer.echo("No holds.")


def _row(hold: HoldAnswer) -> list[str]:
    return [
        hold.id,
        hold.target if hold.node_id is None else f"{hold.target} on broker {hold.node_id}",
        iso_moment(hold.created_ms),
        hold.by,
        hold.reason,
    ]
