"""The trash of a broker at its HTTP endpoint: shown, restored from, emptied."""

from __future__ import annotations

import asyncio
import re

from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.hold import Hold, parse_target
from cordwood.model.uuids import parse_uuid
from cordwood.node.node import Node
from cordwood.queries.trash import EmptiedTrash, RestoredTopic
from cordwood.storage.broker_trash import TRASH_DIR, BrokerTrash
from cordwood.storage.trash_contents import TrashContents, TrashedTopic
from cordwood.surfaces.http.server import Request

_MILLISECONDS = re.compile(r"[0-9]{1,15}", re.ASCII)


def show(node: Node) -> TrashContents:
    """The entries of the trash, the oldest first."""
    return _trash(node).contents()


def restore(node: Node, request: Request) -> RestoredTopic:
    """Restores the deleted topic `topic`, that with the id `topic_id` if there are several.

    With `hold` it is held by a hold of that id.

    Raises:
        ConfigError: the request is wrong, or the broker has no trash.
        CordwoodError: it is not possible; nothing has changed.
    """
    trash = _trash(node)
    topic, partition = parse_target(request.one("topic"))
    if partition is not None or not _is_deleted(trash, topic):
        removed = _has_segments(trash, topic, partition)
        raise ConfigError(
            f"--topic {request.one('topic')}: segments are put back while the broker is stopped: "
            f"cordwood trash restore {trash.directory} LOG_DIR"
            if removed
            else f"--topic {request.one('topic')}: there is nothing of it in the trash"
        )
    known = request.one("topic_id")
    try:
        topic_id = parse_uuid(known) if known else None
    except CorruptError as error:
        raise ConfigError(f"--id {known}: {error}") from error
    holds, hold_id = node.cleaner.logs.context.holds, request.one("hold")
    if hold_id:
        holds.add(
            Hold(
                id=hold_id,
                topic=topic,
                partition=None,
                reason=request.one("reason"),
                by=request.one("by"),
                created_ms=node.clock.now_ms(),
            )
        )
    work = node.restoration.restore(topic, topic_id)
    try:
        done = asyncio.run_coroutine_threadsafe(work, node.broker.thread.loop).result()
    except BaseException:
        if hold_id:
            holds.release(hold_id, by=request.one("by"))
        raise
    return RestoredTopic(
        restored=TrashedTopic.of(done.topic, size_bytes=_size(node, topic)),
        offsets=done.offsets,
        hold=hold_id or None,
    )


def empty(node: Node, request: Request) -> EmptiedTrash:
    """Deletes what was removed at least `older_than_ms` ago; only looks with `dry_run=true`.

    Raises:
        ConfigError: the request is wrong, or the broker has no trash.
    """
    text = request.one("older_than_ms")
    if not _MILLISECONDS.fullmatch(text):
        raise ConfigError(f"older_than_ms={text[:40]}: expected a number of at most 15 digits")
    trash, until_ms = _trash(node), node.clock.now_ms() - int(text)
    is_dry_run = request.one("dry_run", "false") == "true"
    if is_dry_run:
        deleted = trash.contents().removed_until(until_ms)
    else:
        deleted = trash.remove_until(until_ms)
    return EmptiedTrash(dry_run=is_dry_run, deleted=deleted)


def _trash(node: Node) -> BrokerTrash:
    trash = node.cleaner.logs.context.trash
    if trash is None:
        raise ConfigError(f"this broker has no trash: {TRASH_DIR} is not set")
    return trash


def _is_deleted(trash: BrokerTrash, topic: str) -> bool:
    with trash.access("looking for deleted topics"):
        return any(each.name == topic for each in trash.topics.all())


def _has_segments(trash: BrokerTrash, topic: str, partition: int | None) -> bool:
    return any(
        each.topic_partition.topic == topic
        and partition in {None, each.topic_partition.partition}
        and each.removals()
        for each in trash.partitions()
    )


def _size(node: Node, topic: str) -> int:
    logs = node.cleaner.logs.logs()
    return sum(log.size_bytes for log in logs if log.topic_partition.topic == topic)
