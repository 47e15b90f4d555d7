"""The work of Kafka's cleaner thread and of its retention task, one pass a call.

`LiveCleaner.clean_once` compacts the filthiest log and applies retention to the compacted ones;
`retention_pass` applies it to the others. Whoever owns the process calls both: the first again at
once while there was something to compact, else after log.cleaner.backoff.ms; several threads may,
each with a `LiveCleaner` of its own.

Source: org.apache.kafka.storage.internals.log.LogCleaner, LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cordwood.cleanup.cleaner_manager import (
    CleanerManager,
    LogCleaningAbortedError,
    LogCleaningError,
    LogToClean,
)
from cordwood.cleanup.commit import RoundCommitter, RoundResult
from cordwood.cleanup.compaction import plan_compaction
from cordwood.cleanup.live import capture_live, retain
from cordwood.cleanup.live_placement import LivePlacement
from cordwood.cleanup.request import Engine
from cordwood.cleanup.round import Round, limited, plan_round
from cordwood.model.config_values import LONG_MAX
from cordwood.model.errors import CordwoodError, EngineError, NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """What one compaction did; `invalid_messages` are records without a key.

    Source: org.apache.kafka.storage.internals.log.CleanerStats.
    """

    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    invalid_messages: int
    elapsed_s: float

    @classmethod
    def of(cls, result: RoundResult, elapsed_s: float) -> CleanerStats:
        """The sum over a round's groups."""
        manifests = result.manifests
        return cls(
            bytes_read=sum(m.bytes_before for m in manifests),
            bytes_written=sum(m.log_bytes for m in manifests),
            messages_read=sum(m.records_before for m in manifests),
            messages_written=sum(m.records_after for m in manifests),
            invalid_messages=result.discarded.unkeyed,
            elapsed_s=elapsed_s,
        )

    @property
    def recopy_percent(self) -> int:
        """cleaner-recopy-percent."""
        return int(100 * self.bytes_written / max(self.bytes_read, 1))


class LiveCleaner:
    """Compacts running logs, one at a time.

    `last_stats` are those of the last log that was compacted, and `last_chosen` says which it was
    to be.
    """

    def __init__(self, manager: CleanerManager, engine: Engine, *, number: int = 0) -> None:
        """Prepares; nothing runs yet.

        Args:
            manager: says which log is next.
            engine: runs the rounds.
            number: of the thread that will call, for what is logged.
        """
        self.last_stats: CleanerStats | None = None
        self.last_chosen: LogToClean | None = None
        self._manager = manager
        self._engine = engine
        self._number = number
        self._prefix = f"Cleaner {number}: "
        self._context = manager.logs.context
        self._broker = manager.logs.broker
        # Logs whose round failed for no fault of theirs, until every other has had its turn.
        self._put_off: set[TopicPartition] = set()

    def clean_once(self) -> bool:
        """Compacts the filthiest log, if one is due, and applies retention to the compacted ones.

        A log that something is wrong with is marked uncleanable, with the reason.

        Returns:
            Whether a log was compacted; if not, there is time to rest.
        """
        if not self._broker.log_cleaner_enable:
            return False
        try:
            cleaned = self._clean_filthiest()
            self._retain_compacted()
        except LogCleaningError as error:
            self._give_up_on(error.log, error)
            return False
        finally:
            self._manager.maintain_uncleanable()
        return cleaned

    def _give_up_on(self, log: PartitionLog, error: Exception) -> None:
        _log.warning(
            "%sUnexpected exception thrown when cleaning log %s. Marking its partition (%s) as "
            "uncleanable",
            self._prefix,
            log,
            log.topic_partition,
            exc_info=error,
        )
        self._manager.mark_uncleanable(log, str(error))

    # ---- compaction

    def _clean_filthiest(self) -> bool:
        now_ms = self._context.clock.now_ms()
        chosen = self._manager.grab_filthiest(now_ms, passing_over=self._put_off)
        if chosen is None:
            self._put_off.clear()
            return False
        self.last_chosen = chosen
        log, log_dir = chosen.log, chosen.log.log_dir
        end_offset = chosen.cleanable.first_dirty
        try:
            self._clean(chosen, now_ms)
            end_offset = chosen.cleanable.first_uncleanable
        except LogCleaningAbortedError as error:
            _log.info("%s%s", self._prefix, error)
        except StorageError as error:  # the directory is offline already
            _log.info("%s%s", self._prefix, error)
        except (EngineError, NoSpaceError) as error:
            _log.warning("%sCould not clean log %s: %s", self._prefix, log, error)
            self._put_off.add(log.topic_partition)
            return False
        except FileNotFoundError as error:
            raise LogCleaningError(log, str(error)) from error
        except OSError as error:
            self._context.failures.fail(
                log_dir,
                f"Failed to clean up log for {log.topic_partition} in dir {log_dir} due to "
                f"IOException: {error}",
            )
        except Exception as error:
            raise LogCleaningError(log, str(error)) from error
        finally:
            self._manager.done_cleaning(chosen.topic_partition, log_dir, end_offset)
        return True

    def _clean(self, chosen: LogToClean, now_ms: int) -> None:
        """One round over a log.

        Raises:
            LogCleaningAbortedError: somebody needs the log.
            OSError, CordwoodError: what went wrong; groups in place stay.
        """
        log, cleanable = chosen.log, chosen.cleanable
        begun = self._context.clock.monotonic_s()
        _log.info("%sBeginning cleaning of log %s", self._prefix, chosen.topic_partition)
        sources = capture_live(log, end=cleanable.first_uncleanable)
        captured = sources.captured
        plan = plan_compaction(captured.view, cleanable)
        round_ = self._limited(
            plan_round(
                captured, plan, now_ms=now_ms, seed=int(self._context.chance.unique_id(), 16) >> 1
            )
        )
        self._announce(round_)
        placement = LivePlacement(
            log,
            sources.segments,
            generation=sources.generation,
            require_wanted=lambda: self._manager.check_cleaning_aborted(log),
            prefix=self._prefix,
        )
        committer = RoundCommitter(round_, placement, fs=self._context.fs)
        try:
            self._engine.run([committer])
        finally:
            with suppress(OSError):  # a partition that is gone has nothing left to clear
                committer.close()
        if not committer.done:
            raise committer.result.error or EngineError(
                "the engine stopped before the round was over"
            )
        stats = CleanerStats.of(committer.result, self._context.clock.monotonic_s() - begun)
        self._record(chosen, stats)

    def _limited(self, round_: Round) -> Round:
        broker = self._broker
        rate = broker.log_cleaner_io_max_bytes_per_second / max(1, broker.log_cleaner_threads)
        return limited(
            round_,
            attempt=self._context.chance.unique_id()[:8],
            free_bytes=self._context.fs.free_bytes(Path(round_.directory)),
            throttle_bytes=max(1, int(rate)) if rate < LONG_MAX else None,
        )

    def _announce(self, round_: Round) -> None:
        prefix, name = self._prefix, round_.name
        _log.info("%sBuilding offset map for %s...", prefix, name)
        _log.info(
            "%sBuilding offset map for log %s for %s segments in offset range [%s, %s).",
            prefix,
            name,
            len(round_.dirty),
            round_.first_dirty,
            round_.first_uncleanable,
        )
        _log.info(
            "%sCleaning log %s (cleaning prior to %s, discarding tombstones prior to upper bound "
            "deletion horizon %s)...",
            prefix,
            name,
            _date(round_.segments[-1].modified_ns // 1_000_000),
            _date(round_.legacy_horizon_ms),
        )

    def _record(self, chosen: LogToClean, stats: CleanerStats) -> None:
        """Says what a round did, in the lines of Kafka's that have a meaning here.

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

    # ---- retention of compacted logs

    def _retain_compacted(self) -> None:
        """Each is let go as soon as it is done, whatever becomes of it."""
        logs = self._manager.deletable_logs()
        for log in logs:
            try:
                self._manager.check_cleaning_aborted(log)
                retain(log, self._context.clock.now_ms())
            except LogCleaningAbortedError:
                continue
            except (OSError, CordwoodError) as error:
                self._give_up_on(log, error)
            finally:
                self._manager.done_deleting([log.topic_partition])


def retention_pass(manager: CleanerManager) -> int:
    """Applies retention to every log without `compact`; how many segments went.

    A log that something is wrong with is logged, and the others go on.

    Source: LogManager.cleanupLogs.
    """
    clock = manager.logs.context.clock
    begun = clock.monotonic_s()
    _log.debug("Beginning log cleanup...")
    total = 0
    logs = manager.pause_for_retention()
    try:
        for log in logs:
            future = manager.logs.get(log.topic_partition, future=True)
            for each in (log, future):
                if each is not None:
                    total += _collect(each, clock.now_ms())
    finally:
        manager.resume_cleaning([log.topic_partition for log in logs])
    _log.debug(
        "Log cleanup completed. %s files deleted in %s seconds",
        total,
        int(clock.monotonic_s() - begun),
    )
    return total


def _collect(log: PartitionLog, now_ms: int) -> int:
    _log.debug("Garbage collecting '%s'", log.topic_partition)
    try:
        return retain(log, now_ms)
    except CordwoodError:
        _log.exception("Error while deleting old segments of %s", log)
        return 0


def start_retention(manager: CleanerManager) -> None:
    """Puts `retention_pass` on the schedule, every log.retention.check.interval.ms."""
    broker = manager.logs.broker
    period_ms = broker.log_retention_check_interval_ms
    _log.info("Starting log cleanup with a period of %s ms.", period_ms)
    manager.logs.context.scheduler.schedule(
        "kafka-log-retention",
        lambda: _ignore(retention_pass(manager)),
        delay_ms=broker.log_initial_task_delay_ms,
        period_ms=period_ms,
    )


def _ignore(_: int) -> None:
    """A scheduled task returns nothing."""


def _date(ms: int) -> str:
    """As java.util.Date prints itself, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
