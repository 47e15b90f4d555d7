"""The status of a cleaner as an answer: its threads, engine, logs and last runs.

Times are in ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.schedule.cleaner_backlog import Growth
from cordwood.model.documents import ABSENT
from cordwood.storage.holds import Holds


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanableStatus:
    """Why a log is set aside: it failed `attempts` times at `stage`, and is tried again then."""

    reason: str
    stage: str
    since_ms: int
    attempts: int
    retry_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactionStatus:
    """A transaction without a marker; `transactional_id` is None if no coordinator here has it."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    started_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One attempt to clean a log, up to `end_offset`, exclusive.

    The fields from `bytes_read` on are of one that has compacted, those from `index_bytes` on of an
    engine that says how it gathered the keys.
    """

    partition: str
    cleaner: int
    started_ms: int
    elapsed_s: float
    outcome: str
    error: str
    first_dirty_offset: int
    end_offset: int
    bytes_read: int | None = field(default=None, metadata=ABSENT)
    bytes_written: int | None = field(default=None, metadata=ABSENT)
    messages_read: int | None = field(default=None, metadata=ABSENT)
    messages_written: int | None = field(default=None, metadata=ABSENT)
    invalid_messages: int | None = field(default=None, metadata=ABSENT)
    recopy_percent: int | None = field(default=None, metadata=ABSENT)
    index_bytes: int | None = field(default=None, metadata=ABSENT)
    index_elapsed_s: float | None = field(default=None, metadata=ABSENT)
    keys: int | None = field(default=None, metadata=ABSENT)
    buffer_utilization: float | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    """A compacted log: whether it is due, and the reason.

    Of one that could not be checked there are no bytes and no offsets but `checkpoint` and
    `log_end_offset`. `bytes_freed_estimated` is None unless it is due and was estimated;
    `last_cleaned_ms` and `last_run` are None if this process has not cleaned it.
    """

    topic: str
    partition: int
    log_dir: str
    policy: str
    state: str
    checkpoint: int | None
    log_end_offset: int
    uncleanable: UncleanableStatus | None
    due: bool = False
    reason: str = ""
    clean_bytes: int | None = field(default=None, metadata=ABSENT)
    dirty_bytes: int | None = field(default=None, metadata=ABSENT)
    cleanable_ratio: float = 0.0
    min_cleanable_dirty_ratio: float | None = field(default=None, metadata=ABSENT)
    first_dirty_offset: int | None = field(default=None, metadata=ABSENT)
    first_uncleanable_offset: int | None = field(default=None, metadata=ABSENT)
    compaction_delay_ms: int | None = field(default=None, metadata=ABSENT)
    due_segments: Sequence[int] = ()
    blockers: Sequence[str] = ()
    open_transactions: Sequence[OpenTransactionStatus] = ()
    bytes_freed_estimated: int | None = None
    last_cleaned_ms: int | None = None
    last_run: RunStatus | None = None

    @property
    def name(self) -> str:
        """Topic and partition, as the name of a directory."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogStatus:
    """The logs that are due.

    `bytes_per_s` is the rate at which the last compactions read, with all threads at work, and
    `seconds_left` the time that what is due takes at that rate; both are None before the first.
    `bytes_freed` is None if it is not estimated for each log. `growth` is None while the cleaner
    keeps up.
    """

    logs: int
    bytes_to_read: int
    bytes_freed: int | None
    bytes_per_s: int | None
    seconds_left: float | None
    growth: Growth | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStatus:
    """A thread of the cleaner: `resting` while nothing is due, `failed` if an error ended it."""

    name: str
    alive: bool
    failed: bool
    resting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStatus:
    """A metric under Kafka's name, `kafka.log:type=...,name=...`, with its tags and value."""

    type: str
    name: str
    tags: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStatus:
    """The cleaner of a broker.

    `order` has the names of the logs that are due, the next first, by `order_by`; `last_runs` the
    last first.
    """

    now_ms: int
    enabled: bool
    holds: Holds
    threads: Sequence[ThreadStatus]
    engine: EngineStatus
    partitions: Sequence[LogStatus]
    order_by: str
    order: Sequence[str]
    backlog: BacklogStatus
    last_runs: Sequence[RunStatus]
    metrics: Sequence[MetricStatus]
