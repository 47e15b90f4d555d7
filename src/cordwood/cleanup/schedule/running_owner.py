"""The right to clean a log that a broker serves, and Kafka's log lines on what is done.

Source: org.apache.kafka.storage.internals.log.Cleaner.doClean, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime

from cordwood.cleanup.access.commit import CompactionCommitter, CompactionResult
from cordwood.cleanup.access.online.running_log import RunningLog
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed, GroupLoss
from cordwood.cleanup.rules.log_view import RetainedLog
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)
_future_timestamps = logging.getLogger(f"{__name__}.future_timestamps")


class RunningRetention:
    """A `RetentionOwner` of a running log."""

    def __init__(
        self,
        log: PartitionLog,
        *,
        consumed: Consumed = NOTHING_KNOWN,
        lost: Callable[[PartitionLog, Sequence[GroupLoss]], object] = lambda *_: None,
    ) -> None:
        """Takes the log, what groups have consumed of it, and what receives their losses."""
        self._log = log
        self._access = RunningLog(log, consumed=consumed)
        self._lost = lost

    def held(self) -> AbstractContextManager[RetainedLog]:
        """Yields the log, locked."""
        return self._access.held()

    def roll_idle(self, now_ms: int) -> None:
        """Rolls an active segment that has expired or is idle."""
        self._access.roll_idle(now_ms)

    def note_retention(self, plan: RetentionPlan) -> None:
        """Logs the warnings."""
        for warning in plan.warnings:
            _future_timestamps.warning(
                "[UnifiedLog partition=%s, dir=%s] %s",
                self._log.topic_partition,
                self._log.log_dir,
                warning,
            )

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes the segments, and reports the losses of groups."""
        try:
            return self._access.delete(plan)
        finally:
            self._note_losses(plan)

    def _note_losses(self, plan: RetentionPlan) -> None:
        """Notes the losses of a plan, as far as it was carried out."""
        gone = self._log.log_start_offset
        losses = [
            replace(loss, last_offset=min(loss.last_offset, gone - 1))
            for loss in plan.losses
            if loss.first_offset < gone
        ]
        if losses:
            self._lost(self._log, losses)


class RunningOwner(RunningRetention):
    """A `LogOwner` of a running log.

    `result` is that of its compaction, None until that is planned.
    """

    def __init__(
        self,
        log: PartitionLog,
        cleanable: Cleanable,
        *,
        require_wanted: Callable[[], None],
        limits: Limits,
        prefix: str = "",
    ) -> None:
        """Prepares; nothing happens yet.

        Args:
            log: that nobody else cleans, nor deletes segments of.
            cleanable: its dirty section.
            require_wanted: raises if the compaction must not continue.
            limits: of the compaction.
            prefix: of what is logged.
        """
        super().__init__(log)
        self.result: CompactionResult | None = None
        self._access = RunningLog(log, require_wanted=require_wanted, prefix=prefix)
        self._cleanable = cleanable
        self._limits = limits
        self._cleaner = prefix

    def guard(self) -> AbstractContextManager[None]:
        """Returns a context that does nothing: errors reach the caller."""
        return nullcontext()

    def interrupted(self) -> None:
        """Returns None: a running log has no journal."""

    def cleanable(self) -> Cleanable:
        """The section that the cleaner manager has chosen."""
        _log.info("%sBeginning cleaning of log %s", self._cleaner, self._log.topic_partition)
        return self._cleanable

    def pin(self, cleanable: Cleanable) -> Captured:
        """Captures the log up to the end of the section."""
        return self._access.pin(end=cleanable.cleaned_to)

    def note_compaction(self, cleanable: Cleanable, plan: CompactionPlan) -> None:
        """Logs nothing: the committer's line names the segments, too."""

    def attempt(self) -> Attempt:
        """Draws an attempt within the limits."""
        return self._access.attempt(self._limits)

    def committer(
        self, compaction: LogCompaction, captured: Captured | None
    ) -> CompactionCommitter:
        """Makes a committer that places groups in the running log."""
        assert captured is not None, "a running log is always pinned"
        _announce(compaction, self._cleaner)
        committer = self._access.committer(
            compaction,
            captured,
            on_first=lambda: _announce_cleaning(compaction, self._cleaner),
        )
        self.result = committer.result
        return committer

    def finish(self, committer: CompactionCommitter) -> None:
        """Closes the committer; the cleaner manager writes the checkpoint."""
        self._access.finish(committer)

    def abandon(self, committer: CompactionCommitter) -> None:
        """Closes the committer."""
        self._access.abandon(committer)


def _announce(compaction: LogCompaction, prefix: str) -> None:
    name = compaction.name
    _log.info("%sBuilding offset map for %s...", prefix, name)
    _log.info(
        "%sBuilding offset map for log %s for %s segments in offset range [%s, %s).",
        prefix,
        name,
        len(compaction.dirty),
        compaction.first_dirty,
        compaction.first_uncleanable,
    )


def _announce_cleaning(compaction: LogCompaction, prefix: str) -> None:
    """Logs, when the first group is ready, that the offset map is complete."""
    name = compaction.name
    _log.info("%sOffset map for log %s complete.", prefix, name)
    _log.info(
        "%sCleaning log %s (cleaning prior to %s, discarding tombstones prior to upper bound "
        "deletion horizon %s)...",
        prefix,
        name,
        _date(compaction.segments[-1].modified_ns // 1_000_000),
        _date(compaction.rules.legacy_horizon_ms),
    )


def _date(ms: int) -> str:
    """A date in the format of java.util.Date, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
