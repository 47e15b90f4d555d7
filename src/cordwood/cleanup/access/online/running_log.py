"""Access to one log that a broker serves: it is cleaned in parallel with appends and reads.

Segments below the active one do not change, and readers of one that is replaced keep its file.
There is no journal: after a crash the loader finishes or undoes the group that it finds half done.

Source: org.apache.kafka.storage.internals.log.Cleaner.doClean, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby

from cordwood.cleanup.access.announcements import remove_staged
from cordwood.cleanup.access.capture import capture
from cordwood.cleanup.access.commit import CompactionCommitter, StalePlanError
from cordwood.cleanup.access.due_reader import DueReader
from cordwood.cleanup.access.log_access import LogAccess, Recovery
from cordwood.cleanup.access.online.placement import OnlinePlacement
from cordwood.cleanup.access.removal_audit import audit_expired
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed
from cordwood.cleanup.rules.idle_roll import should_roll_expired, should_roll_idle
from cordwood.cleanup.rules.log_view import RetainedLog
from cordwood.cleanup.rules.retention import LOG_START, TIME, Expired, RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments, trash_path
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)


class _Held:
    """A running log whose lock is held, as a `RetainedLog`: what is not asked for is not read."""

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


class RunningLog(LogAccess):
    """The `LogAccess` of a log that is in use: nothing else changes it while its lock is held."""

    is_running = True

    def __init__(
        self,
        log: PartitionLog,
        logs: LogManager | None = None,
        *,
        consumed: Consumed = NOTHING_KNOWN,
        require_wanted: Callable[[], None] = lambda: None,
        prefix: str = "",
    ) -> None:
        """Reads nothing yet.

        Args:
            log: that is cleaned.
            logs: has it; needed to notice that another log has its name, or is to have it.
            consumed: what groups have consumed of it.
            require_wanted: raises if a compaction must not continue.
            prefix: of what is logged.
        """
        super().__init__(log.topic_partition, log.directory, log_dir=log.log_dir, fs=log.context.fs)
        self._log = log
        self._logs = logs
        self._consumed = consumed
        self._require_wanted = require_wanted
        self._cleaner = prefix
        self._prefix = f"[UnifiedLog partition={log.topic_partition}, dir={log.log_dir}]"

    # ---- view

    def pin(self, *, end: int | None = None) -> Captured:
        """Captures the log; its lock is held while offsets and producers are noted."""
        return capture(self._log, end=end)

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

    @property
    def holds(self) -> tuple[str, ...]:
        """The ids of the legal holds of this moment."""
        return self._log.holds

    @property
    def is_moving(self) -> bool:
        """Whether a future log will replace this one."""
        return self._logs is not None and self._logs.get(self.partition, future=True) is not None

    def segment_names(self) -> set[str]:
        """The names of the log files of the segments that the log has now."""
        return {segment.path.name for segment in self._log.segments}

    def require_same(self, captured: Captured) -> None:
        """Requires that no other log has the name, and that this one was not truncated.

        Raises:
            StalePlanError: it was, or another has.
        """
        is_same = self._logs is None or self._logs.get(self.partition) is self._log
        if not is_same or self._log.offsets.truncation_count != captured.truncation_count:
            raise StalePlanError(
                f"{self.partition}: its log was truncated, moved or deleted meanwhile: erase again"
            )

    # ---- changes

    def recover(self, *, is_erasure: bool = False) -> Recovery:
        """Removes staged files; a loader did the rest when the broker started."""
        removed = self.remove_deleted() if is_erasure else []
        remove_staged(self.directory, fs=self.fs)
        return Recovery(removed=tuple(removed))

    def remove_deleted(self) -> list[str]:
        """Removes the files at once that wait for file.delete.delay.ms; a reader of one continues.

        Raises:
            StorageError: the disk refused.
        """
        with self._log.guard("deleting segments of"):
            return self._log.deleted_files.remove_all(self._log.directory, self.fs)

    def roll(self) -> None:
        """Rolls the active segment."""
        self._log.roll()

    def roll_idle(self, now_ms: int) -> None:
        """Rolls the active segment if it is idle, or if a rule removes a record of it.

        Raises:
            As `roll_expired`.
        """
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

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes rule by rule, as Kafka does."""
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

    # ---- compactions and erasures

    def attempt(self, limits: Limits) -> Attempt:
        """A new attempt, whose token and seed the log's random number generator draws."""
        free_bytes = self.fs.free_bytes(self._log.directory)
        return Attempt.drawn(self._log.context.rng, limits, free_bytes=free_bytes)

    def committer(
        self,
        compaction: LogCompaction,
        captured: Captured,
        *,
        on_first: Callable[[], None] = lambda: None,
        require_allowed: Callable[[], None] = lambda: None,
    ) -> CompactionCommitter:
        """Makes a committer that places groups under the lock of the log."""
        placement = OnlinePlacement(
            self._log,
            captured.segments,
            truncation_count=captured.truncation_count,
            require_wanted=self._require_wanted,
            require_allowed=require_allowed,
            remove_deleted=self.remove_deleted,
            prefix=self._cleaner,
        )
        return CompactionCommitter(compaction, placement, fs=self.fs, on_first=on_first)

    def finish(self, committer: CompactionCommitter) -> None:
        """Closes the committer; the cleaner manager writes the checkpoint."""
        self.abandon(committer)

    def abandon(self, committer: CompactionCommitter) -> None:
        """Closes the committer; the next compaction removes what the disk keeps."""
        with suppress(OSError, NoSpaceError):
            committer.close()


def _lines(expired: Sequence[Expired], segments: Sequence[LogSegment]) -> list[str]:
    """Kafka's words for what goes by one rule."""
    if expired[0].rule == LOG_START:
        names = ",".join(map(str, segments))
        return [f"Deleting segments due to {expired[0].text}: {names}"]
    end = "" if expired[0].rule == TIME else "."
    return [
        f"Deleting segment {segment} due to {gone.text}{end}"
        for gone, segment in zip(expired, segments, strict=True)
    ]
