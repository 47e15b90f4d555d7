"""The logs of deleted topics, on their way to the trash and back.

The rules of a deletion are those of `storage.trashed_topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.trash_notes import RemovedPartition
from cordwood.model.audit import LogDeleted, audit
from cordwood.model.errors import CordwoodError, TrashError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.directory_names import live_directory_name
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedLog:
    """A log that comes back: `staged` is its directory, marked `-delete`, where it is to be."""

    partition: TopicPartition
    topic_id: UUID
    staged: Path
    before: RemovedPartition


def removed_partition(
    log: PartitionLog, *, leader_epoch: int, partition_epoch: int
) -> RemovedPartition:
    """A log that is about to be deleted, as its topic's note has it."""
    return RemovedPartition(
        partition=log.topic_partition.partition,
        log_dir=str(log.log_dir),
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        recovery_point=log.offsets.recovery_point,
    )


def belongs_to_trash(log: PartitionLog) -> bool:
    """Whether a log is one of a topic that is noted in the trash; False if that cannot be read."""
    trash = log.context.trash
    if trash is None:
        return False
    try:
        return trash.waits_for(log.topic_id, log.topic_partition, log.log_dir)
    except TrashError as error:
        _log.warning("%s", error)
        return False


def close_for_trash(log: PartitionLog) -> bool:
    """Closes a log that goes to the trash, so that it is as after a clean stop; whether it is."""
    if not belongs_to_trash(log):
        return False
    try:
        log.close()
    except CordwoodError as error:
        _log.warning("%s cannot be closed, and is recovered if it is restored: %s", log, error)
        return False
    return True


def note_closed(context: LogContext, closed: Iterable[PartitionLog]) -> None:
    """Notes which logs of deleted topics were closed; a note that fails is logged.

    Without it they are recovered when they are restored.
    """
    trash = context.trash
    numbers: dict[UUID, list[int]] = {}
    for log in closed:
        assert log.topic_id is not None, "of a noted topic"
        numbers.setdefault(log.topic_id, []).append(log.topic_partition.partition)
    for topic_id, partitions in numbers.items():
        assert trash is not None, "logs were closed for it"
        try:
            trash.note_closed(topic_id, partitions)
        except TrashError as error:
            _log.warning("%s", error)


def dispose_of(log: PartitionLog) -> bool:
    """Removes the directory of a deleted log, or moves it to the trash; False if it stays.

    Raises:
        StorageError: its log directory is offline, or has just failed.
    """
    trash = log.context.trash
    size_bytes = log.size_bytes
    if trash is not None and log.topic_id is not None:
        try:
            with log.lock:
                log.close_handlers()
                taken = trash.take(log.directory, log.topic_id, log.topic_partition)
        except TrashError as error:
            _log.warning("%s; it is tried again", error)
            return False
        if taken:
            _log.info("Moved the log for partition %s to the trash", log.topic_partition)
            _audit_deleted(log, size_bytes, in_trash=True)
            return True
    log.delete()
    _audit_deleted(log, size_bytes)
    _log.info("Deleted log for partition %s in %s.", log.topic_partition, log.directory)
    return True


def _audit_deleted(log: PartitionLog, size_bytes: int, *, in_trash: bool = False) -> None:
    audit(
        LogDeleted(
            partition=log.topic_partition,
            directory=str(log.directory),
            topic_id=None if log.topic_id is None else uuid_text(log.topic_id),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            size_bytes=size_bytes,
            in_trash=in_trash,
        )
    )


def open_returned(returned: ReturnedLog, config: LogConfig, context: LogContext) -> PartitionLog:
    """Gives a log that comes back the name of one that is served, and opens it.

    It is recovered from its recovery point on, unless it was closed.

    Raises:
        CordwoodError: it cannot be opened.
    """
    before, log_dir, fs = returned.before, returned.staged.parent, context.fs
    directory = log_dir / live_directory_name(returned.partition)
    with context.failures.guard(log_dir, f"restoring {returned.partition} in"):
        fs.rename(returned.staged, directory)
        fs.sync_directory(log_dir)
    request = LoadRequest(
        directory=directory,
        topic_partition=returned.partition,
        config=config,
        context=context,
        clean_shutdown=before.is_closed,
        recovery_point=before.log_end_offset if before.is_closed else before.recovery_point,
        log_start_offset=before.log_start_offset,
        topic_id=returned.topic_id,
    )
    try:
        log = load_log(request)
    except CordwoodError:
        with context.failures.guard(log_dir, f"leaving {returned.partition} in"):
            fs.rename(directory, returned.staged)
        raise
    log.update_high_watermark(before.high_watermark)
    return log
