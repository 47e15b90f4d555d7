"""A log as its parts see it: reader, flushes, metadata files, truncation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.deleted_files import DeletedFiles
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_offsets import LogOffsets
from cordwood.storage.segment.segment_list import SegmentList


class LogState(Protocol):
    """A log, whose segments and offsets are replaced, never changed."""

    topic_partition: TopicPartition
    config: LogConfig
    context: LogContext
    segments: SegmentList
    offsets: LogOffsets
    leader_epochs: LeaderEpochCache
    deleted_files: DeletedFiles
    is_closed: bool

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while the log changes; re-entrant."""

    @property
    def directory(self) -> Path:
        """The directory of its files."""

    def guard(self, doing: str) -> AbstractContextManager[None]:
        """Turns files' errors into StorageErrors, and takes the directory offline."""

    def require_open(self) -> None:
        """Raises StorageError if the log is closed."""
