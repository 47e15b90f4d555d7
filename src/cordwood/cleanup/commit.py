"""Makes plans true: retention's removals, and a round's rewritten groups, by the log's owner.

Nothing here decides anything. Each function first checks that what was planned on is still there.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteSegments, LocalLog.replaceSegments,
LogCleanerManager.doneCleaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cordwood.cleanup.announcements import (
    announced,
    begin_attempt,
    give_up_attempt,
    staging_errors,
)
from cordwood.cleanup.capture import Captured
from cordwood.cleanup.retention import RetentionPlan
from cordwood.cleanup.round import Round
from cordwood.cleanup.round_values import Discarded, Manifest
from cordwood.format.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import (
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.held_signals import held_signals
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log_dir import LogDir, require_closed
from cordwood.storage.replace import (
    STAGED_SUFFIX,
    Dispose,
    RoundJournal,
    StagedSegment,
    dispose_deleted,
    mark_deleted,
    put_in_place,
)

_log = logging.getLogger(__name__)


class StalePlanError(CordwoodError):
    """What a plan was made on has changed; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStats:
    """How the keys of a dirty section were gathered.

    `utilization` is how much of the memory for keys they took, 1 where they had to be spilled.
    """

    bytes_read: int
    elapsed_s: float
    keys: int
    utilization: float


@dataclass(slots=True)
class RoundResult:
    """How a round over one partition ended; `error` is None when it is committed.

    `placing_s` is how many seconds it took to put its groups in place.
    """

    name: str
    manifests: list[Manifest] = field(default_factory=list)
    error: Exception | None = None
    index: IndexStats | None = None
    placing_s: float = 0.0

    @property
    def discarded(self) -> Discarded:
        """Records that went, by reason."""
        total = Discarded()
        for manifest in self.manifests:
            total = total.plus(manifest.discarded)
        return total


def commit_retention(
    captured: Captured,
    plan: RetentionPlan,
    *,
    dispose: Dispose | None = None,
    fs: FileSystem = OS,
) -> None:
    """Removes the expired segments, after an empty one was made where all go.

    The leader epochs below the new log start offset go with them. A crash leaves fewer segments
    expired, and planning again gives the rest.

    Raises:
        StalePlanError: the segments are not those that were captured.
    """
    directory = captured.segments[0].directory
    view = captured.view
    bases = [segment.base_offset for segment in plan.expired]
    if bases != [s.base_offset for s in captured.segments[: len(bases)]]:
        raise StalePlanError(f"{view.topic_partition}: its segments have changed since the plan")
    if plan.roll and view.active.base_offset == view.log_end_offset:
        raise StalePlanError(f"{view.topic_partition}: an empty active segment cannot expire")
    if plan.roll:
        make_empty_segment(captured, view.log_end_offset, fs=fs)
    mark_deleted(directory, bases, fs=fs)
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    truncate_leader_epochs(directory, plan.log_start_offset, fs=fs)


def restart_log(
    captured: Captured, offset: int, *, dispose: Dispose | None = None, fs: FileSystem = OS
) -> None:
    """Restarts a log, empty, at `offset`, as Kafka does if that is beyond the log end offset.

    Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
    """
    directory = captured.segments[0].directory
    make_empty_segment(captured, offset, fs=fs)
    mark_deleted(
        directory, [s.base_offset for s in captured.segments if s.base_offset != offset], fs=fs
    )
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    epochs = directory / LEADER_EPOCH_CHECKPOINT
    if fs.exists(epochs):
        fs.replace_durably(epochs, build_leader_epoch_checkpoint([]))


def make_empty_segment(captured: Captured, base_offset: int, *, fs: FileSystem = OS) -> None:
    """A new active segment, with a producer snapshot at its base as a roll leaves one."""
    directory = captured.segments[0].directory
    snapshot = directory / segment_file_name(base_offset, PRODUCER_SNAPSHOT_SUFFIX)
    if not fs.exists(snapshot):
        data = build_producer_snapshot(captured.producers)
        fs.replace_durably(snapshot, data, model=captured.model)
    # The log comes last: with it the segment is there, and whole.
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        path = directory / segment_file_name(base_offset, suffix)
        if not fs.exists(path):
            fs.replace_durably(path, b"", model=captured.model)


def truncate_leader_epochs(directory: Path, log_start_offset: int, *, fs: FileSystem = OS) -> None:
    """Drops epochs that ended before the log start offset.

    Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.truncateFromStart.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        entries = parse_leader_epoch_checkpoint(fs.read_bytes(path))
    except FileNotFoundError:
        return
    below = [entry for entry in entries if entry[1] <= log_start_offset]
    if not below or below == [(below[-1][0], log_start_offset)]:
        return
    rest = [entry for entry in entries if entry[1] > log_start_offset]
    kept = [(below[-1][0], log_start_offset), *rest]
    fs.replace_durably(path, build_leader_epoch_checkpoint(kept))


class Placement(Protocol):
    """How rewritten groups take the place of their sources."""

    def require_wanted(self) -> None:
        """Checks that the round may continue; called before every group, and while tasks work.

        Raises:
            CordwoodError: it is not; the groups in place stay.
        """

    def place(self, round_: Round, number: int, manifest: Manifest) -> None:
        """Puts the staged files of group `number` in place.

        Raises:
            OSError, CordwoodError: it could not be put in place.
        """

    def end(self) -> None:
        """The round is over, whatever has become of it."""


class JournalledPlacement:
    """In the directory of a stopped log: a journal says how far the round has come."""

    def __init__(
        self, directory: Path, *, dispose: Dispose | None = None, fs: FileSystem = OS
    ) -> None:
        self._directory = directory
        self._journal = RoundJournal(directory, fs=fs)
        self._dispose = dispose
        self._fs = fs
        self._begun = fs.exists(self._journal.path)

    def require_wanted(self) -> None:
        """A round over a stopped log always continues."""

    def place(self, round_: Round, number: int, manifest: Manifest) -> None:
        """As `Placement.place`; the intent is made to last first."""
        require_closed(self._directory, fs=self._fs)
        if not self._begun:
            self._journal.begin(round_.to_json())
            self._begun = True
        self._journal.intend(number, manifest.token, manifest.after)
        put_in_place(
            staged_files(round_, manifest),
            round_.groups[number],
            dispose=self._dispose,
            fs=self._fs,
        )

    def end(self) -> None:
        """Forgets the journal."""
        if self._begun:
            self._journal.end()


def staged_files(round_: Round, manifest: Manifest) -> StagedSegment:
    """The files of the group that a manifest announces."""
    return StagedSegment(
        directory=round_.directory, base_offset=manifest.base_offset, token=manifest.token
    )


class RoundCommitter:
    """Puts the groups of one round in place, in order, as their manifests appear."""

    def __init__(
        self,
        round_: Round,
        placement: Placement,
        *,
        fs: FileSystem = OS,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares; `on_first` is called once, when the first group is ready to be put in place."""
        self.round = round_
        self.result = RoundResult(round_.name)
        self._directory = Path(round_.directory)
        self._placement = placement
        self._fs = fs
        self._on_first = on_first
        self._next = round_.groups_done
        self._known: dict[int, Manifest] = {}
        self._under_way: Manifest | None = None
        self._tasks_stopped = False
        self._clock = SystemClock()

    @property
    def done(self) -> bool:
        """Whether every group is in place."""
        return self._next >= len(self.round.groups)

    def begin(self) -> None:
        """Removes what an earlier attempt left, and lets the tasks of this one start.

        Raises:
            NoSpaceError, StagingError: the disk refuses; nothing was begun.
            FileNotFoundError: the partition is gone.
        """
        with staging_errors(self._directory):
            self.clear()
        begin_attempt(self._directory, self.round.attempt, fs=self._fs)

    def skip(self, manifests: dict[int, Manifest]) -> None:
        """Takes note of groups that stay as they are, by number."""
        self._known = manifests

    def poll(self) -> bool:
        """Puts in place what is ready; whether anything was.

        Raises:
            OSError, CordwoodError: a group could not be put in place, or the round must not
            continue.
        """
        moved = False
        while not self.done:
            self._placement.require_wanted()
            manifest = self._known.get(self._next)
            base = self.round.groups[self._next][0]
            if manifest is None:
                manifest = announced(self._directory, base, self.round.attempt, fs=self._fs)
            if manifest is None:
                break
            if self._next == self.round.groups_done:
                self._on_first()
            self._commit(manifest)
            moved = True
        return moved

    def _commit(self, manifest: Manifest) -> None:
        with held_signals():
            self._commit_one(manifest)

    def _commit_one(self, manifest: Manifest) -> None:
        if not manifest.unchanged:
            self._under_way = manifest
            begun_s = self._clock.monotonic_s()
            self._placement.place(self.round, self._next, manifest)
            self.result.placing_s += self._clock.monotonic_s() - begun_s
            self._under_way = None
        self.result.manifests.append(manifest)
        self._next += 1
        with staging_errors(self._directory):
            self._remove_staged(f"{manifest.base_offset:020d}.manifest.")

    def give_up(self, error: Exception) -> None:
        """Stops the round: its tasks end, groups in place stay, as in Kafka."""
        self.result.error = error
        self.stop_tasks()

    def stop_tasks(self) -> None:
        """Stops the tasks of the round, unless that has been done.

        Where the disk refuses even that, it is to be called again.
        """
        if self._tasks_stopped:
            return
        try:
            give_up_attempt(self._directory, self.round.attempt, fs=self._fs)
        except (OSError, CordwoodError) as refused:
            _log.debug("The tasks of %s cannot be stopped: %s", self.round.name, refused)
        else:
            self._tasks_stopped = True

    def clear(self) -> None:
        """Removes what tasks staged in vain; a journal stays, so that the next run can continue.

        The files of a group that was interrupted while it was put in place stay as well: they tell
        that it is not.
        """
        kept: set[str] = set()
        if self._under_way is not None:
            files = staged_files(self.round, self._under_way).paths().values()
            kept = {path.name for path in files}
        self._remove_staged(kept=kept)

    def _remove_staged(self, prefix: str = "", kept: Collection[str] = ()) -> None:
        """Removes all that can be removed, even if one file cannot."""
        refused: OSError | NoSpaceError | None = None
        for name in self._fs.names_in(self._directory):
            if name.startswith(prefix) and name.endswith(STAGED_SUFFIX) and name not in kept:
                try:
                    self._fs.remove(self._directory / name)
                except (OSError, NoSpaceError) as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    def close(self) -> None:
        """Clears away what tasks staged in vain, and ends the round.

        Raises:
            OSError, NoSpaceError: a file could not be removed; the next round begins with it.
        """
        self._remove_staged()
        self._placement.end()


def finish_round(committer: RoundCommitter, log_dir: LogDir, partition: TopicPartition) -> None:
    """Records the round in the cleaner's checkpoint; the journal goes last."""
    log_dir.set_checkpoint(CLEANER_OFFSET_CHECKPOINT, partition, committer.round.first_uncleanable)
    committer.close()


def commit_checkpoints(log_dir: LogDir, captured: Captured) -> None:
    """The log start offset's line, as Kafka writes it: only where it lies inside a segment.

    The recovery point is raised to the log start offset where it was below, and leader epochs that
    ended before it go, also if a run that removed the segments was interrupted before this step.

    Source: LogManager.checkpointLogStartOffsetsInDir, UnifiedLog.maybeIncrementLogStartOffset,
    LogLoader.load.
    """
    view = captured.view
    directory = captured.segments[0].directory
    truncate_leader_epochs(directory, view.log_start_offset, fs=log_dir.fs)
    inside = view.log_start_offset > view.segments[0].base_offset
    log_dir.set_checkpoint(
        LOG_START_OFFSET_CHECKPOINT,
        view.topic_partition,
        view.log_start_offset if inside else None,
    )
    recovery_points = log_dir.checkpoints()[0].recovery_point
    recovery_point = recovery_points.get(view.topic_partition)
    if recovery_point is not None and recovery_point < view.log_start_offset:
        log_dir.set_checkpoint(
            RECOVERY_POINT_CHECKPOINT, view.topic_partition, view.log_start_offset
        )
