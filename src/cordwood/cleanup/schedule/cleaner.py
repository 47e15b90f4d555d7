"""The work of Kafka's cleaner thread, one pass a call.

`OnlineCleaner.clean_once` compacts the filthiest log and applies retention to the compacted ones;
`retention_pass` applies it to the others. The owner of the process calls it again at once while
there was something to compact, else after log.cleaner.backoff.ms. Several threads may call, each an
`OnlineCleaner` of its own.

Source: org.apache.kafka.storage.internals.log.LogCleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.cleanup.access.online.groups import consumed_of
from cordwood.cleanup.access.online.running_log import RunningLog
from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected, Unknown
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager, LogCleaningError, LogToClean
from cordwood.cleanup.schedule.cleaning import compact
from cordwood.cleanup.schedule.cleaning_states import LogCleaningAbortedError
from cordwood.cleanup.schedule.quarantine import Stage
from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.cleanup.schedule.running_owner import RunningOwner
from cordwood.configs.value import LONG_MAX
from cordwood.model.errors import (
    CordwoodError,
    EngineError,
    EngineUnavailableError,
    NoSpaceError,
)
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from cordwood.cleanup.access.commit import CompactionResult, Engine, IndexStats

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
# By how much the free space has to grow before a log that found the disk full is tried again.
_FREED_BYTES_MIN = 1 << 20


class CleanerStoppedError(LogCleaningAbortedError):
    """The cleaner itself is to stop.

    Source: org.apache.kafka.storage.internals.log.ThreadShutdownException.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """The statistics of one compaction; `invalid_messages` are records without a key.

    `index` says how the keys were gathered, None where the engine does not say.

    Source: org.apache.kafka.storage.internals.log.CleanerStats.
    """

    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    invalid_messages: int
    elapsed_s: float
    index: IndexStats | None = None

    @classmethod
    def of(cls, result: CompactionResult, elapsed_s: float) -> CleanerStats:
        """The sum over a compaction's groups."""
        manifests = result.manifests
        return cls(
            bytes_read=sum(m.bytes_before for m in manifests),
            bytes_written=sum(m.log_bytes for m in manifests),
            messages_read=sum(m.records_before for m in manifests),
            messages_written=sum(m.records_after for m in manifests),
            invalid_messages=result.discarded.unkeyed,
            elapsed_s=elapsed_s,
            index=result.index,
        )

    @property
    def recopy_percent(self) -> int:
        """The metric cleaner-recopy-percent."""
        return int(100 * self.bytes_written / max(self.bytes_read, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerRun:
    """One attempt to compact a log: its start (ms), its duration, and its outcome.

    `stats` are of one that was committed.
    """

    chosen: LogToClean
    number: int
    started_ms: int
    elapsed_s: float
    outcome: Outcome
    stats: CleanerStats | None = None


class OnlineCleaner:
    """Compacts running logs, one at a time.

    `last_stats` are those of the last log that was compacted, and `last_chosen` says which it was
    to be.
    """

    def __init__(
        self,
        manager: CleanerManager,
        engine: Engine,
        *,
        number: int = 0,
        bytes_per_second: Callable[[], float] | None = None,
        verify: Callable[[], bool] = lambda: False,
        require_running: Callable[[], None] = lambda: None,
        on_run: Callable[[CleanerRun], None] = lambda _: None,
    ) -> None:
        """Prepares; nothing runs yet.

        Args:
            manager: says which log is next.
            engine: runs the compactions.
            number: of the thread that will call, for what is logged.
            bytes_per_second: what this cleaner may read and write; by default its share of the
                broker's log.cleaner.io.max.bytes.per.second.
            verify: whether what is written is compared with its source.
            require_running: raises CleanerStoppedError when this cleaner is to stop.
            on_run: called for every attempt to compact a log.
        """
        self.last_stats: CleanerStats | None = None
        self.last_chosen: LogToClean | None = None
        self._manager = manager
        self._engine = engine
        self._number = number
        self._prefix = f"Cleaner {number}: "
        self._context = manager.logs.context
        self._bytes_per_second = bytes_per_second or self._share_of_broker
        self._verify = verify
        self._require_running = require_running
        self._on_run = on_run
        # Logs whose compaction failed for no fault of theirs, until every other has had its turn.
        self._postponed: set[TopicPartition] = set()

    def clean_once(self) -> bool:
        """Compacts the filthiest log, if one is due, and applies retention to the compacted ones.

        A log that something is wrong with is marked uncleanable, with the reason.

        Returns:
            Whether a log was compacted; if not, there is time to rest.

        Raises:
            CleanerStoppedError: this cleaner is to stop.
        """
        self._require_running()
        if not self._manager.logs.broker.log_cleaner_enable:
            return False
        cleaned = False
        try:
            try:
                self._roll_expired()
                cleaned = self._clean_filthiest()
            except LogCleaningError as error:
                self._mark_uncleanable(error.log, error, error.stage)
            self._retain_compacted()
        finally:
            self._manager.maintain_uncleanable()
        return cleaned

    def _mark_uncleanable(self, log: PartitionLog, error: Exception, stage: Stage) -> None:
        _log.warning(
            "%sUnexpected exception thrown when cleaning log %s. Marking its partition (%s) as "
            "uncleanable",
            self._prefix,
            log,
            log.topic_partition,
            exc_info=error,
        )
        self._manager.mark_uncleanable(log, str(error), stage=stage)

    # ---- compaction

    def _clean_filthiest(self) -> bool:
        now_ms = self._context.clock.now_ms()
        chosen = self._manager.grab_filthiest(now_ms, passing_over=self._postponed)
        if chosen is None:
            self._postponed.clear()
            return False
        self.last_chosen = chosen
        begun = self._context.clock.monotonic_s()
        partition, log_dir = chosen.topic_partition, chosen.log.log_dir
        end_offset, run = chosen.cleanable.first_dirty, None
        try:
            outcome, stats = self._clean(chosen, now_ms)
            run = CleanerRun(
                chosen=chosen,
                number=self._number,
                started_ms=now_ms,
                elapsed_s=self._context.clock.monotonic_s() - begun,
                outcome=outcome,
                stats=stats,
            )
            if isinstance(outcome, Committed):
                end_offset = chosen.cleanable.cleaned_to
                self._manager.note_settled(chosen.log, now_ms)
                self._manager.note_sound(chosen.log, Stage.COMPACTION)
                return True
            return self._followed_up(chosen.log, outcome.error)
        finally:
            self._manager.done_cleaning(partition, log_dir, end_offset)
            if run is not None:
                self._on_run(run)

    def _followed_up(self, log: PartitionLog, error: BaseException) -> bool:
        """Does what the error of a compaction requires; whether the next log is chosen at once.

        Raises:
            LogCleaningError: something is wrong with the log.
        """
        match error:
            case NoSpaceError() | StorageError(is_out_of_space=True):
                self._wait_for_space(log, error)
                return False
            case StorageError() | LogCleaningAbortedError():
                # Its directory is offline, or it was closed; or somebody needs the log.
                _log.info("%s%s", self._prefix, error)
            case EngineUnavailableError():  # the engine has said so, once
                _log.debug("%sCould not clean log %s: %s", self._prefix, log, error)
                return False
            case EngineError():
                _log.warning("%sCould not clean log %s: %s", self._prefix, log, error)
                self._postponed.add(log.topic_partition)
                return False
            case OSError() if not isinstance(error, FileNotFoundError):  # of the log itself
                self._context.failures.fail(
                    log.log_dir,
                    f"Failed to clean up log for {log.topic_partition} in dir {log.log_dir} due to "
                    f"IOException: {error}",
                )
            case _:
                raise LogCleaningError(log, str(error)) from error
        return True

    def _wait_for_space(self, log: PartitionLog, error: BaseException) -> None:
        """Sets a log aside until space has been freed; other logs are still cleaned.

        Differs: Kafka takes the whole log directory offline.
        """
        free_bytes = _free_bytes(self._context.fs, log.log_dir)
        _log.warning(
            "%sCould not clean log %s for lack of space: %s. %s bytes are free; it is retried "
            "when more are",
            self._prefix,
            log.topic_partition,
            error,
            "An unknown number of" if free_bytes is None else free_bytes,
        )
        self._manager.mark_uncleanable(
            log,
            str(error),
            retry_free_bytes=None
            if free_bytes is None
            else max(2 * free_bytes, free_bytes + _FREED_BYTES_MIN),
        )

    def _clean(self, chosen: LogToClean, now_ms: int) -> tuple[Outcome, CleanerStats | None]:
        """Compacts a log; the statistics of a compaction that was committed."""
        begun = self._context.clock.monotonic_s()
        owner = RunningOwner(
            chosen.log,
            chosen.cleanable,
            require_wanted=lambda: self._require_wanted(chosen.log),
            limits=Limits(throttle_bytes=self._rate(), verify=self._verify()),
            prefix=self._prefix,
        )
        try:
            compact([owner], lambda: self._engine, now_ms=now_ms)
            assert owner.result is not None, "it is due, or it would not have been chosen"
            outcome = owner.result.outcome
            assert outcome is not None, "an engine has executed it"
        except Exception as error:
            if owner.result is not None and isinstance(owner.result.outcome, Unknown):
                return owner.result.outcome, None
            return Rejected(error), None
        if not isinstance(outcome, Committed):
            return outcome, None
        stats = CleanerStats.of(owner.result, self._context.clock.monotonic_s() - begun)
        self._record(chosen, stats)
        return outcome, stats

    def _require_wanted(self, log: PartitionLog) -> None:
        self._require_running()
        self._manager.check_cleaning_aborted(log)

    def _rate(self) -> int | None:
        rate = self._bytes_per_second()
        return max(1, int(rate)) if rate < LONG_MAX else None

    def _share_of_broker(self) -> float:
        broker = self._manager.logs.broker
        return broker.log_cleaner_io_max_bytes_per_second / max(1, broker.log_cleaner_threads)

    def _record(self, chosen: LogToClean, stats: CleanerStats) -> None:
        """Logs the statistics of a compaction, with those of Kafka's lines that apply here.

        Source: LogCleaner.CleanerThread.recordStats.
        """
        self.last_stats = stats
        read, written = stats.bytes_read / _MIB, stats.bytes_written / _MIB
        fewer_bytes = 100.0 * (1.0 - stats.bytes_written / max(1, stats.bytes_read))
        fewer = 100.0 * (1.0 - stats.messages_written / max(1, stats.messages_read))
        seconds = stats.elapsed_s
        _log.info(
            "[kafka-log-cleaner-thread-%s]: \n%s",
            self._number,
            "\n".join(
                [
                    f"\tLog cleaner thread {self._number} cleaned log {chosen.topic_partition} "
                    f"(dirty section = [{chosen.cleanable.first_dirty}, "
                    f"{chosen.cleanable.first_uncleanable}])",
                    f"\t{read:,.1f} MB of log processed in {seconds:,.1f} seconds "
                    f"({read / max(seconds, 1e-3):,.1f} MB/sec).",
                    *_index_lines(stats),
                    f"\tStart size: {read:,.1f} MB ({stats.messages_read:,d} messages)",
                    f"\tEnd size: {written:,.1f} MB ({stats.messages_written:,d} messages)",
                    f"\t{fewer_bytes:.1f}% size reduction ({fewer:.1f}% fewer messages)",
                ]
            ),
        )
        if chosen.delayed_partitions:
            _log.info(
                "\tCleanable partitions: %s, Delayed partitions: %s, max delay: %s",
                chosen.cleanable_partitions,
                chosen.delayed_partitions,
                chosen.max_delay_ms,
            )
        if stats.invalid_messages:
            _log.warning("\tFound %s invalid messages during compaction.", stats.invalid_messages)

    def _roll_expired(self) -> None:
        """Rolls active segments with records that have expired, so that they can be compacted now.

        Those of logs that somebody works on are left for the next check.
        """
        now_ms = self._context.clock.now_ms()
        for log in self._manager.rollable_logs(now_ms):
            try:
                RunningLog(log).roll_expired(now_ms)
            except StorageError as error:  # its directory is offline, or it was closed
                _log.info("%s%s", self._prefix, error)
            except (OSError, CordwoodError) as error:
                raise LogCleaningError(log, str(error), stage=Stage.LOOK) from error

    # ---- retention of compacted logs

    def _retain_compacted(self) -> None:
        """Applies retention to compacted logs; each is released when it is done, also on errors."""
        groups = self._manager.groups
        known = groups.look_up([log for log in self._manager.current_logs() if log.config.compact])
        logs = self._manager.deletable_logs()
        for log in logs:
            try:
                self._manager.check_cleaning_aborted(log)
                retain(
                    log,
                    self._context.clock.now_ms(),
                    consumed=consumed_of(known, log),
                    lost=groups.note,
                )
                self._manager.note_sound(log, Stage.RETENTION)
            except LogCleaningAbortedError:
                continue
            except (OSError, CordwoodError) as error:
                self._mark_uncleanable(log, error, Stage.RETENTION)
            finally:
                self._manager.states.done([log.topic_partition])


def _free_bytes(fs: FileSystem, path: Path) -> int | None:
    try:
        return fs.free_bytes(path)
    except OSError:
        return None


def _index_lines(stats: CleanerStats) -> list[str]:
    """Kafka's lines on the offset map, where the engine says how it was made."""
    index = stats.index
    if index is None:
        return []
    total, rest = max(stats.elapsed_s, 1e-3), max(stats.elapsed_s - index.elapsed_s, 0.0)
    share = min(100.0, 100 * index.elapsed_s / total)
    indexed, cleaned = index.bytes_read / _MIB, stats.bytes_read / _MIB
    return [
        f"\tIndexed {indexed:,.1f} MB in {index.elapsed_s:.1f} seconds "
        f"({indexed / max(index.elapsed_s, 1e-3):,.1f} Mb/sec, {share:.1f}% of total time)",
        f"\tBuffer utilization: {100 * index.utilization:.1f}%",
        f"\tCleaned {cleaned:,.1f} MB in {rest:.1f} seconds "
        f"({cleaned / max(rest, 1e-3):,.1f} Mb/sec, {100 - share:.1f}% of total time)",
    ]
