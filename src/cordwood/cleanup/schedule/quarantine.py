"""Logs that could not be cleaned: set aside with the reason, and tried again from time to time.

Kafka leaves such a log alone until it is deleted or the process ends. Here it is tried again after
a while that doubles each time, so that a log whose damage was repaired, or has gone by retention,
heals by itself; it is tried again at once when settings of its topic have changed. Until then it
counts as uncleanable, also while it is tried. Retention of what cannot be compacted continues
(KAFKA-19895).

Source: org.apache.kafka.storage.internals.log.LogCleanerManager (uncleanablePartitions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog

_MINUTE_MS = 60_000
# The first wait of a log that found the disk full. Free bytes do not show every lack of space:
# a disk may be out of file names, or a quota used up.
_SPACE_FIRST_MS = 30_000


class Stage(enum.Enum):
    """The failed stage; the mark is removed when this stage succeeds."""

    LOOK = "looking at it"
    COMPACTION = "compaction"
    RETENTION = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Why a log is set aside; times in ms since the epoch.

    It stands for this very log with these settings; a new log of the same name is cleaned again. It
    has gone wrong `attempts` times, first at `since_ms`, and is tried again at `retry_at_ms`.

    `retry_free_bytes` is set where the disk was full: the log is tried again as soon as so many
    bytes are free.
    """

    log: PartitionLog
    config: LogConfig
    stage: Stage
    reason: str
    since_ms: int
    retry_at_ms: int
    attempts: int = 1
    retry_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """The first wait before a log is tried again, and the longest, both in ms."""

    first_ms: int = 5 * _MINUTE_MS
    longest_ms: int = 60 * _MINUTE_MS

    def after(self, attempts: int) -> int:
        """The wait after so many attempts, at least one."""
        return min(self.longest_ms, self.first_ms << min(attempts - 1, 30))


class Quarantine:
    """The marks, by directory. Callers must make sure that one thread uses it at a time."""

    def __init__(self, delays: RetryDelays | None = None) -> None:
        self.delays = delays or RetryDelays()
        self._marks: dict[Path, dict[TopicPartition, Mark]] = {}

    def add(
        self,
        log: PartitionLog,
        reason: str,
        *,
        stage: Stage,
        now_ms: int,
        retry_free_bytes: int | None = None,
    ) -> None:
        """Sets a log aside, or again."""
        old = self.of(log)
        attempts = 1 if old is None or old.config != log.config else old.attempts + 1
        self._marks.setdefault(log.log_dir, {})[log.topic_partition] = Mark(
            log=log,
            config=log.config,
            stage=stage,
            reason=reason,
            since_ms=now_ms if old is None else old.since_ms,
            retry_at_ms=now_ms + self._delay_ms(attempts, retry_free_bytes),
            attempts=attempts,
            retry_free_bytes=retry_free_bytes,
        )

    def _delay_ms(self, attempts: int, retry_free_bytes: int | None) -> int:
        if retry_free_bytes is None:
            return self.delays.after(attempts)
        first_ms = min(self.delays.first_ms, _SPACE_FIRST_MS)
        return RetryDelays(first_ms, self.delays.longest_ms).after(attempts)

    def of(self, log: PartitionLog) -> Mark | None:
        """A log's mark; None where there is none, or that of another log under its name."""
        mark = self._marks.get(log.log_dir, {}).get(log.topic_partition)
        return mark if mark is not None and mark.log is log else None

    def keeps_out(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether a log is to be left alone at this moment."""
        mark = self.of(log)
        if mark is None or mark.config != log.config or _has_space_again(mark):
            return False
        # A clock that was put back does not make it wait for longer than it was to.
        last_ms = mark.retry_at_ms - self._delay_ms(mark.attempts, mark.retry_free_bytes)
        return last_ms <= now_ms < mark.retry_at_ms

    def keeps_from_retention(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether a mark of retention keeps the log from retention; that of others continues."""
        mark = self.of(log)
        return mark is not None and mark.stage is Stage.RETENTION and self.keeps_out(log, now_ms)

    def heal(self, log: PartitionLog, stage: Stage) -> Mark | None:
        """Removes and returns a log's mark if this stage had failed."""
        mark = self.of(log)
        if mark is None or mark.stage is not stage:
            return None
        self._remove(log.log_dir, log.topic_partition)
        return mark

    def move(self, log: PartitionLog, source: Path, destination: Path) -> None:
        """Moves a partition's mark to another directory, where `log` is now its log."""
        partition = log.topic_partition
        mark = self._remove(source, partition)
        if mark is not None:
            self._marks.setdefault(destination, {})[partition] = replace(mark, log=log)

    def _remove(self, log_dir: Path, partition: TopicPartition) -> Mark | None:
        marks = self._marks.get(log_dir, {})
        mark = marks.pop(partition, None)
        if not marks:
            self._marks.pop(log_dir, None)
        return mark

    def forget(self, is_gone: Callable[[PartitionLog], bool]) -> None:
        """Drops the marks of logs that are gone."""
        for log_dir, marks in list(self._marks.items()):
            for partition, mark in list(marks.items()):
                if is_gone(mark.log):
                    self._remove(log_dir, partition)

    def in_directory(self, log_dir: Path) -> dict[TopicPartition, Mark]:
        """The marks of a directory's logs."""
        return dict(self._marks.get(log_dir, {}))


def _has_space_again(mark: Mark) -> bool:
    if mark.retry_free_bytes is None:
        return False
    try:
        return mark.log.context.fs.free_bytes(mark.log.log_dir) >= mark.retry_free_bytes
    except OSError:
        return False
