"""Changes of running logs that their cleaning must stop for: truncation, another policy, a move.

Each stops the cleaning of the partition first, waiting until the cleaner has released it, and
resumes it afterwards. None may be called with a log's lock held. Other work may run meanwhile if
this runs in slices (`model.pauses`). A log that is deleted needs none of these: the `LogManager`
notifies the cleaner.

Source: org.apache.kafka.storage.internals.log.LogManager (truncateTo, truncateFullyAndStartAt,
updateTopicConfig, replaceCurrentWithFutureLog), kafka.server.ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.configs.log_config import LogConfig
from cordwood.model.pauses import background
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_moves import LogMove


@contextmanager
def _paused(manager: CleanerManager, partitions: Sequence[TopicPartition]) -> Iterator[None]:
    paused: list[TopicPartition] = []
    try:
        for partition in partitions:
            with background():
                manager.states.abort_and_pause(partition)
            paused.append(partition)
        yield
    finally:
        manager.states.resume_cleaning(paused)


def truncate_paused(
    manager: CleanerManager,
    offsets: Mapping[TopicPartition, int],
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Cuts logs off, each at its offset; the cleaner's checkpoint follows where it lay beyond.

    A log that is only cut in its active segment is not paused. Nothing is done if `is_wanted` says
    so when the cleaning has stopped.

    Raises:
        StorageError: a directory is offline, or has just failed.
    """
    logs = manager.logs
    deep = [p for p, offset in offsets.items() if offset < logs.require(p).active.base_offset]
    with _paused(manager, deep):
        if deep and not is_wanted():
            return
        logs.truncate_to(offsets)
        for partition in deep:
            _lower_checkpoint(manager, logs.require(partition))


def truncate_fully_paused(
    manager: CleanerManager,
    partition: TopicPartition,
    offset: int,
    *,
    log_start_offset: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Empties a log, which continues at `offset`; `is_wanted` as in `truncate_paused`.

    Raises:
        StorageError: the directory is offline, or has just failed.
    """
    with _paused(manager, [partition]):
        if not is_wanted():
            return
        manager.logs.truncate_fully_and_start_at(
            partition, offset, log_start_offset=log_start_offset
        )
        _lower_checkpoint(manager, manager.logs.require(partition))


def _lower_checkpoint(manager: CleanerManager, log: PartitionLog) -> None:
    manager.checkpoints.maybe_truncate(log.log_dir, log.topic_partition, log.active.base_offset)


def update_topic_config(manager: CleanerManager, topic: str, config: LogConfig) -> None:
    """Applies other settings; stops a cleaning that they no longer require."""
    for log in manager.logs.update_topic_config(topic, config):
        if manager.logs.get(log.topic_partition) is log:
            manager.states.abort_cleaning(log.topic_partition)


class PausedMove:
    """A move of a partition to another directory, during which it is not cleaned.

    The cleaner's checkpoint moves with it.
    """

    def __init__(self, manager: CleanerManager, partition: TopicPartition, log_dir: Path) -> None:
        """Begins the move, or continues one that a restart has interrupted.

        Raises:
            StorageError: there is no such log, it lies there already, or the directory refuses.
        """
        self._manager = manager
        self._partition = partition
        manager.states.abort_and_pause(partition)
        try:
            self._move = LogMove(manager.logs, partition, log_dir)
        except BaseException:
            manager.states.resume_cleaning([partition])
            raise

    def advance(self) -> bool:
        """Copies the next batches; whether the future log has caught up."""
        return self._move.advance()

    def finish(self) -> PartitionLog:
        """Replaces the current log with the future log, and allows its cleaning again.

        Raises:
            NotCaughtUpError: more was written than can be copied while nobody writes: `advance`.
            StorageError: a directory failed.
        """
        log = self._move.finish(catch_up=True)
        self._manager.states.resume_cleaning([self._partition])
        return log

    def interrupt(self) -> None:
        """Leaves both logs as they are: the next start continues the move."""
        self._manager.states.resume_cleaning([self._partition])

    def abandon(self) -> None:
        """Leaves the log where it is, and has it cleaned again."""
        try:
            self._manager.logs.delete(self._partition, future=True)
        finally:
            self._manager.states.resume_cleaning([self._partition])
