"""A partition that this broker is the leader of.

Source: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from cordwood.broker.replication.follower_state import SessionFetches
from cordwood.broker.replication.isr_changes import AnsweredIsr
from cordwood.broker.replication.leadership import (
    Effect,
    IsrProposal,
    LedPartition,
    MoveHighWatermark,
    PartitionLeadership,
)
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownLeaderEpochError,
)
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog

NO_EPOCH = -1


class Partition:
    """A partition that this broker leads: its log and its leader epoch.

    Without another replica, `leadership` is None, and an append is committed.
    """

    __slots__ = (
        "_find",
        "_is_led",
        "_now_ms",
        "_on_append",
        "_on_change",
        "_propose",
        "_uncommitted",
        "index",
        "leader_epoch",
        "leadership",
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
        leadership: PartitionLeadership | None = None,
        now_ms: Callable[[], float] = lambda: 0.0,
        find: Callable[[TopicPartition], PartitionLog | None] = lambda _: None,
        on_change: Callable[[Partition, int], object] = lambda _partition, _size_bytes: None,
        on_append: Callable[[Partition, int], object] = lambda _partition, _size_bytes: None,
        propose: Callable[[TopicIdPartition, IsrProposal], object] = lambda _key, _proposal: None,
    ) -> None:
        """Leads a partition.

        Args:
            log: its log.
            topic_id: of its topic.
            leader_epoch: in which it is led.
            leadership: what is known of the other replicas.
            now_ms: the time for it.
            find: gives the log that is served now, which a move to another directory changes.
            on_change: called by `wake`, with the bytes that are committed now.
            on_append: called with the bytes that followers can fetch now.
            propose: has the controller get an ISR.
        """
        self.log = log
        self._find = find
        self.topic = log.topic_partition.topic
        self.index = log.topic_partition.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.leadership = leadership
        self._now_ms = now_ms
        self._is_led = True
        self._on_change = on_change
        self._on_append = on_append
        self._propose = propose
        #: The ends of appends that are not committed, and their bytes.
        self._uncommitted: deque[tuple[int, int]] = deque()

    def check_invariants(self) -> None:
        """Checks that the state of the replicas is of this epoch, and what waits is uncommitted."""
        ends = [end for end, _ in self._uncommitted]
        assert ends == sorted(ends), ends
        if self.leadership is None:
            assert not ends, (self.log.topic_partition, ends)
            return
        self.leadership.check_invariants()
        epoch, mark = self.leadership.partition.leader_epoch, self.leadership.high_watermark
        assert epoch == self.leader_epoch, (self.log.topic_partition, epoch, self.leader_epoch)
        assert not ends or ends[0] > mark, (self.log.topic_partition, ends, mark)

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
            if self.leadership is None:
                self.log.maybe_update_high_watermark(result.last_offset + 1)
                self.wake(result.size_bytes)
            else:
                self._replicate(self.leadership, result.last_offset + 1, result.size_bytes)
        return result

    def _replicate(self, leadership: PartitionLeadership, end_offset: int, size_bytes: int) -> None:
        self._uncommitted.append((end_offset, size_bytes))
        self._on_append(self, size_bytes)
        self._do(leadership.on_append(end_offset, self._now_ms()))

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
            require_leader=self._require_led,
        )

    def resign(self) -> None:
        """Stops this broker's leadership of the partition."""
        self._is_led = False
        self.wake(0)

    def _require_led(self, leader_epoch: int) -> None:
        if not self._is_led or leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollowerError(
                f"{self.log.topic_partition} has another leader or leader epoch meanwhile"
            )

    def is_of(self, topic_id: UUID | None) -> bool:
        """Whether it is a partition of that topic, and not of another with the same name."""
        return self.topic_id is topic_id or self.topic_id == topic_id

    def switch_log(self) -> bool:
        """Serves the log that replaces a closed one; returns whether there is such a log."""
        log = self._find(self.log.topic_partition)
        if log is None or log.is_closed or not self.is_of(log.topic_id):
            return False
        self.log = log
        return True

    def wake(self, size_bytes: int) -> None:
        """Checks the delayed operations: the partition has grown, or has changed otherwise if 0."""
        self._on_change(self, size_bytes)

    # ---- other replicas

    def lead(self, leader_epoch: int, leadership: PartitionLeadership | None) -> None:
        """Leads in an epoch, with other replicas or without."""
        self.leader_epoch = leader_epoch
        self.leadership = leadership
        self._uncommitted.clear()
        if leadership is None:
            self.log.maybe_update_high_watermark(self.log.log_end_offset)
        else:
            self._do(leadership.refresh(self._now_ms()))
        self.wake(0)

    def on_metadata(self, partition: LedPartition) -> None:
        """The image has another ISR or other replicas, this broker leading among them."""
        assert self.leadership is not None, "with other replicas only"
        self.leader_epoch = partition.leader_epoch
        self._do(self.leadership.on_metadata(partition, self._now_ms()))

    def fetched_by(self, broker_id: int, offset: int, *, start: int, broker_epoch: int) -> None:
        """A follower has fetched from `offset`: as `PartitionLeadership.on_fetch`.

        Raises:
            NotLeaderOrFollowerError: as there.
        """
        leadership = self.leadership
        assert leadership is not None, "checked by `require_follower`"
        known = leadership.followers.get(broker_id)
        before = None
        if known is None or known.log_start_offset != start:
            before = self.low_watermark
        self._do(
            leadership.on_fetch(
                broker_id, offset, start=start, now_ms=self._now_ms(), broker_epoch=broker_epoch
            )
        )
        if before is not None and self.low_watermark > before:
            self.wake(0)

    def omit(
        self,
        broker_id: int,
        fetches: SessionFetches,
        *,
        high_watermark: int,
        log_start_offset: int,
    ) -> bool:
        """Whether a follower's session may leave the partition out.

        As `PartitionLeadership.omit`, for a follower that knows the newest offsets.

        Args:
            broker_id: the follower.
            fetches: of its session.
            high_watermark: what it was last given.
            log_start_offset: what it was last given.
        """
        log = self.log
        return (
            self.leadership is not None
            and high_watermark == log.high_watermark
            and log_start_offset == log.log_start_offset
            and not log.is_closed
            and self.leadership.omit(broker_id, fetches)
        )

    def end_omission(self, broker_id: int, fetches: SessionFetches) -> None:
        """Ends omissions by a follower's fetch session, on the leader; a follower has none."""
        if self.leadership is not None:
            self.leadership.end_omission(broker_id, fetches)

    def require_follower(self, broker_id: int, current_leader_epoch: int) -> None:
        """Refuses a fetch of a broker that has no replica, as far as this broker knows.

        Raises:
            UnknownLeaderEpochError, NotLeaderOrFollowerError: it has none.

        Source: Partition.followerReplicaOrThrow.
        """
        if self.leadership is not None and broker_id in self.leadership.followers:
            return
        error = (
            NotLeaderOrFollowerError
            if current_leader_epoch == NO_EPOCH
            else UnknownLeaderEpochError
        )
        raise error(
            f"Replica {broker_id} is not recognized as a valid replica of "
            f"{self.log.topic_partition} in leader epoch {self.leader_epoch}"
        )

    @property
    def is_catching_up(self) -> bool:
        """Whether the high watermark may be below what an earlier leader has committed."""
        return self.leadership is not None and self.leadership.is_catching_up

    @property
    def others_in_sync(self) -> frozenset[int]:
        """The followers that are in sync whatever the controller answers to a proposal."""
        return frozenset() if self.leadership is None else self.leadership.others_in_sync

    def is_in_sync(self, broker_id: int) -> bool:
        """Whether a broker's replica is in the ISR, as far as this broker knows."""
        return self.leadership is not None and broker_id in self.leadership.partition.isr

    def nearest_reader(self, brokers: Collection[int], offset: int) -> int | None:
        """The follower in the ISR, of some brokers, to read from `offset` on; None without one."""
        if self.leadership is None:
            return None
        return self.leadership.nearest_reader(brokers, offset, self._now_ms())

    def update_min_insync_replicas(self, count: int) -> None:
        """min.insync.replicas of the topic has changed."""
        if self.leadership is not None:
            self.leadership.min_insync_replicas = count
            self._do(self.leadership.refresh(self._now_ms()))

    def remove_lagging(self) -> None:
        """Proposes an ISR without the followers that lag, if there are any."""
        if self.leadership is not None:
            self._do(self.leadership.on_tick(self._now_ms()))

    def isr_answered(self, answer: AnsweredIsr) -> int | None:
        """The controller has answered a proposal: by how much the ISR grew, None if refused."""
        leadership = self.leadership
        if leadership is None:
            return 0
        before = len(leadership.partition.isr)
        if answer.partition is None:
            self._do(leadership.on_isr_refused(answer.proposal, answer.error))
            return None
        self._do(leadership.on_isr_altered(answer.proposal, answer.partition, self._now_ms()))
        return len(leadership.partition.isr) - before

    def require_in_sync(self) -> None:
        """Refuses an append that waits for all replicas in sync while they are too few.

        Raises:
            NotEnoughReplicasError: they are.

        Source: Partition.appendRecordsToLeader.
        """
        leadership = self.leadership
        if leadership is not None and leadership.is_under_min_isr:
            isr = leadership.partition.isr
            raise NotEnoughReplicasError(
                f"The size of the current ISR : {len(isr)} is insufficient to satisfy the min.isr "
                f"requirement of {leadership.effective_min_isr} for partition "
                f"{self.log.topic_partition}, live replica(s) broker.id are : "
                f"[{', '.join(map(str, isr))}]"
            )

    def committed(self, offset: int) -> ErrorCode | None:
        """The answer to an append whose records end at `offset`, exclusive; None if it waits."""
        if self.leadership is not None:
            return self.leadership.committed(offset)
        return ErrorCode.NONE if self.log.high_watermark >= offset else None

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the replicas whose brokers are alive.

        Source: Partition.lowWatermarkIfLeader.
        """
        start = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start)

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, MoveHighWatermark):
                self.log.maybe_update_high_watermark(effect.offset)
                committed_bytes = 0
                while self._uncommitted and self._uncommitted[0][0] <= effect.offset:
                    committed_bytes += self._uncommitted.popleft()[1]
                self.wake(committed_bytes)
            else:
                self._propose(TopicIdPartition(self.topic_id, self.index), effect.proposal)

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
