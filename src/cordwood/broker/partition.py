"""A partition that this broker is the leader of.

Source: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    FencedLeaderEpochError,
    StorageError,
    UnknownLeaderEpochError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog

NO_EPOCH = -1


class Partition:
    """Its log, in which epoch it is led, and who waits for more of it.

    `waiters` are called with the number of bytes of each append, and may remove themselves then.
    `is_alone` says that no other replica is in sync: then what is written is committed.
    """

    __slots__ = (
        "_find",
        "index",
        "is_alone",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        topic_id: UUID,
        leader_epoch: int,
        is_alone: bool,
        find: Callable[[TopicPartition], PartitionLog | None] = lambda _: None,
    ) -> None:
        """`find` gives the log that is served now, which a move to another directory changes."""
        self.log = log
        self._find = find
        self.topic = log.topic_partition.topic
        self.index = log.topic_partition.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.is_alone = is_alone
        self.waiters: set[Callable[[int], None]] = set()

    def append(
        self, records: bytes | memoryview, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendResult:
        """Appends, commits, and wakes those who wait.

        Raises:
            KafkaError: as `PartitionLog.append_as_leader`.
        """
        try:
            result = self._append(records, origin)
        except StorageError:
            if not self.log.is_closed or not self.follow():
                raise
            result = self._append(records, origin)
        if not result.is_duplicate and result.last_offset >= 0:
            if self.is_alone:
                self.log.maybe_update_high_watermark(result.last_offset + 1)
            self.wake(result.size_bytes)
        return result

    def _append(self, records: bytes | memoryview, origin: AppendOrigin) -> AppendResult:
        return self.log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)

    def follow(self) -> bool:
        """Takes the log that has come in the place of one that was closed; whether there is one."""
        log = self._find(self.log.topic_partition)
        if log is None or log.is_closed:
            return False
        self.log = log
        return True

    def wake(self, size_bytes: int) -> None:
        """Tells those who wait that so many bytes have come; 0 for any other change."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter(size_bytes)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client that knows another epoch than this; -1 for one that knows none.

        Raises:
            FencedLeaderEpochError: the client's is older.
            UnknownLeaderEpochError: it is newer.
        """
        if current_leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"The leader epoch {current_leader_epoch} of the request is older than "
                f"{self.leader_epoch} of {self.log.topic_partition}"
            )
        raise UnknownLeaderEpochError(
            f"The leader epoch {current_leader_epoch} of the request is newer than "
            f"{self.leader_epoch} of {self.log.topic_partition}"
        )
