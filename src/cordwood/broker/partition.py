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
    """A partition that this broker leads: its log and its leader epoch.

    `is_sole_isr_member` means that no other replica is in sync: then an append is committed.
    """

    __slots__ = (
        "_find",
        "_on_change",
        "index",
        "is_sole_isr_member",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        topic_id: UUID,
        leader_epoch: int,
        is_sole_isr_member: bool,
        find: Callable[[TopicPartition], PartitionLog | None] = lambda _: None,
        on_change: Callable[[Partition, int], object] = lambda _partition, _size_bytes: None,
    ) -> None:
        """Leads a partition.

        Args:
            log: its log.
            topic_id: of its topic.
            leader_epoch: in which it is led.
            is_sole_isr_member: whether no other replica is in sync.
            find: gives the log that is served now, which a move to another directory changes.
            on_change: called by `wake`.
        """
        self.log = log
        self._find = find
        self.topic = log.topic_partition.topic
        self.index = log.topic_partition.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.is_sole_isr_member = is_sole_isr_member
        self._on_change = on_change

    def append(
        self,
        records: bytes | memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        verification_guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends, commits if no other replica is in sync, and wakes what waits.

        The arguments and errors are those of `PartitionLog.append_as_leader`.

        Raises:
            KafkaError: as there.
        """
        try:
            result = self._append(records, origin, verification_guard, transaction_version)
        except StorageError:
            if not self.log.is_closed or not self.switch_log():
                raise
            result = self._append(records, origin, verification_guard, transaction_version)
        if not result.is_duplicate and result.last_offset >= 0:
            if self.is_sole_isr_member:
                self.log.maybe_update_high_watermark(result.last_offset + 1)
            self.wake(result.size_bytes)
        return result

    def _append(
        self,
        records: bytes | memoryview,
        origin: AppendOrigin,
        verification_guard: object | None,
        transaction_version: int,
    ) -> AppendResult:
        return self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            origin=origin,
            verification_guard=verification_guard,
            transaction_version=transaction_version,
        )

    def switch_log(self) -> bool:
        """Serves the log that replaces a closed one; returns whether there is such a log."""
        log = self._find(self.log.topic_partition)
        if log is None or log.is_closed:
            return False
        self.log = log
        return True

    def wake(self, size_bytes: int) -> None:
        """Checks the delayed operations: the partition has grown, or has changed otherwise if 0."""
        self._on_change(self, size_bytes)

    def update_isr(self, *, is_sole_isr_member: bool) -> None:
        """Another replica has come in sync, or none is any more: then all records are committed."""
        has_changed = is_sole_isr_member != self.is_sole_isr_member
        self.is_sole_isr_member = is_sole_isr_member
        if is_sole_isr_member:
            raised = self.log.maybe_update_high_watermark(self.log.log_end_offset)
            has_changed = has_changed or raised is not None
        if has_changed:
            self.wake(0)

    @property
    def low_watermark(self) -> int | None:
        """The lowest log start offset of the replicas in sync; None while another's is unknown.

        Source: Partition.lowWatermarkIfLeader.
        """
        return self.log.log_start_offset if self.is_sole_isr_member else None

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client that knows another leader epoch; -1 for one that knows none.

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
