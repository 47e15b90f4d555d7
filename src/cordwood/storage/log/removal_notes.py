"""Notes that a running log makes in the trash before segments leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cordwood.configs.log_config import LogConfig
from cordwood.format.trash_notes import (
    COMPACTION,
    DELETED_RECORDS,
    RETENTION,
    Removal,
    Rewritten,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.deleted_files import DeletedFiles
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Compacted segments; `cleaner_checkpoint` is the line before the compaction."""

    rewritten: tuple[Rewritten, ...]
    cleaner_checkpoint: int | None


class NotedLog(Protocol):
    """A log, locked."""

    topic_partition: TopicPartition
    config: LogConfig
    context: LogContext
    segments: SegmentList
    log_start_offset: int
    leader_epochs: LeaderEpochCache
    deleted_files: DeletedFiles

    @property
    def directory(self) -> Path:
        """The directory of its files."""


def is_trashed(log: NotedLog) -> bool:
    """Whether what is removed from a log goes to the trash; not from the future log of a move."""
    return (
        log.context.trash is not None
        and log.config.cordwood_trash_ms > 0
        and log.directory.name == str(log.topic_partition)
    )


def trash_path(log: NotedLog) -> str | None:
    """The directory for files that are removed from a log; None if they are deleted."""
    trash = log.context.trash
    return str(trash.directory) if trash is not None and is_trashed(log) else None


def note_segments(log: NotedLog, doomed: Sequence[LogSegment], *, rest: SegmentList) -> None:
    """Notes the oldest segments of a log, of which `rest` stays, if its settings say so.

    Of deleted records the log start offset before is not known: it is noted as if none had been
    deleted from these segments.

    Raises:
        TrashError: it cannot be noted.
    """
    log.deleted_files.settle(doomed, log.directory)
    if not doomed or not is_trashed(log):
        return
    first, base = rest.first, doomed[0].base_offset
    is_rolled = len(rest) == 1 and not first.size_bytes
    why = DELETED_RECORDS if first.base_offset <= log.log_start_offset else RETENTION
    start = base if why == DELETED_RECORDS else max(log.log_start_offset, base)
    _note(
        log,
        doomed,
        why=why,
        end_offset=first.base_offset,
        log_start_offset=start,
        rolled=first.base_offset if is_rolled else None,
    )


def note_replaced(
    log: NotedLog, old: Sequence[LogSegment], replacement: Replacement | None
) -> None:
    """Notes segments that a compacted one is about to replace; nothing without a `replacement`.

    Raises:
        TrashError: it cannot be noted.
    """
    log.deleted_files.settle(old, log.directory)
    if replacement is None or not is_trashed(log):
        return
    after = log.segments.higher(old[-1].base_offset)
    assert after is not None, "the active segment is not compacted"
    _note(
        log,
        old,
        why=COMPACTION,
        end_offset=after.base_offset,
        log_start_offset=max(log.log_start_offset, old[0].base_offset),
        replacement=replacement,
    )


def _note(
    log: NotedLog,
    segments: Sequence[LogSegment],
    *,
    why: str,
    end_offset: int,
    log_start_offset: int,
    rolled: int | None = None,
    replacement: Replacement | None = None,
) -> None:
    trash, now_ms = log.context.trash, log.context.clock.now_ms()
    assert trash is not None, "there is one"
    removal = Removal(
        at_ms=now_ms,
        why=why,
        topic_id=None,
        segments=tuple(each.base_offset for each in segments),
        end_offset=end_offset,
        files=(),
        log_start_offset=log_start_offset,
        leader_epochs=tuple(
            (each.epoch, each.start_offset) for each in log.leader_epochs.epoch_entries
        ),
        cleaner_checkpoint=None if replacement is None else replacement.cleaner_checkpoint,
        rewritten=() if replacement is None else replacement.rewritten,
        rolled=rolled,
        expires_ms=now_ms + log.config.cordwood_trash_ms,
    )
    trash.note(log.directory, removal)
