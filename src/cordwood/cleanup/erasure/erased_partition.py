"""A partition that records are erased from, be its broker stopped or running."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.erasure.rewriting import compaction_without, touched_by
from cordwood.cleanup.erasure.stray_files import StrayFile, stray_files_in
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.reading.source import SegmentSource


@dataclass(slots=True, kw_only=True)
class LogOutcome:
    """Result of a partition; `error` is empty unless it failed.

    `is_refused`: it must not be erased, and what was planned of it is given up.
    """

    error: str = ""
    is_refused: bool = False
    warnings: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class ErasedPartition(ABC):
    """A log that records are erased from; methods are called in the order given here."""

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        *,
        home: Path,
        request: EraseRequest,
        fs: FileSystem,
    ) -> None:
        """Takes its directory, its name, its log directory, and what is erased."""
        self.outcome = LogOutcome()
        self.home = home
        self.directory = directory
        self.partition = partition
        #: Log files of other names in its directory, such as copies that somebody has made.
        self.strays: list[StrayFile] = []
        self._request = request
        self._fs = fs
        self._captured: Captured | None = None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Records the error of this partition, so that the others continue."""
        try:
            yield
        except (CordwoodError, OSError) as error:
            self.outcome.error = self.outcome.error or str(error)

    @abstractmethod
    def recover(self) -> None:
        """Finishes or undoes what an interrupted run has left; removes what waits for removal.

        Raises:
            CorruptError: that cannot be decided.
        """

    @abstractmethod
    def capture(self) -> None:
        """Reads the log.

        Raises:
            CorruptError, OSError, StorageError: it cannot be read.
        """

    @property
    def captured(self) -> Captured:
        """The log as it was last read."""
        assert self._captured is not None, "a log is read before it is planned on"
        return self._captured

    def _strays_beside(self, live: set[str]) -> list[StrayFile]:
        """The log files in its directory that have none of these names."""
        found = stray_files_in(self.directory, self.partition, fs=self._fs)
        return [each for each in found if each.path.name not in live]

    @property
    def sources(self) -> tuple[SegmentSource, ...]:
        """Its segments that have any bytes; of the active segment what it had when it was read."""
        return tuple([source for source in self.captured.sources if source.size_bytes])

    @property
    @abstractmethod
    def end(self) -> int:
        """The offset up to which records are erased, exclusive: the log's end when it was read."""

    @abstractmethod
    def roll_if_touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """The active segment, to be searched again, if it had to be rolled for these offsets."""

    def touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """The segments that are rewritten: those with an erased offset."""
        return touched_by(erased, self.sources)

    @abstractmethod
    def cut_tail(self) -> None:
        """Removes a broken append at the log's end.

        Raises:
            CorruptError: what is there is no beginning of a batch.
        """

    @abstractmethod
    def committer(self, erased: OffsetRanges) -> CompactionCommitter | None:
        """Commits the rewritten segments, when an engine runs it; None if there is nothing to do.

        Raises:
            CorruptError, OSError, NoSpaceError: the active segment could not be rolled.
        """

    def _compaction(
        self, touched: tuple[SegmentSource, ...], erased: OffsetRanges, *, token: str
    ) -> LogCompaction:
        """Rewrites these segments, within the space that there is; `token` names its files."""
        attempt = Attempt(
            token=token,
            free_bytes=self._fs.free_bytes(self.directory),
            limits=Limits(space_max=self._request.max_extra_bytes),
        )
        without = compaction_without(self.captured, touched, erased, now_ms=self._request.now_ms)
        return replace(without, attempt=attempt)

    @abstractmethod
    def finish(self, committer: CompactionCommitter) -> None:
        """Ends the rewriting, and reads the log again.

        Raises:
            The error of the erasure, unless all segments are in place.
        """

    @abstractmethod
    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what tasks have staged: the run is interrupted."""

    @abstractmethod
    def conclude(self) -> None:
        """Removes what was marked to be removed meanwhile; called when all is rewritten.

        Raises:
            StalePlanError: the log is not the one that was read any more.
        """

    @abstractmethod
    def files(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Size and SHA-256 of its segments' files, by name; those `known` are not read again."""
