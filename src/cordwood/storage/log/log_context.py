"""The context that the logs of a process share."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from cordwood.configs.levels import Origin
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.rng import Rng, SystemRng
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.validator import ValidationMetrics
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.scheduler import Scheduler
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache

_RECENT_MAX = 1028


class FlushTimes:
    """Statistics of flushes of segments: number and duration, in all and lately; in seconds.

    Source: org.apache.kafka.storage.internals.log.LogSegment (LogFlushRateAndTimeMs).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._seconds = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT_MAX)

    def note(self, count: int, seconds: float) -> None:
        """Counts flushed segments and the seconds it took."""
        if count:
            with self._lock:
                self._count += count
                self._seconds += seconds
                self._recent.append(seconds / count)

    def read(self) -> tuple[int, float, list[float]]:
        """Count, sum, and the last times, each of one segment."""
        with self._lock:
            return self._count, self._seconds, list(self._recent)


class LogContext:
    """Clock, rng, open files, delayed tasks, failed directories, legal holds, counters.

    `producer_id_expiration_ms`, `max_transaction_timeout_ms` and `verify_transactions`
    (transaction.partition.verification.enable) are the broker's settings; `metadata_version` gives
    the cluster's level, 0 where it is not known: any thread may call it.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        resources: ResourceCache | None = None,
        scheduler: Scheduler | None = None,
        failures: FailureChannel | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        max_transaction_timeout_ms: int = 900_000,
        verify_transactions: bool = True,
        metadata_version: Callable[[], int] = lambda: 0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.rng: Rng = rng or SystemRng()
        self.resources = resources or ResourceCache()
        self.scheduler = scheduler or Scheduler(self.clock)
        self.failures = failures or FailureChannel(self.clock)
        self.holds = HoldRegistry(self.fs, lambda path: path in self.failures.offline)
        #: Takes what is removed from logs whose settings say so; None if it is removed.
        self.trash: BrokerTrash | None = None
        self.metrics = ValidationMetrics()
        self.flushes = FlushTimes()
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.verify_transactions = verify_transactions
        self.metadata_version = metadata_version
        self.log_start_moved: Callable[[TopicPartition], object] = lambda _: None
        """Called when the log start offset of a log has grown, with the log locked."""

        self.setting_origins: Callable[[str], Mapping[str, Origin]] = lambda _: {}
        """For each setting of a topic where its value comes from; any thread may call it."""

    def draw_jitter_ms(self, config: LogConfig) -> int:
        """Draws the time (ms) by which a new segment rolls earlier than after segment.ms.

        Source: LogConfig.randomSegmentJitter.
        """
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self.rng.below(jitter_ms) if jitter_ms > 0 else 0

    def create_segment(self, directory: Path, base_offset: int, config: LogConfig) -> LogSegment:
        """Makes the files of an empty segment, which is in no log yet.

        Raises:
            NoSpaceError, OSError: one could not be made.
        """
        return LogSegment.create(
            directory,
            base_offset,
            config=config,
            resources=self.resources,
            now_ms=self.clock.now_ms(),
            roll_jitter_ms=self.draw_jitter_ms(config),
        )

    def dispose(self, path: Path) -> None:
        """Removes a `.deleted` file, or moves it to the trash if it is noted there.

        Raises:
            TrashError: it cannot be moved, and is where it was.
            OSError: it cannot be removed.
        """
        if self.trash is None:
            self.fs.remove(path)
        else:
            self.trash.dispose(path)

    @property
    def fs(self) -> FileSystem:
        """The file system that holds the logs."""
        return self.resources.fs
