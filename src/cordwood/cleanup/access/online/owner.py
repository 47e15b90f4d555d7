"""The owner of an online log: it is cleaned in parallel with appends and reads.

Source: org.apache.kafka.storage.internals.log.Cleaner.doClean, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby

from cordwood.cleanup.access.capture import capture
from cordwood.cleanup.access.commit import CompactionCommitter, CompactionResult
from cordwood.cleanup.access.due_reader import DueReader
from cordwood.cleanup.access.online.placement import OnlinePlacement
from cordwood.cleanup.access.removal_audit import audit_expired
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed, GroupLoss
from cordwood.cleanup.rules.idle_roll import should_roll_expired, should_roll_idle
from cordwood.cleanup.rules.log_view import RetainedLog
from cordwood.cleanup.rules.retention import LOG_START, TIME, Expired, RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments, trash_path
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)
_future_timestamps = logging.getLogger(f"{__name__}.future_timestamps")


class _Held:
    """An online log whose lock is held, as a `RetainedLog`: what is not asked for is not read."""

    __slots__ = ("_log", "consumed")

    def __init__(self, log: PartitionLog, consumed: Consumed) -> None:
        self._log = log
        self.consumed = consumed

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    @property
    def config(self) -> LogConfig:
        return self._log.config

    @property
    def segments(self) -> SegmentList:
        return self._log.segments

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def holds(self) -> tuple[str, ...]:
        return self._log.holds


class RetainedOnline:
    """A `RetentionOwner` of an online log: nothing else changes it while its lock is held."""

    def __init__(
        self,
        log: PartitionLog,
        *,
        consumed: Consumed = NOTHING_KNOWN,
        lost: Callable[[PartitionLog, Sequence[GroupLoss]], object] = lambda *_: None,
    ) -> None:
        """Takes the log, what groups have consumed of it, and what receives their losses."""
        self._log = log
        self._consumed = consumed
        self._lost = lost
        self._prefix = f"[UnifiedLog partition={log.topic_partition}, dir={log.log_dir}]"

    @contextmanager
    def held(self) -> Iterator[RetainedLog]:
        """Yields the log, locked."""
        with self._locked() as log:
            yield _Held(log, self._consumed)

    @contextmanager
    def _locked(self) -> Iterator[PartitionLog]:
        log = self._log
        with log.lock, log.guard("deleting old segments of"):
            log.require_open()
            yield log

    def roll_idle(self, now_ms: int) -> None:
        """Rolls an active segment that has expired or is idle."""
        self.roll_expired(now_ms)
        if not self._log.config.cordwood_segment_roll_idle:
            return
        with self._locked() as log:
            active = log.active
            first = active.first_batch_timestamp()
            held = _Held(log, self._consumed)
            if should_roll_idle(held, active, first_batch_timestamp=first, now_ms=now_ms):
                self._roll(log, "cordwood.segment.roll.idle")

    def roll_expired(self, now_ms: int) -> bool:
        """Rolls the active segment if a rule removes a record of it; whether it did.

        Raises:
            StorageError: the log is closed, or the disk refused.
            CorruptError: the segment is damaged.
            OSError: it cannot be read.
        """
        log, config = self._log, self._log.config
        due = DueReader.of(config, fs=log.context.fs)
        if due is None or not due.rule.removals:
            return False
        active = log.active
        # It is read without the lock: appends must not wait for that.
        expiry_ms = due.of_online(active, active.size_bytes).expiry_ms
        if expiry_ms > now_ms:
            return False
        with self._locked() as log:
            if log.active is not active or not should_roll_expired(
                _Held(log, self._consumed),
                active,
                last_stable_offset=log.last_stable_offset,
                expiry_ms=expiry_ms,
                now_ms=now_ms,
            ):
                return False
            self._roll(log, ", ".join(rule.setting for rule in due.rule.removals))
        return True

    def _roll(self, log: PartitionLog, setting: str) -> None:
        log.roll()
        _log.info(
            "%s Rolled new log segment at offset %s due to %s",
            self._prefix,
            log.log_end_offset,
            setting,
        )

    def note_retention(self, plan: RetentionPlan) -> None:
        """Logs the warnings."""
        for warning in plan.warnings:
            _future_timestamps.warning("%s %s", self._prefix, warning)

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes rule by rule, as Kafka does."""
        try:
            return self._delete(plan)
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

    def _delete(self, plan: RetentionPlan) -> int:
        log, count = self._log, 0
        for _, group in groupby(plan.expired, key=lambda expired: expired.rule):
            expired = list(group)
            segments = [log.segments[number] for number in range(len(expired))]
            ends = [*(each.base_offset for each in segments[1:]), self._end_of(len(expired))]
            gone = delete_segments(
                log,
                len(expired),
                reason=expired[0].text,
                lines=[f"{self._prefix} {line}" for line in _lines(expired, segments)],
            )
            audit_expired(
                expired[:gone],
                ends[:gone],
                partition=log.topic_partition,
                log_dir=str(log.log_dir),
                config=log.config,
                origins=log.context.setting_origins(log.topic_partition.topic),
                at_ms=log.context.clock.now_ms(),
                trash=trash_path(log),
            )
            count += gone
        return count

    def _end_of(self, count: int) -> int:
        """One past the last offset of the first `count` segments."""
        segments = self._log.segments
        if count < len(segments):
            return segments[count].base_offset
        return self._log.log_end_offset


def _lines(expired: list[Expired], segments: list[LogSegment]) -> list[str]:
    """Kafka's words for what goes by one rule."""
    if expired[0].rule == LOG_START:
        names = ",".join(map(str, segments))
        return [f"Deleting segments due to {expired[0].text}: {names}"]
    end = "" if expired[0].rule == TIME else "."
    return [
        f"Deleting segment {segment} due to {gone.text}{end}"
        for gone, segment in zip(expired, segments, strict=True)
    ]


class OnlineOwner(RetainedOnline):
    """A `LogOwner` of an online log.

    `result` is that of its compaction, None until it is finished.
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
        self._cleanable = cleanable
        self._require_wanted = require_wanted
        self._limits = limits
        self._cleaner = prefix

    def guard(self) -> AbstractContextManager[None]:
        """Returns a context that does nothing: errors reach the caller."""
        return nullcontext()

    def interrupted(self) -> None:
        """Returns None: an online log has no journal."""

    def cleanable(self) -> Cleanable:
        """The section that the cleaner manager has chosen."""
        _log.info("%sBeginning cleaning of log %s", self._cleaner, self._log.topic_partition)
        return self._cleanable

    def pin(self, cleanable: Cleanable) -> Captured:
        """Captures the log up to the end of the section."""
        return capture(self._log, end=cleanable.cleaned_to)

    def note_compaction(self, cleanable: Cleanable, plan: CompactionPlan) -> None:
        """Logs nothing: the committer's line names the segments, too."""

    def attempt(self) -> Attempt:
        """Draws token and seed by the log's random numbers."""
        context = self._log.context
        return Attempt(
            seed=int(context.rng.unique_id(), 16) >> 1,
            token=context.rng.unique_id()[:8],
            free_bytes=context.fs.free_bytes(self._log.directory),
            limits=self._limits,
        )

    def committer(
        self, compaction: LogCompaction, captured: Captured | None
    ) -> CompactionCommitter:
        """Makes a committer that places groups in the running log."""
        assert captured is not None, "an online log is always pinned"
        _announce(compaction, self._cleaner)
        placement = OnlinePlacement(
            self._log,
            captured.segments,
            truncation_count=captured.truncation_count,
            require_wanted=self._require_wanted,
            prefix=self._cleaner,
        )
        return CompactionCommitter(
            compaction,
            placement,
            fs=self._log.context.fs,
            on_first=lambda: _announce_cleaning(compaction, self._cleaner),
        )

    def finish(self, committer: CompactionCommitter) -> None:
        """Keeps the result; the cleaner manager writes the checkpoint."""
        self.abandon(committer)
        self.result = committer.result

    def abandon(self, committer: CompactionCommitter) -> None:
        """Closes the committer; the next compaction removes what the disk keeps."""
        with suppress(OSError, NoSpaceError):
            committer.close()


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
