"""Moves a partition to another log directory while it is written to and read.

A future log in the other directory follows the current one as a follower does; when it has caught
up, directories are renamed under the current log's lock, and the old one is deleted later.

Source: kafka.server.ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

from pathlib import Path

from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_manager import LogManager
from cordwood.storage.log_reader import Isolation
from cordwood.storage.log_state import LEADER_OFFSET_INCREMENT
from cordwood.storage.partition_log import PartitionLog

_COPY_BYTES = 1 << 20


class LogMove:
    """One partition on its way; `advance` until it has caught up, then `finish`."""

    def __init__(self, manager: LogManager, partition: TopicPartition, log_dir: Path) -> None:
        """Begins the move, or goes on with one that a restart has interrupted.

        Raises:
            StorageError: there is no such log, it lies there already, or the directory refuses.
        """
        self._manager = manager
        self._partition = partition
        if manager.get(partition, future=True) is None:
            current = manager.require(partition)
            future = manager.add_future(partition, log_dir)
            if current.log_start_offset:
                future.truncate_fully_and_start_at(current.log_start_offset)

    def advance(self, *, max_bytes: int = _COPY_BYTES) -> bool:
        """Copies the next batches; whether the future log has caught up.

        Raises:
            StorageError: a directory failed, or the move is over.
        """
        current = self._manager.require(self._partition)
        future = self._manager.require(self._partition, future=True)
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        fetched = current.read(
            future.log_end_offset, max_bytes, isolation=Isolation.LOG_END, min_one=True
        )
        data = fetched.read()
        if data:
            future.append_as_follower(data)
        future.update_high_watermark(min(current.high_watermark, future.log_end_offset))
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.maybe_increment_log_start_offset(
                current.log_start_offset, LEADER_OFFSET_INCREMENT
            )
        return future.log_end_offset >= current.log_end_offset

    def finish(self) -> PartitionLog:
        """Puts the future log in the place of the current one.

        Raises:
            StorageError: it has not caught up, or a directory failed.
        """
        return self._manager.replace_current_with_future(self._partition)
