"""The requests and the reports of runs that archive or restore logs, and their listener."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from cordwood.cleanup.plan.request import CleanRequest
from cordwood.model.offsets import OFFSET_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRequest:
    """The logs to archive: those of `logs`.

    With `has_active`, active segments too, of brokers that have stopped in good order. With
    `collects_garbage`, objects are removed that no manifest has named for a day.
    """

    logs: CleanRequest
    has_active: bool = False
    bytes_per_second: int | None = None
    collects_garbage: bool = False
    dry_run: bool = False


class ArchiveStatus(StrEnum):
    """The result of a run for a log."""

    ARCHIVED = "archived"
    PLANNED = "planned"
    UNCHANGED = "unchanged"
    LEFT_ALONE = "left alone"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class ArchivedPartition:
    """A partition in the report of a run.

    `segments` and `bytes` are what was copied, or would be. The archive has the offsets from
    `log_start_offset` to before `end_offset`; None if it has nothing. `bytes_left` are those of
    segments that cannot be archived yet. `lost_from` and `lost_to` (exclusive) are offsets that
    were deleted before they were archived, None if there are none.
    """

    topic: str
    partition: int
    log_dir: str
    status: ArchiveStatus = ArchiveStatus.UNCHANGED
    reason: str = ""
    segments: int = 0
    bytes: int = 0
    log_start_offset: int | None = None
    end_offset: int | None = None
    bytes_left: int = 0
    lost_from: int | None = None
    lost_to: int | None = None


@dataclass(slots=True, kw_only=True)
class ArchiveReport:
    """The report of a run; `requests` to the store by kind, `bytes_written` to it.

    `garbage_objects` and their `garbage_bytes` were removed, or would be.
    """

    url: str
    dry_run: bool
    partitions: list[ArchivedPartition] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    bytes_written: int = 0
    garbage_objects: int = 0
    garbage_bytes: int = 0
    elapsed_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed."""
        return all(each.status is not ArchiveStatus.FAILED for each in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """The logs to restore: of `topics`, globs, empty for all, into the log directory `into`.

    Of each log, its records from `first_offset` to before `end_offset`; or from the first whose
    timestamp is `first_ms` or later to before the first whose timestamp is `end_ms` or later, ms,
    -1 for no bound. The rest of their batches is restored, too.
    """

    into: Path
    topics: tuple[str, ...] = ()
    first_offset: int = 0
    end_offset: int = OFFSET_MAX
    first_ms: int = -1
    end_ms: int = -1

    def wants(self, topic: str) -> bool:
        """Whether logs of a topic are wanted."""
        return not self.topics or any(fnmatch.fnmatchcase(topic, glob) for glob in self.topics)


@dataclass(slots=True, kw_only=True)
class RestoredPartition:
    """A partition in the report: it has the offsets from `log_start_offset` to `end_offset`."""

    topic: str
    partition: int
    directory: str
    segments: int = 0
    bytes: int = 0
    log_start_offset: int = 0
    end_offset: int = 0
    failure: str = ""


@dataclass(slots=True, kw_only=True)
class RestoreReport:
    """The report of a run; `has_metadata` if the cluster's metadata log was restored, too."""

    url: str
    partitions: list[RestoredPartition] = field(default_factory=list)
    has_metadata: bool = False
    bytes_read: int = 0
    elapsed_s: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed."""
        return not any(each.failure for each in self.partitions)


class ByteListener(Protocol):
    """Receives the progress of a copy, in any thread."""

    def begin(self, total_bytes: int) -> None:
        """Takes the number of bytes that will be copied, about."""

    def advance(self, size_bytes: int) -> None:
        """Adds bytes that were read."""


class Silent:
    """A listener that shows nothing."""

    def begin(self, total_bytes: int) -> None:
        """Shows nothing."""

    def advance(self, size_bytes: int) -> None:
        """Shows nothing."""
