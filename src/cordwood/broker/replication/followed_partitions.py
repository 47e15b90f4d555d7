"""The partitions that this broker follows: fetched from their leaders, and read by consumers.

Source: kafka.server.ReplicaManager (applyLocalFollowersDelta), ReplicaFetcherManager, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.partition import Partition
from cordwood.broker.replication.fetcher import Followed
from cordwood.broker.replication.following import PartitionFollowing
from cordwood.broker.replication.replica_log import ReplicaLog
from cordwood.broker.replication.replication import Replication
from cordwood.metadata.image import NO_LEADER, PartitionImage
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager

CutPartition = Callable[[TopicPartition, int, Callable[[], bool]], None]
"""Truncates the log of a partition, as `Cut` of `ReplicaLog`."""


class FollowedPartitions:
    """Partitions with their logs; a partition without a leader is not fetched, but can be read."""

    def __init__(
        self,
        logs: LogManager,
        delayed: DelayedOperations,
        *,
        truncate: CutPartition,
        start_at: CutPartition,
    ) -> None:
        """Follows nothing yet.

        Args:
            logs: the logs of this broker.
            delayed: fetches that wait for more of a partition.
            truncate: cuts a log off, and what depends on it, such as checkpoints.
            start_at: empties a log, which then begins at an offset, and what depends on it.
        """
        self._logs = logs
        self._delayed = delayed
        self._truncate = truncate
        self._start_at = start_at
        self.replication: Replication | None = None
        """Fetches from leaders and proposes ISRs; None where no other broker is in the cluster."""
        self._partitions: dict[TopicIdPartition, Partition] = {}
        #: The high watermarks that readers have seen; only of partitions that are followed.
        self._seen_high_watermarks: dict[TopicIdPartition, int] = {}

    def check_invariants(self) -> None:
        """Checks that each partition is found by its own key, and that no other has a mark."""
        for key, each in self._partitions.items():
            assert key == TopicIdPartition(each.topic_id, each.index), (
                key,
                each.log.topic_partition,
            )
        left = self._seen_high_watermarks.keys() - self._partitions.keys()
        assert not left, left
        if self.replication is None:
            assert not self._partitions, self._partitions.keys()
        else:
            self.replication.check_invariants()
            fetched = set(self.replication.partitions)
            assert fetched <= self._partitions.keys(), fetched - self._partitions.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._partitions

    def get(self, key: TopicIdPartition) -> Partition | None:
        """A partition if it is followed here."""
        return self._partitions.get(key)

    def follow(
        self, log: PartitionLog, topic_id: UUID, image: PartitionImage, *, is_full: bool
    ) -> None:
        """Follows a partition's leader in the epoch that the image has; without one, no broker.

        Args:
            log: the partition's.
            topic_id: of its topic.
            image: names the leader.
            is_full: it does not fit the disk: it can be read, and is not fetched.

        Raises:
            KafkaError: the log cannot be cut off.
        """
        replication = self.replication
        if replication is None:
            return
        partition = log.topic_partition
        key = TopicIdPartition(topic_id, partition.partition)
        self._partitions[key] = Partition(
            log, topic_id=topic_id, leader_epoch=image.leader_epoch, find=self._logs.get
        )
        if image.leader == NO_LEADER or is_full:
            replication.unfollow(key)
            return
        following = PartitionFollowing(
            image.leader, image.leader_epoch, fetch_backoff_ms=replication.backoff_ms
        )
        replica_log = ReplicaLog(
            log,
            truncate=partial(self._truncate, partition),
            start_at=partial(self._start_at, partition),
        )
        replication.follow(key, Followed(partition.topic, following, replica_log))

    def unfollow(self, key: TopicIdPartition) -> None:
        """Fetches a partition no more, nor is it read."""
        self._partitions.pop(key, None)
        self._seen_high_watermarks.pop(key, None)
        if self.replication is not None:
            self.replication.unfollow(key)

    def remove(self, key: TopicIdPartition) -> None:
        """Unfollows a partition of which this broker has no replica any more."""
        followed = self._partitions.get(key)
        self.unfollow(key)
        if followed is not None:
            self._delayed.check(followed.topic, followed.index, 0)

    def unfollow_closed(self) -> None:
        """Fetches the partitions no more whose logs are closed: their directory has failed."""
        if self.replication is not None:
            self.replication.unfollow_closed()

    def fetched(self, key: TopicIdPartition) -> None:
        """Completes the fetches that wait: more of a partition's log is committed, or may be."""
        followed = self._partitions.get(key)
        if followed is None:
            return
        high_watermark = followed.log.high_watermark
        if self._seen_high_watermarks.get(key) != high_watermark:
            self._seen_high_watermarks[key] = high_watermark
            self._delayed.fetch.check((followed.topic, followed.index), 0)

    def log_changed(self, key: TopicIdPartition) -> None:
        """The log of a partition has changed otherwise than by what was fetched."""
        if self.replication is not None:
            self.replication.log_changed(key)
