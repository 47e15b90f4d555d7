"""The logs of a process: current and future ones by partition.

The lock here is held for a moment only, and no other lock is taken under it. Code that holds a
log's lock may call this: a directory that fails takes its logs out in the thread that found it out.
"""

from __future__ import annotations

import threading
from pathlib import Path

from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog


class LogTable:
    """Logs by partition; one that is being moved has a future log beside its current one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[TopicPartition, PartitionLog] = {}
        self._future: dict[TopicPartition, PartitionLog] = {}
        # Invariant: the partitions of the two above, by topic.
        self._partitions: dict[str, dict[TopicPartition, None]] = {}
        self._failed: set[Path] = set()

    def check_invariants(self) -> None:
        """Asserts that logs are under their partitions, in directories that have not failed."""
        with self._lock:
            for logs in (self._current, self._future):
                for partition, log in logs.items():
                    assert log.topic_partition == partition, f"{log} listed as {partition}"
                    assert partition in self._partitions[partition.topic], f"{log} is not listed"
                    assert log.log_dir not in self._failed, f"{log} is in a failed directory"
            listed = {partition for found in self._partitions.values() for partition in found}
            unknown = listed - self._current.keys() - self._future.keys()
            assert not unknown, f"without logs: {unknown}"

    def get(self, partition: TopicPartition, *, future: bool = False) -> PartitionLog | None:
        """A partition's log, or its future one."""
        return self._logs(future=future).get(partition)

    def all(self) -> list[PartitionLog]:
        """Every log, future ones behind the others."""
        with self._lock:
            return [*self._current.values(), *self._future.values()]

    def of_topic(self, topic: str) -> list[PartitionLog]:
        """A topic's logs, current and future ones."""
        with self._lock:
            found = self._partitions.get(topic, {})
            return [logs[p] for logs in (self._current, self._future) for p in found if p in logs]

    def current_in(self, log_dir: Path) -> list[PartitionLog]:
        """The current logs of a directory."""
        with self._lock:
            return [log for log in self._current.values() if log.log_dir == log_dir]

    def put(self, log: PartitionLog, *, future: bool = False) -> None:
        """Adds a log, in the place of any other.

        Raises:
            StorageError: its directory has failed since it was opened; it is closed now.
        """
        with self._lock:
            has_failed = log.log_dir in self._failed
            if not has_failed:
                partition = log.topic_partition
                self._logs(future=future)[partition] = log
                self._partitions.setdefault(partition.topic, {})[partition] = None
        if has_failed:
            log.close_handlers()
            raise StorageError(f"The log dir {log.log_dir} of {log.topic_partition} has failed")

    def pop(self, partition: TopicPartition, *, future: bool = False) -> PartitionLog | None:
        """Removes and returns a log; None if there is none."""
        with self._lock:
            return self._pop(self._logs(future=future), partition)

    def pop_directory(self, log_dir: Path) -> list[PartitionLog]:
        """Removes all logs of a directory and blocks new ones; returns those that were served."""
        with self._lock:
            self._failed.add(log_dir)
            gone = []
            for logs in (self._current, self._future):
                for log in [log for log in logs.values() if log.log_dir == log_dir]:
                    gone.append(log)
                    self._pop(logs, log.topic_partition)
            return gone

    def _pop(
        self, logs: dict[TopicPartition, PartitionLog], partition: TopicPartition
    ) -> PartitionLog | None:
        log = logs.pop(partition, None)
        if partition not in self._current and partition not in self._future:
            known = self._partitions.get(partition.topic, {})
            known.pop(partition, None)
            if not known:
                self._partitions.pop(partition.topic, None)
        return log

    def _logs(self, *, future: bool) -> dict[TopicPartition, PartitionLog]:
        return self._future if future else self._current
