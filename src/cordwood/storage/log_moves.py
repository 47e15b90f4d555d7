"""Moves a partition to another log directory while it is written to and read.

A future log in the other directory follows the current one as a follower does; when it has caught
up, directories are renamed under the current log's lock, and the old one is deleted later.

Source: kafka.server.ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.leader_epochs import EpochEntry
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import LEADER_OFFSET_INCREMENT, PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.storage.log_manager import LogManager

_COPY_BYTES = 1 << 20


class LogMove:
    """The move of one partition; call `advance` until it has caught up, then `finish`."""

    def __init__(self, manager: LogManager, partition: TopicPartition, log_dir: Path) -> None:
        """Begins the move, or continues one that a restart has interrupted.

        A crash may have cut off the current log where it did not cut off the future one, and other
        records may have been appended since: leader epochs tell.

        Raises:
            StorageError: there is no such log, it lies there already, or the directory refuses.
        """
        self._manager = manager
        self._partition = partition
        self._current = manager.require(partition)
        if manager.get(partition, future=True) is None:
            future = manager.add_future(partition, log_dir)
            if self._current.log_start_offset:
                truncate_fully_and_start_at(future, self._current.log_start_offset)
        else:
            future = manager.require(partition, future=True)
            if self._current.topic_id is not None:  # it may not have been written yet
                future.assign_topic_id(self._current.topic_id)
            same = _first_difference(self._current, future)
            gap = future.offsets.gap
            truncate_to(future, same if gap is None else min(same, gap))

    def advance(self, *, max_bytes: int = _COPY_BYTES) -> bool:
        """Copies the next batches; whether the future log has caught up.

        Raises:
            StorageError: a directory failed, or the move is over.
        """
        current = self._manager.require(self._partition)
        if current is not self._current:  # deleted, and another topic of that name made
            raise StorageError(f"the log of {self._partition} is not the one to be moved")
        future = self._manager.require(self._partition, future=True)
        if future.log_end_offset > current.log_end_offset:
            truncate_to(future, current.log_end_offset)
        if future.log_end_offset < current.log_start_offset:
            truncate_fully_and_start_at(future, current.log_start_offset)
        truncation_count = current.offsets.truncation_count
        fetched = current.reader.read(
            future.log_end_offset, max_bytes, isolation=Isolation.LOG_END, min_one=True
        )
        with current.guard("reading from"):
            data = fetched.read()
        with future.lock:
            if current.offsets.truncation_count != truncation_count:
                return False  # it was cut off: what was read may be gone
            if data:
                future.append_as_follower(data)
        future.update_high_watermark(min(current.high_watermark, future.log_end_offset))
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.maybe_increment_log_start_offset(
                current.log_start_offset, LEADER_OFFSET_INCREMENT
            )
        return future.log_end_offset >= current.log_end_offset

    def finish(self, *, catch_up: bool = False) -> PartitionLog:
        """Replaces the current log with the future log.

        Args:
            catch_up: first copy what was written since `advance`, one part at most.

        Raises:
            NotCaughtUpError: it lacks records yet: `advance` further.
            StorageError: a directory failed.
        """
        if catch_up:
            return self._manager.replace_current_with_future(self._partition, self.advance)
        return self._manager.replace_current_with_future(self._partition)


def _first_difference(current: PartitionLog, future: PartitionLog) -> int:
    """The offset up to which the two have the same records, as far as leader epochs tell."""
    start = max(current.log_start_offset, future.log_start_offset)
    end = min(current.log_end_offset, future.log_end_offset)
    for pair in zip_longest(_epochs_from(current, start), _epochs_from(future, start)):
        if pair[0] != pair[1]:
            return min(end, *[entry.start_offset for entry in pair if entry is not None])
    return end


def _epochs_from(log: PartitionLog, start: int) -> list[EpochEntry]:
    entries = log.leader_epochs.epoch_entries
    later = [entry for entry in entries if entry.start_offset > start]
    before = entries[: len(entries) - len(later)]
    return [EpochEntry(before[-1].epoch, start), *later] if before else later
