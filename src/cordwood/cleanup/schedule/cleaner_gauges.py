"""Kafka's metrics of a cleaner: of its threads' last compactions, and of the logs that wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.worker_thread import WorkerThread
from cordwood.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A metric under Kafka's name: `kafka.log:type=...,name=...`, and its tags."""

    type: str
    name: str
    tags: Mapping[str, str]
    read: Callable[[], float]


class CleanerGauges:
    """The gauges of one cleaner, which read its present state.

    Source: org.apache.kafka.storage.internals.log.LogCleaner.
    """

    def __init__(
        self,
        manager: CleanerManager,
        *,
        cleaners: Callable[[], Sequence[OnlineCleaner]],
        threads: Callable[[], Sequence[WorkerThread]],
        engine_status: Callable[[], EngineStatus],
        clock: Clock,
    ) -> None:
        """Takes the manager, and functions that give the cleaner's parts of the moment."""
        self._manager = manager
        self._cleaners = cleaners
        self._threads = threads
        self._engine_status = engine_status
        self._clock = clock

    def cleaner_recopy_percent(self) -> int:
        """Bytes written by the threads' last compactions, in percent of the bytes read."""
        stats = [c.last_stats for c in self._cleaners() if c.last_stats is not None]
        read, written = sum(s.bytes_read for s in stats), sum(s.bytes_written for s in stats)
        return int(100 * written / max(read, 1))

    def max_clean_time_secs(self) -> int:
        """The longest of the threads' last compactions."""
        stats = [c.last_stats for c in self._cleaners() if c.last_stats is not None]
        return int(max((s.elapsed_s for s in stats), default=0.0))

    def max_buffer_utilization_percent(self) -> int:
        """The highest use of the memory for keys in the threads' last compactions, in percent."""
        stats = [c.last_stats for c in self._cleaners() if c.last_stats is not None]
        used = [s.index.utilization for s in stats if s.index is not None]
        return int(100 * max(used, default=0.0))

    def max_compaction_delay_secs(self) -> int:
        """The longest excess over max.compaction.lag.ms when threads last chose a log."""
        chosen = [c.last_chosen for c in self._cleaners() if c.last_chosen is not None]
        return int(max((c.max_delay_ms for c in chosen), default=0) / 1000)

    def dead_thread_count(self) -> int:
        """Threads that ended by an error."""
        return sum(thread.failed for thread in self._threads())

    def idle_thread_count(self) -> int:
        """Threads that wait for logs to clean; none if log.cleaner.enable is false."""
        return sum(thread.alive and thread.resting for thread in self._threads())

    def engine_available(self) -> int:
        """1, or 0 if the engine is unavailable."""
        return int(self._engine_status().state != "unavailable")

    def all(self) -> list[Gauge]:
        """Every metric of the cleaner."""
        now_ms, manager = self._clock.now_ms, self._manager
        cleaner: tuple[tuple[str, Callable[[], float]], ...] = (
            ("cleaner-recopy-percent", self.cleaner_recopy_percent),
            ("max-clean-time-secs", self.max_clean_time_secs),
            ("max-buffer-utilization-percent", self.max_buffer_utilization_percent),
            ("max-compaction-delay-secs", self.max_compaction_delay_secs),
            ("DeadThreadCount", self.dead_thread_count),
            ("cordwood-idle-threads", self.idle_thread_count),
            ("cordwood-engine-available", self.engine_available),
            ("cordwood-due-bytes", lambda: manager.backlog.due_bytes),
            ("cordwood-falling-behind", lambda: int(manager.backlog.growth() is not None)),
        )
        gauges = [Gauge(type="LogCleaner", name=n, tags={}, read=read) for n, read in cleaner]
        managed: tuple[tuple[str, Callable[[], float]], ...] = (
            ("max-dirty-percent", lambda: manager.max_dirty_percent),
            ("time-since-last-run-ms", lambda: manager.time_since_last_run_ms(now_ms())),
        )
        gauges += [Gauge(type="LogCleanerManager", name=n, tags={}, read=r) for n, r in managed]
        for directory in self._manager.logs.directories:
            gauges += _gauges_of(manager, directory.path, now_ms)
        return gauges


def _gauges_of(manager: CleanerManager, log_dir: Any, now_ms: Callable[[], int]) -> list[Gauge]:
    tags = {"logDirectory": str(log_dir)}
    return [
        Gauge(
            type="LogCleanerManager",
            name="uncleanable-partitions-count",
            tags=tags,
            read=lambda: manager.uncleanable_count(log_dir),
        ),
        Gauge(
            type="LogCleanerManager",
            name="uncleanable-bytes",
            tags=tags,
            read=lambda: manager.uncleanable_bytes(log_dir, now_ms()),
        ),
    ]
