"""The cleaner of a broker: threads that compact, and a thread that applies retention.

Nothing here starts Spark: the engine does, when a log is due. Times are those of the logs' clock,
which tests advance; `clock_moved` ends the waits that are over by then.

Source: org.apache.kafka.storage.internals.log.LogCleaner, LogManager.startupWithConfigOverrides.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.outcome import Committed, Rejected, Unknown
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.schedule.cleaner import CleanerRun, CleanerStoppedError, OnlineCleaner
from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus, MetricStatus, ThreadStatus
from cordwood.cleanup.schedule.cleaner_gauges import CleanerGauges
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.cleaner_status import backlog_status, logs_status, run_status
from cordwood.cleanup.schedule.quarantine import RetryDelays
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.cleanup.schedule.worker_thread import WorkerThread
from cordwood.model.clock import Clock
from cordwood.model.errors import NotCompactedError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.holds import holds_of
from cordwood.storage.log_manager import LogManager

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_Name = tuple[TopicPartition, UUID | None]
"""A log: a topic that is made again has another id."""

_STOP_S = 30.0
_RUNS_KEPT = 100


@runtime_checkable
class ManagedEngine(Protocol):
    """An engine with a life of its own: one that runs compactions in another process."""

    def run(self, committers: Any) -> None:
        """Runs the compactions of committers."""

    def configure(self, settings: CleanerSettings) -> None:
        """Applies other settings; compactions in progress keep the old ones."""

    def status(self) -> EngineStatus:
        """Plain values: its `state`, and `reason` if it is unavailable."""

    def close(self) -> None:
        """Ends it, and every process of its own; compactions under way fail."""


class LogCleaner:
    """Cleans a `LogManager`'s logs while they are served.

    Every method may be called by any thread. Methods that wait say so; an event loop calls them in
    a separate thread.
    """

    def __init__(
        self,
        logs: LogManager,
        manager: CleanerManager,
        engine: Engine,
        clock: Clock,
        settings: CleanerSettings | None = None,
    ) -> None:
        """Prepares; `startup` starts it.

        Raises:
            ConfigError: the settings are none that Kafka would start with.
        """
        self.settings = settings or CleanerSettings.of(logs.broker)
        self.settings.require_valid()
        self.logs = logs
        self.manager = manager
        self.engine = engine
        self._clock = clock
        self._changing = threading.Lock()
        self._lock = threading.Lock()
        self._retaining = threading.Lock()
        self._threads: list[WorkerThread] = []
        self._cleaners: list[OnlineCleaner] = []
        self._retention: WorkerThread | None = None
        self._started = False
        self._stopping = False
        self._runs: deque[CleanerRun] = deque(maxlen=_RUNS_KEPT)
        self._last_runs: dict[_Name, CleanerRun] = {}
        self._last_cleaned_ms: dict[_Name, int] = {}
        self.gauges = CleanerGauges(
            manager,
            cleaners=lambda: self._cleaners,
            threads=lambda: self._threads,
            engine_status=self._engine_status,
            clock=clock,
        )
        self._apply(self.settings)

    # ---- its life

    def startup(self) -> None:
        """Starts the threads, if log.cleaner.enable is true; retention in any case."""
        with self._changing:
            self._started, self._stopping = True, False
            self._start_cleaners()
            self._start_retention()

    def _start_cleaners(self) -> None:
        if not self.settings.enable:
            return
        _log.info("Starting the log cleaner")
        cleaners, threads = [], []
        for number in range(self.settings.threads):
            cleaner, thread = self._cleaner_thread(number)
            cleaners.append(cleaner)
            threads.append(thread)
        with self._lock:
            self._cleaners, self._threads = cleaners, threads
        for thread in threads:
            thread.start()

    def _cleaner_thread(self, number: int) -> tuple[OnlineCleaner, WorkerThread]:
        cleaner = self._cleaner(number, lambda: thread.stopping)
        thread = WorkerThread(
            f"kafka-log-cleaner-thread-{number}",
            lambda: 0 if cleaner.clean_once() else self.settings.backoff_ms,
            clock=self._clock,
            ends_it=CleanerStoppedError,
        )
        return cleaner, thread

    def _cleaner(
        self,
        number: int,
        is_stopping: Callable[[], bool],
        on_run: Callable[[CleanerRun], object] = lambda _: None,
    ) -> OnlineCleaner:
        def require_running() -> None:
            if is_stopping():
                raise CleanerStoppedError("the log cleaner is being stopped")

        def note(run: CleanerRun) -> None:
            self._note(run)
            on_run(run)

        return OnlineCleaner(
            self.manager,
            self.engine,
            number=number,
            bytes_per_second=self._share_of_rate,
            verify=lambda: self.settings.verify,
            require_running=require_running,
            on_run=note,
        )

    def _share_of_rate(self) -> float:
        return self.settings.io_max_bytes_per_second / max(1, self.settings.threads)

    def _stop_cleaners(self) -> None:
        _log.info("Shutting down the log cleaner.")
        with self._lock:
            threads = self._threads
        for thread in threads:
            thread.stop()
        for thread in threads:
            if not thread.join(_STOP_S):
                _log.error("[%s]: does not stop", thread.name)

    def shutdown(self) -> None:
        """Stops all threads, waiting for them, and the engine; gives up compactions under way."""
        with self._changing:
            self._stopping = True
            if self._retention is not None:
                self._retention.stop()
            if self._started:
                self._stop_cleaners()
            if self._retention is not None:
                self._retention.join(_STOP_S)
            if isinstance(self.engine, ManagedEngine):
                self.engine.close()
            self._started = False

    def reconfigure(self, new: CleanerSettings) -> None:
        """Applies other settings: stops the threads, waits for them, and starts them again.

        Compactions under way are given up, and begun again by the new threads.

        Raises:
            ConfigError: Kafka would refuse the change; nothing has changed.
        """
        with self._changing:
            old = self.settings
            if old.enable:
                old.require_reachable(new)
            if old.io_max_bytes_per_second != new.io_max_bytes_per_second:
                _log.info("Updating logCleanerIoMaxBytesPerSecond: %s", new.io_max_bytes_per_second)
            if self._started:
                self._stop_cleaners()
            self.settings = new
            self._apply(new)
            if self._started:
                self._start_cleaners()
                self.clock_moved()

    def _apply(self, settings: CleanerSettings) -> None:
        self.manager.quarantine.delays = RetryDelays(
            settings.uncleanable_retry_ms, settings.uncleanable_retry_max_ms
        )
        self.manager.schedule.order = settings.order
        if isinstance(self.engine, ManagedEngine):
            self.engine.configure(settings)

    # ---- its pace

    def wake(self) -> None:
        """Ends the rest that cleaner threads are in; a log may have become due."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.wake()

    def clock_moved(self) -> None:
        """Ends the waits that are over by the clock's new time."""
        with self._lock:
            threads = [*self._threads, *([self._retention] if self._retention else [])]
        for thread in threads:
            thread.clock_moved()

    def run_once_now(self) -> int:
        """Cleans in this thread until no log is due; returns how many logs were cleaned.

        Waits for the work of the cleaner's threads, which start nothing in the meantime, so that
        all due work is done when this returns. Applies retention to compacted logs, too.
        """
        return sum(isinstance(run.outcome, Committed) for run in self._clean_what_is_due())

    def compact_due(self) -> None:
        """Compacts every log that is due, as `run_once_now`; none if log.cleaner.enable is false.

        Raises:
            NotCompactedError: logs are due and could not be compacted; the others are done.
        """
        if not self.settings.enable:
            return
        due = self._due()
        runs = self._clean_what_is_due()
        due |= {run.chosen.topic_partition: run.chosen.cleanable.first_dirty for run in runs}
        self._require_compacted(due, runs)

    def _clean_what_is_due(self) -> list[CleanerRun]:
        if not self.settings.enable:
            return []
        with self._lock:
            threads = list(self._threads)
        with ExitStack() as held:
            for thread in threads:
                held.enter_context(thread.held())
            return self._clean_until_nothing_is_due()

    def _clean_until_nothing_is_due(self) -> list[CleanerRun]:
        runs: list[CleanerRun] = []
        cleaner = self._cleaner(len(self._threads), lambda: self._stopping, runs.append)
        failed: set[TopicPartition] = set()
        try:
            while True:
                tried = len(runs)
                if cleaner.clean_once():
                    continue
                again = {run.chosen.topic_partition for run in runs[tried:]}
                if again <= failed:
                    break
                failed |= again
        except CleanerStoppedError:
            pass
        return runs

    def _due(self) -> dict[TopicPartition, int]:
        """The first dirty offset of every log that is due, whether or not it is set aside.

        That of a log that cannot be looked at is -1.
        """
        now_ms = self._clock.now_ms()
        lines = self.manager.checkpoints.all()
        found = {}
        for log in self.manager.current_logs():
            partition = log.topic_partition
            if not log.config.compact:
                continue
            try:
                view = self.manager.view_of(log, lines.get(partition))
                cleanable = plan_cleanable(view, now_ms=now_ms)
            except Exception:  # the attempt to clean it reports the error
                found[partition] = -1
            else:
                if cleanable.reason is None:
                    found[partition] = cleanable.first_dirty
        return found

    def _require_compacted(
        self, due: Mapping[TopicPartition, int], runs: Sequence[CleanerRun]
    ) -> None:
        """Raises NotCompactedError unless the logs in `due` were cleaned beyond these offsets.

        A log that is due again because of later appends was cleaned beyond its offset.
        """
        left = [each for each, offset in self._due().items() if offset <= due.get(each, -2)]
        if not left:
            return
        with self._lock:
            last = self._of_logs(self._last_runs)
        last |= {run.chosen.topic_partition: run for run in runs}
        raise NotCompactedError(
            {str(each): self._why_not_compacted(each, last.get(each)) for each in left}
        )

    def _why_not_compacted(self, partition: TopicPartition, last: CleanerRun | None) -> str:
        log = self.logs.get(partition)
        mark = None if log is None else self.manager.mark_of(log)
        if self._stopping:
            return "the log cleaner is being stopped"
        if mark is not None:
            return f"{mark.stage.value} failed: {mark.reason}"
        if last is not None and isinstance(last.outcome, Rejected | Unknown):
            return str(last.outcome.error)
        state = self.manager.states.of(partition)
        if state is not None:
            return f"its cleaning state is {state}"
        return self._engine_status().reason or "it was not chosen; try again"

    # ---- retention of logs without `compact`

    def _start_retention(self) -> None:
        _log.info(
            "Starting log cleanup with a period of %s ms.",
            self.settings.retention_check_interval_ms,
        )
        first = [True]

        def work() -> int:
            if first:
                first.clear()
                return self.settings.initial_task_delay_ms
            self.retention_once_now()
            return self.settings.retention_check_interval_ms

        retention = WorkerThread("kafka-log-retention", work, clock=self._clock)
        with self._lock:
            self._retention = retention
        retention.start()

    def wait_for_first_retention(self, timeout_s: float) -> bool:
        """Waits until the thread of retention rests for the first time; whether it has.

        With log.initial.task.delay.ms=0 it has then applied retention once.
        """
        with self._lock:
            retention = self._retention
        return retention is None or retention.wait_for_rest(timeout_s)

    def retention_once_now(self) -> int:
        """Applies retention to logs without `compact`, in this thread; returns the segment count.

        Errors are logged.
        """
        with self._retaining:  # else a pass would leave out the logs that another one has in hand
            try:
                return retention_pass(self.manager)
            except Exception:
                _log.exception("Uncaught exception in scheduled task 'kafka-log-retention'")
                return 0

    # ---- how it does

    def _note(self, run: CleanerRun) -> None:
        log = run.chosen.log
        name = log.topic_partition, log.topic_id
        with self._lock:
            self._runs.append(run)
            self._last_runs[name] = run
            if isinstance(run.outcome, Committed):
                self._last_cleaned_ms[name] = self._clock.now_ms()

    def _of_logs(self, values: dict[_Name, _T]) -> dict[TopicPartition, _T]:
        """Values of logs that are there; the rest is forgotten."""
        for name in list(values):
            log = self.logs.get(name[0])
            if log is None or log.topic_id != name[1]:
                del values[name]
        return {partition: value for (partition, _), value in values.items()}

    def status(self) -> CleanerStatus:
        """Its whole state; logs are looked into, which may wait for the disk."""
        now_ms = self._clock.now_ms()
        with self._lock:
            runs = list(self._runs)
            last_runs = self._of_logs(self._last_runs)
            last_cleaned = self._of_logs(self._last_cleaned_ms)
            threads = list(self._threads)
        logs = logs_status(self.manager, now_ms, last_runs=last_runs, last_cleaned_ms=last_cleaned)
        return CleanerStatus(
            now_ms=now_ms,
            enabled=self.settings.enable,
            holds=holds_of(self.logs.context.holds),
            threads=[
                ThreadStatus(name=t.name, alive=t.alive, failed=t.failed, resting=t.resting)
                for t in threads
            ],
            engine=self._engine_status(),
            partitions=logs.partitions,
            order_by=str(self.manager.schedule.order),
            order=logs.order,
            backlog=backlog_status(
                self.manager.backlog, logs.partitions, runs, threads=self.settings.threads
            ),
            last_runs=[run_status(run) for run in reversed(runs)],
            metrics=[
                MetricStatus(type=g.type, name=g.name, tags=g.tags, value=g.read())
                for g in self.gauges.all()
            ],
        )

    def _engine_status(self) -> EngineStatus:
        if isinstance(self.engine, ManagedEngine):
            return self.engine.status()
        return EngineStatus(state="in process")
