"""The logs of a broker's log directories: loaded, checkpointed, moved, deleted, shut down.

Source: org.apache.kafka.storage.internals.log.LogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX
from cordwood.model.errors import CordwoodError
from cordwood.model.hold import held_by
from cordwood.model.kafka_errors import NotCaughtUpError, PolicyViolationError, StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.deleted_logs import DeletedLogs
from cordwood.storage.directory_names import future_directory_name
from cordwood.storage.failures import quiet_failure, reported
from cordwood.storage.loaded_log_directory import LoadedLogDirectory, LoadProgress, Logs, Silent
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.storage.log_set import LogSet, absolute
from cordwood.storage.move_marks import hand_over, has_mark, remove_mark, set_mark
from cordwood.storage.trashed_logs import (
    ReturnedLog,
    belongs_to_trash,
    close_for_trash,
    note_closed,
    open_returned,
)

_log = logging.getLogger(__name__)


def _is_absent(present: Container[TopicPartition], partition: TopicPartition) -> bool:
    return partition not in present


class LogManager(LogSet):
    """Every log of this process, by partition; one that is being moved has a future log beside it.

    `on_removed` is called with partitions that will be deleted, were moved away from a directory,
    or were lost with it, so that their cleaning is stopped.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        broker: BrokerConfig | None = None,
        defaults: LogConfig | None = None,
        topic_config: Callable[[str], LogConfig | None] = lambda _: None,
        context: LogContext | None = None,
    ) -> None:
        """Opens the log directories; missing ones are created.

        Raises:
            DirectoryInUseError: another process holds one.
            CordwoodError: no directory can be used.
        """
        super().__init__(log_dirs, defaults=defaults, topic_config=topic_config, context=context)
        self.broker = broker or BrokerConfig()
        self.broker_epoch = -1
        self.on_removed: list[Callable[[TopicPartition, Path], None]] = []
        #: The logs that are to be deleted.
        self.deleted = DeletedLogs(self.context, lambda: self.defaults.file_delete_delay_ms)
        self._loaded = False
        self.context.failures.subscribe(self._directory_failed)

    @property
    def cordoned(self) -> frozenset[Path]:
        """The directories of cordoned.log.dirs (KIP-1066)."""
        return frozenset(absolute(Path(each)) for each in self.broker.cordoned_log_dirs)

    @property
    def cordoned_ids(self) -> tuple[UUID, ...]:
        """The ids of the cordoned directories that could be opened."""
        cordoned = self.cordoned
        found = (d.directory_id for d in self.directories if d.path in cordoned)
        return tuple(each for each in found if each is not None)

    # ---- start

    def load(
        self,
        *,
        is_stray: Callable[[PartitionLog], bool] = lambda _: False,
        progress: LoadProgress | None = None,
    ) -> None:
        """Opens every log there is; directories without the mark of a clean stop are recovered.

        Args:
            is_stray: whether a log that was found belongs to no replica of this broker; its
                directory is renamed `-stray`, and left.
            progress: called with the progress.

        Raises:
            CordwoodError: a partition lies in two directories, or no directory is left.
        """
        listener = progress or Silent()
        begun = self.context.clock.monotonic_s()
        unclean = []
        for directory in self._online():
            if not directory.had_clean_shutdown:
                unclean.append(directory.path)
            for log, suffix in directory.load(
                self._config_of,
                threads=self.broker.num_recovery_threads_per_data_dir,
                progress=listener,
            ):
                self._accept(log, suffix, is_stray)
        self._require_some_directory()
        self._forget_absent()
        self._loaded = True
        self.context.holds.spread()
        for text in self.context.holds.damage().values():
            _log.error("Nothing of this directory is cleaned or deleted: %s", text)
        if not self.context.failures.offline:  # where else the log that it replaced may turn up
            for log in self._table.all():
                with quiet_failure():
                    remove_mark(log)
        self.context.resources.close()  # an idle log holds no descriptor
        _log.info(
            "Loaded %s logs in %sms (unclean log dirs = %s)",
            len(self._table.all()),
            int((self.context.clock.monotonic_s() - begun) * 1000),
            [str(path) for path in unclean],
        )

    def _forget_absent(self) -> None:
        """Removes the checkpoints' lines of logs that a directory does not have any more.

        Those of a directory that went offline stay: its logs are loaded after it was repaired.
        """
        for directory in self._online():
            present = {log.topic_partition for log in self._table.current_in(directory.path)}
            with (
                quiet_failure(),  # on a full disk; they are removed before a log is made again
                self.context.failures.guard(directory.path, "writing the checkpoints of"),
            ):
                directory.remove_checkpoint_lines(partial(_is_absent, present))

    def _accept(
        self, log: PartitionLog, suffix: str, is_stray: Callable[[PartitionLog], bool]
    ) -> None:
        if suffix == DELETE_DIR_SUFFIX:
            self.deleted.put(log)
        elif is_stray(log):
            if belongs_to_trash(log):
                # A crash has interrupted the deletion of its topic, or its restoration.
                self.deleted.mark(log)
            else:
                _log.info("Found stray log dir %s: it is marked stray", log)
                self.deleted.mark_stray(log)
        else:
            self._put(log, future=suffix == FUTURE_DIR_SUFFIX)

    def _put(self, log: PartitionLog, *, future: bool = False) -> None:
        other = self._table.get(log.topic_partition, future=future)
        if other is not None and has_mark(other) != has_mark(log):
            old, log = (log, other) if has_mark(other) else (other, log)
            self.deleted.mark(old)
        elif other is not None:
            raise CordwoodError(
                f"Duplicate log directories for {log.topic_partition} are found in both "
                f"{other.directory} and {log.directory}. It is likely because log directory "
                "failure happened while broker was replacing current replica with future replica. "
                "Recover broker from this failure by manually deleting one of the two directories "
                "for this partition. It is recommended to delete the partition in the log "
                "directory that is known to have failed recently."
            )
        # Other logs of the directory were opened at the same time, and one may have failed.
        with quiet_failure():
            self._table.put(log, future=future)
        # They may have changed since it was opened with them: KAFKA-8813.
        log.update_config(self._config_of(log.topic_partition.topic))

    def start_tasks(self) -> None:
        """Schedules the checkpoints, the flush of old appends, and deletions.

        Source: LogManager.startupWithConfigOverrides.
        """
        broker, scheduler = self.broker, self.context.scheduler
        first = broker.log_initial_task_delay_ms
        for name, run, period in (
            ("kafka-log-flusher", self.flush_dirty, broker.log_flush_scheduler_interval_ms),
            (
                "kafka-recovery-point-checkpoint",
                self.checkpoint_recovery_points,
                broker.log_flush_offset_checkpoint_interval_ms,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                self.checkpoint_log_start_offsets,
                broker.log_flush_start_offset_checkpoint_interval_ms,
            ),
            (
                "highwatermark-checkpoint",
                self.checkpoint_high_watermarks,
                broker.replica_high_watermark_checkpoint_interval_ms,
            ),
            (
                "PeriodicProducerExpirationCheck",
                self.remove_expired_producers,
                broker.producer_id_expiration_check_interval_ms,
            ),
        ):
            scheduler.schedule(name, run, delay_ms=min(first, period), period_ms=period)
        self.deleted.start(delay_ms=first)
        trash = self.context.trash
        if trash is not None:
            scheduler.schedule(
                "cordwood-trash",
                lambda: trash.remove_expired(self.context.clock.now_ms()),
                delay_ms=first,
                period_ms=broker.log_retention_check_interval_ms,
            )

    # ---- the logs

    def update_topic_config(self, topic: str, config: LogConfig) -> list[PartitionLog]:
        """Applies other settings to a topic's logs; returns logs that are no longer compacted."""
        ended = []
        for log in self._table.of_topic(topic):
            old = log.update_config(config)
            if old.compact and not config.compact:
                ended.append(log)
        return ended

    # ---- tasks

    def flush_dirty(self) -> None:
        """Flushes logs that have not been for flush.ms."""
        now = self.context.clock.now_ms()
        for log in self.logs():
            since = now - log.flusher.last_flush_ms
            if since >= log.config.flush_ms and log.offsets.recovery_point < log.log_end_offset:
                with reported(log, "flushing"):
                    log.flush(force_active=False)

    def checkpoint_recovery_points(self) -> None:
        """Writes recovery points, of every directory that is online."""
        self._checkpoint("recovery points", LoadedLogDirectory.write_recovery_points)

    def checkpoint_log_start_offsets(self) -> None:
        """Writes log start offsets above their first segment's base; the others last as well."""
        for log in self.logs():
            with reported(log, "syncing the directory of"):
                log.flusher.sync_names()
        self._checkpoint("log start offsets", LoadedLogDirectory.write_log_starts)

    def checkpoint_high_watermarks(self) -> None:
        """Writes high watermarks."""
        self._checkpoint("high watermarks", LoadedLogDirectory.write_high_watermarks)

    def _checkpoint(self, what: str, write: Callable[[LoadedLogDirectory, Logs], None]) -> None:
        for directory in self._online():
            with (
                quiet_failure(),
                self.context.failures.guard(directory.path, f"writing {what} of"),
            ):
                write(directory, partial(self._table.current_in, directory.path))

    def remove_expired_producers(self) -> None:
        """Forgets silent producers, in every log."""
        for log in self.logs():
            log.remove_expired_producers()

    # ---- truncation

    def verify_transactions(self, *, is_enabled: bool) -> None:
        """Sets transaction.partition.verification.enable, for logs that are opened later, too."""
        self.context.verify_transactions = is_enabled
        for log in self.logs():
            log.producer_state.verifications.is_required = is_enabled

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, future: bool = False) -> None:
        """Cuts logs off at these offsets, after their lower recovery points were made to last.

        Were a recovery point written only afterwards, a power loss in between could leave what was
        truncated and written again below it, where no recovery looks. What is being moved is cut
        off in both places: a future log never has what the current one has not.

        Raises:
            StorageError: a directory is offline, or has just failed.
        """
        logs = [(self.require(partition, future=future), o) for partition, o in offsets.items()]
        lowers_start = any(offset < log.log_start_offset for log, offset in logs)
        for log, offset in logs:
            with log.lock:
                log.offsets.recovery_point = min(log.offsets.recovery_point, offset)
        self.checkpoint_recovery_points()
        with self._lock:  # no move ends in between
            for log, offset in logs:
                truncate_to(log, offset)
                follower = self._follower_of(log)
                if follower is not None:
                    truncate_to(follower, offset)
        if lowers_start:  # a load would empty a log that ends below its line
            self.checkpoint_log_start_offsets()

    def truncate_fully_and_start_at(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        log_start_offset: int | None = None,
        future: bool = False,
    ) -> None:
        """Empties a log, which continues at `offset`; its recovery point is synced first.

        Raises:
            StorageError: its directory is offline, or has just failed.
        """
        log = self.require(partition, future=future)
        with log.lock:
            log.offsets.recovery_point = min(log.offsets.recovery_point, offset)
        self.checkpoint_recovery_points()
        with self._lock:
            truncate_fully_and_start_at(log, offset, log_start_offset=log_start_offset)
            follower = self._follower_of(log)
            if follower is not None:
                truncate_fully_and_start_at(follower, offset, log_start_offset=log_start_offset)
        self.checkpoint_log_start_offsets()

    def _follower_of(self, log: PartitionLog) -> PartitionLog | None:
        """The future log that follows a current one."""
        future = self._table.get(log.topic_partition, future=True)
        return None if future is log else future

    # ---- moves; see `storage.log_moves`

    def add_future(self, partition: TopicPartition, log_dir: Path) -> PartitionLog:
        """Makes an empty future log of a partition in another directory.

        Raises:
            StorageError: there is no such log, it lies there already, or the directory refuses.
        """
        with self._lock:
            current = self.require(partition)
            if current.log_dir == absolute(log_dir):
                raise StorageError(f"{partition} lies in {log_dir} already")
            name = future_directory_name(partition, self.context.rng.unique_id())
            future = self._create(partition, name, current.topic_id, log_dir, None)
            with self.context.failures.guard(future.log_dir, "creating a log in"):
                self.context.fs.sync_directory(future.log_dir)
            self._table.put(future, future=True)
            return future

    def replace_current_with_future(
        self, partition: TopicPartition, catch_up: Callable[[], object] = lambda: None
    ) -> PartitionLog:
        """Replaces the current log with the future log; the old directory will be deleted.

        `catch_up` is called when nobody can write any more.

        Raises:
            StorageError: it has not caught up, or a directory failed.

        Source: LogManager.replaceCurrentWithFutureLog.
        """
        with self._lock:
            current, future = self.require(partition), self.require(partition, future=True)
            source = current.log_dir
            with current.lock:
                catch_up()
                if future.log_end_offset != current.log_end_offset:
                    raise NotCaughtUpError(f"the future log of {partition} has not caught up")
                hand_over(current, future)
                future.flush(force_active=True)
                # A crash between the renames leaves two current logs: the mark says which one is
                # new.
                remove_mark(current)
                set_mark(future)
                future.rename_directory(future.log_dir / str(partition))
                self._table.pop(partition, future=True)
                self._table.put(future)
                self.deleted.mark(current)
                # An appender that still holds it has to look for the new one.
                current.close_handlers()
                remove_mark(future)
        self._tell_removed(partition, source)
        self._checkpoint_all()
        return future

    # ---- deletion

    def why_not_to_delete(self, topic: str) -> PolicyViolationError | None:
        """The error of a DeleteTopics for a topic of which something here has a legal hold."""
        ids = dict.fromkeys(self.context.holds.ids_of_topic(topic))
        ids |= dict.fromkeys(each for log in self._table.of_topic(topic) for each in log.holds)
        return PolicyViolationError(f"Topic {topic} is {held_by(ids)}") if ids else None

    def delete(self, partition: TopicPartition, *, future: bool = False) -> PartitionLog | None:
        """Closes a log for deletion; its files are removed after log.segment.delete.delay.ms.

        What has a legal hold is marked stray instead, and stays: a controller on another node does
        not know of holds here, and has decided already.

        Raises:
            StorageError: its directory is offline, or has just failed.
        """
        log = self._table.pop(partition, future=future)
        if log is None:
            return None
        if not future:
            # Before the rename, and without the lock: a cleaner first lets go of the log.
            self._tell_removed(partition, log.log_dir)
        with self._lock:
            if log.holds and not future:
                self.deleted.keep_held(log)
            else:
                self.deleted.mark(log)
        self._checkpoint_all()
        return log

    def delete_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes several logs, with one sync of each directory and one write of each checkpoint.

        A log that cannot be deleted is reported, and does not stop the others.
        """
        renamed: set[Path] = set()
        closed: list[PartitionLog] = []
        for partition in partitions:
            log = self._table.pop(partition)
            if log is None:
                continue
            with reported(log, "deleting"):
                self._tell_removed(partition, log.log_dir)
                if not log.holds and close_for_trash(log):
                    closed.append(log)
                with self._lock:
                    if log.holds:
                        self.deleted.keep_held(log)
                    else:
                        self.deleted.mark(log, sync_name=False)
                renamed.add(log.log_dir)
        note_closed(self.context, closed)
        for log_dir in renamed:
            with quiet_failure(), self.context.failures.guard(log_dir, "deleting logs of"):
                self.context.fs.sync_directory(log_dir)
        if renamed:
            self._checkpoint_all()

    def take_back(self, returned: Iterable[ReturnedLog], config: LogConfig) -> list[PartitionLog]:
        """Serves the logs of a deleted topic again; their checkpoints are written on return.

        Raises:
            CordwoodError: one cannot be opened; none is served, and those that were opened are
                marked `-delete` again.
        """
        logs: list[PartitionLog] = []
        try:
            with self._lock:
                for each in returned:
                    log = open_returned(each, config, self.context)
                    self._table.put(log)
                    logs.append(log)
        except CordwoodError:
            self.delete_all([log.topic_partition for log in logs])
            raise
        self._checkpoint_all()
        return logs

    def _tell_removed(self, partition: TopicPartition, log_dir: Path) -> None:
        for listener in self.on_removed:
            listener(partition, log_dir)

    def _checkpoint_all(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    # ---- failure and shutdown

    def _directory_failed(self, log_dir: Path, reason: str) -> None:
        """Closes the logs of a failed directory, without a write."""
        gone = self._table.pop_directory(log_dir)
        self.deleted.forget_directory(log_dir)
        for log in gone:
            log.close_handlers()
            for listener in self.on_removed:
                listener(log.topic_partition, log_dir)
        _log.warning("Logs for partitions %s are offline: %s", gone, reason)

    def shutdown(self) -> None:
        """Closes every log; a directory all of whose logs closed gets the mark of a clean stop."""
        self.deleted.stop()
        self.context.scheduler.run_due()
        for directory in self._online():
            closed = True
            for log in [log for log in self.logs() if log.log_dir == directory.path]:
                try:
                    log.close()
                except CordwoodError:
                    _log.exception("Error while closing %s", log)
                    closed = False
            closed = closed and directory.path not in self.context.failures.offline
            if closed and (self._loaded or directory.had_clean_shutdown):
                with quiet_failure(), self.context.failures.guard(directory.path, "closing"):
                    if self._loaded:  # else the lines on disk are those of the last clean stop
                        directory.write_checkpoints(partial(self._table.current_in, directory.path))
                    directory.mark_clean(self.broker_epoch)
        for directory in self.directories:
            directory.release()
        if self.context.trash is not None:
            self.context.trash.close()
