"""The replicas of this broker: partitions, their logs, moves and offline directories.

A `ReplicaManager` belongs to the event loop's thread. The cleaner, retention and the scheduler run
in other threads and share only the logs, which have locks.

Source: kafka.server.ReplicaManager, Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.directory_moves import BeginMove, DirectoryMoves
from cordwood.broker.directory_reports import DirectoryReports
from cordwood.broker.fetch_sessions import FetchSessionCache
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import Partition
from cordwood.broker.replication.followed_partitions import CutPartition, FollowedPartitions
from cordwood.broker.replication.full_replicas import FullReplicas
from cordwood.broker.replication.isr_changes import AnsweredIsr
from cordwood.broker.replication.leadership import IsrProposal, LedPartition, PartitionLeadership
from cordwood.broker.replication.replication import ImageBrokers
from cordwood.broker.replication.throttles import ReplicationThrottles
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.metadata.image import PartitionImage, TopicImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager

_log = logging.getLogger(__name__)

HighWatermarkListener = Callable[[int, int], object]
"""Called with the number of a partition and its high watermark."""


class ReplicaManager:
    """The partitions that this broker leads, and every log that it has."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        metadata: MetadataCache,
        controller: ControllerChannel,
        thread: NodeThread,
        settings: BrokerSettings,
        metrics: BrokerMetrics,
        begin_move: BeginMove,
        truncate: CutPartition,
        start_at: CutPartition,
    ) -> None:
        """Creates the object; a `BrokerMetadataPublisher` adds the partitions of the image.

        Args:
            node_id: the id of this broker.
            logs: the logs of this broker.
            metadata: the image that the loader has published.
            controller: gets the directories of logs, and the failed directories.
            thread: owns this object.
            settings: of server.properties.
            metrics: counts appends.
            begin_move: begins to move a log to another directory.
            truncate: cuts a log off, and what depends on it, such as checkpoints.
            start_at: empties a log, which then begins at an offset, and what depends on it.
        """
        self.node_id = node_id
        self.logs = logs
        self.log_dirs = [Path(name).absolute() for name in settings.log_dirs]
        """Every log directory, offline ones included."""
        self.delayed = DelayedOperations(thread.call_later_ms)
        self.fetch_sessions = FetchSessionCache(
            settings.max_incremental_fetch_session_cache_slots,
            logs.context.clock,
            logs.context.rng,
        )
        self.directory_reports = DirectoryReports(
            controller,
            call_soon=thread.call_soon,
            call_later_ms=thread.call_later_ms,
            failure_timeout_ms=settings.integer("log.dir.failure.timeout.ms"),
        )
        self.moves = DirectoryMoves(
            logs,
            thread.loop,
            begin_move=begin_move,
            on_moved=self.moved,
            threads=settings.integer_or_none("num.replica.alter.log.dirs.threads")
            or len(settings.log_dirs),
        )
        self.followed = FollowedPartitions(logs, self.delayed, truncate=truncate, start_at=start_at)
        self.partitions: dict[str, dict[int, Partition]] = {}
        """The partitions that this broker leads, by topic and number."""
        self.throttles = ReplicationThrottles(
            thread.clock.monotonic_s,
            windows=settings.integer("replication.quota.window.num"),
            window_s=settings.integer("replication.quota.window.size.seconds"),
        )
        self._metadata = metadata
        self._metrics = metrics
        self._brokers = ImageBrokers(metadata)
        self._clock = thread.clock
        self._call_soon = thread.call_soon
        logs.context.log_start_moved = self._log_start_moved
        self.full = FullReplicas(
            node_id=node_id,
            metadata=metadata,
            reports=self.directory_reports,
            others_in_sync=self._others_in_sync,
            free_bytes=logs.context.fs.free_bytes,
            now_ms=self.now_ms,
            call_later_ms=thread.call_later_ms,
            back=self.moved,
        )
        self._lag_max_ms = settings.integer("replica.lag.time.max.ms")
        self._listeners: dict[str, HighWatermarkListener] = {}

    # ---- partitions

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads.

        Raises:
            UnknownTopicOrPartitionError: the cluster has no such partition.
            NotLeaderOrFollowerError: another broker leads it, its log is being created, or what is
                here belongs to a deleted topic of that name.
            StorageError: the directory of its log is offline.

        Source: ReplicaManager.getPartitionOrError.
        """
        known = self._metadata.image.topics.get(topic)
        try:
            found = self.partitions[topic][index]
        except KeyError:
            raise self._missing(known, topic, index) from None
        if known is None or not found.is_of(known.topic_id):
            raise self._missing(known, topic, index)
        if found.log.is_closed and not found.switch_log():
            if found.log.log_dir in self.logs.context.failures.offline:
                raise StorageError(f"The log directory of partition {topic}-{index} is offline")
            raise _not_served(topic, index)
        return found

    def readable(self, topic: str, index: int) -> Partition:
        """A partition that consumers may read here: one that is led, or followed (KIP-392).

        Raises:
            KafkaError: as `partition`.
        """
        known = self._metadata.image.topics.get(topic)
        if known is not None and index not in self.partitions.get(topic, ()):
            followed = self.followed.get(TopicIdPartition(known.topic_id, index))
            if followed is not None and (not followed.log.is_closed or followed.switch_log()):
                return followed
        return self.partition(topic, index)

    def _missing(self, known: TopicImage | None, topic: str, index: int) -> KafkaError:
        if known is None or index not in known.partitions:
            return UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        own = self._metadata.image.brokers.get(self.node_id)
        directory = known.partitions[index].directory_of(self.node_id)
        is_offline = own is not None and not own.has_online_directory(directory)
        if is_offline or self.full.is_without_log(TopicIdPartition(known.topic_id, index)):
            return StorageError(f"The log directory of partition {topic}-{index} is offline")
        return _not_served(topic, index)

    def led(self, topic: str, index: int) -> Partition | None:
        """A partition if this broker leads it, whether its directory is online or not."""
        return self.partitions.get(topic, {}).get(index)

    @property
    def led_count(self) -> int:
        """The number of partitions that this broker leads."""
        return sum(map(len, self.partitions.values()))

    def check_invariants(self) -> None:
        """Checks the partitions, of which none is led and followed, and what waits for them."""
        for each in self.led_partitions():
            assert self.led(each.topic, each.index) is each, each.log.topic_partition
            key = TopicIdPartition(each.topic_id, each.index)
            assert key not in self.followed, each.log.topic_partition
            each.check_invariants()
        self.followed.check_invariants()
        self.full.check_invariants()
        self.fetch_sessions.check_invariants()
        self.delayed.check_invariants()

    def led_partitions(self) -> list[Partition]:
        """The partitions that this broker leads."""
        return [p for topic in self.partitions.values() for p in topic.values()]

    def log(self, topic: str, index: int) -> PartitionLog:
        """The log of a partition that this broker leads.

        Raises:
            KafkaError: as `partition`.
        """
        return self.partition(topic, index).log

    def append(
        self,
        topic: str,
        index: int,
        records: bytes | memoryview,
        *,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        verification_guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends to a partition that this broker leads, as `append_to`.

        Raises:
            KafkaError: as `partition`, `Partition.require_in_sync` and `append_to`.
        """
        partition = self.partition(topic, index)
        partition.require_in_sync()
        return self.append_to(
            partition,
            records,
            origin,
            verification_guard=verification_guard,
            transaction_version=transaction_version,
        )

    def append_to(
        self,
        partition: Partition,
        records: bytes | memoryview,
        origin: AppendOrigin,
        *,
        verification_guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends, and counts the append; the records are committed if no other replica is in sync.

        The arguments and errors are those of `PartitionLog.append_as_leader`.

        Raises:
            KafkaError: as there.

        Source: ReplicaManager.appendRecordsToLeader.
        """
        try:
            result = partition.append(
                records,
                origin,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
            )
        except Exception as error:
            self._metrics.append_refused(partition.topic, error, len(records))
            if isinstance(error, StorageError) and error.is_out_of_space:
                self.give_up(partition.topic, partition.index, partition.log.log_dir)
            raise
        self._metrics.appended(partition.topic, result, len(records))
        return result

    # ---- changes of partitions

    def lead(
        self, log: PartitionLog, topic_id: UUID, image: PartitionImage
    ) -> tuple[Partition, bool]:
        """Leads a partition as the image has it; returns it, and whether its leader epoch is new.

        Raises:
            StorageError: the log cannot take the epoch.

        Source: Partition.makeLeader.
        """
        name, index = log.topic_partition.topic, log.topic_partition.partition
        led = self.partitions.setdefault(name, {})
        here = led.get(index)
        is_elected = here is None or here.leader_epoch != image.leader_epoch
        if is_elected:
            log.assign_epoch(image.leader_epoch)
            log.offsets.gap = None  # what a leader has is the log
        if here is None:
            here = led[index] = Partition(
                log,
                topic_id=topic_id,
                leader_epoch=image.leader_epoch,
                now_ms=self.now_ms,
                find=self.logs.get,
                on_change=self.partition_changed,
                on_append=self._followers_can_fetch,
                propose=self._propose,
            )
            here.lead(image.leader_epoch, self._leadership(log, image))
        elif here.log is not log or (here.leadership is None) != (len(image.replicas) == 1):
            here.log = log
            here.lead(image.leader_epoch, self._leadership(log, image))
        elif here.leadership is not None:
            here.on_metadata(LedPartition.of(image))
            self.fetch_sessions.changed(topic_id, index)
        elif is_elected:
            here.lead(image.leader_epoch, None)
        return here, is_elected

    def follow(self, log: PartitionLog, topic_id: UUID, image: PartitionImage) -> None:
        """Follows a partition's leader in the epoch that the image has; without one, no broker.

        Raises:
            KafkaError: the log cannot be cut off.

        Source: ReplicaManager.applyLocalFollowersDelta.
        """
        name, index = log.topic_partition.topic, log.topic_partition.partition
        key = TopicIdPartition(topic_id, index)
        if key in self.full:
            self.give_up(name, index, log.log_dir)
        self.followed.follow(log, topic_id, image, is_full=key in self.full)

    def removed(self, topic_id: UUID, index: int) -> None:
        """Forgets the replica of a partition that this broker has no more."""
        key = TopicIdPartition(topic_id, index)
        self.full.forget(key)
        self.followed.remove(key)

    def isr_answered(self, answer: AnsweredIsr) -> None:
        """The controller has answered the proposal of an ISR."""
        name = self._metadata.image.topic_names.get(answer.key.topic_id, "")
        here = self.led(name, answer.key.partition)
        if here is not None and here.topic_id == answer.key.topic_id:
            self._metrics.isr_changed(here.isr_answered(answer))
            self.fetch_sessions.changed(here.topic_id, here.index)

    def follower_full(self, key: TopicIdPartition) -> None:
        """The log of a partition that is followed does not fit the disk."""
        followed, replication = self.followed.get(key), self.followed.replication
        if followed is not None and replication is not None:
            self.give_up(followed.topic, followed.index, followed.log.log_dir)
            if key in self.full:
                replication.unfollow(key)

    def give_up(self, topic: str, index: int, log_dir: Path | None) -> None:
        """Gives up a replica on a full disk, if other brokers are in the cluster."""
        if self.followed.replication is not None:
            self.full.give_up(topic, index, log_dir)

    def remove_lagging(self) -> None:
        """Proposes ISRs without the followers that lag.

        To be called every half of `replica.lag.time.max.ms`.

        Source: ReplicaManager.maybeShrinkIsr.
        """
        for each in self.led_partitions():
            each.remove_lagging()

    def _log_start_moved(self, partition: TopicPartition) -> None:
        """Handles a new log start offset, from any thread."""
        with suppress(RuntimeError):  # the event loop has ended
            self._call_soon(lambda: self._take_log_start(partition))

    def _take_log_start(self, partition: TopicPartition) -> None:
        here = self.led(partition.topic, partition.partition)
        known = self._metadata.image.topics.get(partition.topic)
        if here is not None:
            self.fetch_sessions.changed(here.topic_id, here.index)
        elif known is not None:
            self.followed.log_changed(TopicIdPartition(known.topic_id, partition.partition))

    def _leadership(self, log: PartitionLog, image: PartitionImage) -> PartitionLeadership | None:
        if len(image.replicas) == 1:
            return None
        return PartitionLeadership(
            self.node_id,
            LedPartition.of(image),
            brokers=self._brokers,
            own_epoch=lambda: self.logs.broker_epoch,
            end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=self.now_ms(),
            min_insync_replicas=log.config.min_insync_replicas,
            lag_max_ms=self._lag_max_ms,
        )

    def _others_in_sync(self, topic: str, index: int) -> frozenset[int] | None:
        here = self.led(topic, index)
        return None if here is None else here.others_in_sync

    def now_ms(self) -> float:
        """The time of replication, which never goes back."""
        return self._clock.monotonic_s() * 1000

    def _propose(self, key: TopicIdPartition, proposal: IsrProposal) -> None:
        if self.followed.replication is not None:
            self.followed.replication.propose(key, proposal)

    def _followers_can_fetch(self, partition: Partition, size_bytes: int) -> None:
        """Completes followers' fetches: a partition has grown by so many bytes, or changed if 0."""
        name = partition.topic, partition.index
        self.delayed.replica_fetch.check(name, size_bytes)
        is_held_back = size_bytes > 0 and self.throttles.leader.holds_back(*name)
        for session in self.fetch_sessions.changed(partition.topic_id, partition.index):
            follower = session.follower
            assert follower is not None, "sessions of followers only"
            if not is_held_back or partition.is_in_sync(follower.broker_id):
                self.delayed.replica_fetch.check(session.id, size_bytes)

    def listen(self, topic: str, listener: HighWatermarkListener) -> None:
        """Calls `listener` after each change of a partition of the topic; one for each topic.

        Source: ReplicaManager.maybeAddListener.
        """
        self._listeners[topic] = listener

    def partition_changed(self, partition: Partition, size_bytes: int) -> None:
        """Completes the requests that wait for a change of a partition."""
        self.delayed.check(partition.topic, partition.index, size_bytes)
        if not size_bytes:
            self._followers_can_fetch(partition, 0)
        listener = self._listeners.get(partition.topic)
        if listener is not None:
            listener(partition.index, partition.log.high_watermark)

    # ---- directories

    def report_place(self, log: PartitionLog, topic_id: UUID, known: UUID | None) -> None:
        """Reports the directory of a log to the controller if the image has another.

        Args:
            log: the log.
            topic_id: of its topic.
            known: the directory's id in the image; None before KIP-858.
        """
        ids = {d.path: d.directory_id for d in self.logs.directories}
        found = ids.get(log.log_dir)
        index = log.topic_partition.partition
        if found is None or known is None or TopicIdPartition(topic_id, index) in self.full:
            return
        if found != known:
            self.directory_reports.assign(topic_id, index, found)

    def logs_with_futures(self) -> Iterator[tuple[PartitionLog, bool]]:
        """Every log, and whether it is the future log of a move."""
        for log in self.logs.logs():
            yield log, self.logs.get(log.topic_partition) is not log

    def moved(self, partition: TopicPartition) -> None:
        """Serves a partition from the directory where its log is now, and reports that.

        To be called after a move, and when there is space for the log again.
        """
        log = self.logs.get(partition)
        topic = self._metadata.image.topics.get(partition.topic)
        here = self.led(partition.topic, partition.partition)
        image = None if topic is None else topic.partitions.get(partition.partition)
        if log is None or topic is None or image is None or log.topic_id != topic.topic_id:
            return
        self.full.forget(TopicIdPartition(topic.topic_id, partition.partition))
        if here is not None and here.is_of(topic.topic_id):
            here.log = log
            here.wake(0)
        elif self.node_id in image.replicas and image.leader != self.node_id:
            try:
                self.follow(log, topic.topic_id, image)
            except KafkaError as error:
                _log.error("Cannot follow %s in its new directory: %s", partition, error)
        self.report_place(log, topic.topic_id, image.directory_of(self.node_id))

    def directory_failed(self, log_dir: Path, on_timeout: Callable[[], None]) -> None:
        """Stops serving the partitions in a log directory that is offline, and reports it.

        Args:
            log_dir: the directory.
            on_timeout: called if the controller has not recorded it in log.dir.failure.timeout.ms.

        Source: ReplicaManager.handleLogDirFailure.
        """
        for each in self.led_partitions():
            if each.log.is_closed:
                each.wake(0)
        self.followed.unfollow_closed()
        for directory in self.logs.directories:
            if directory.path == log_dir and directory.directory_id is not None:
                self.directory_reports.failed(directory.directory_id, on_timeout)


def _not_served(topic: str, index: int) -> NotLeaderOrFollowerError:
    return NotLeaderOrFollowerError(f"Error while fetching partition state for {topic}-{index}")
