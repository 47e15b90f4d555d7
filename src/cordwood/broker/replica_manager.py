"""The replicas of this broker: partitions, their logs, moves and offline directories.

A `ReplicaManager` belongs to the event loop's thread. The cleaner, retention and the scheduler run
in other threads and share only the logs, which have locks.

Source: kafka.server.ReplicaManager, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from cordwood.broker.broker_thread import BrokerThread
from cordwood.broker.configs.settings import BrokerSettings
from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.directory_moves import BeginMove, DirectoryMoves
from cordwood.broker.directory_reports import DirectoryReports
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import Partition
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager

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
        thread: BrokerThread,
        settings: BrokerSettings,
        metrics: BrokerMetrics,
        begin_move: BeginMove,
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
        """
        self.node_id = node_id
        self.logs = logs
        self.log_dirs = [Path(name).absolute() for name in settings.log_dirs]
        """Every log directory, offline ones included."""
        self.delayed = DelayedOperations(thread.call_later_ms)
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
        self.partitions: dict[str, dict[int, Partition]] = {}
        """The partitions that this broker leads, by topic and number."""
        self.creating: set[tuple[str, int]] = set()
        """The partitions that this broker leads as soon as their logs are created."""
        self._metadata = metadata
        self._metrics = metrics
        self._listeners: dict[str, HighWatermarkListener] = {}

    # ---- partitions

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads.

        Raises:
            UnknownTopicOrPartitionError: the cluster has no such partition.
            NotLeaderOrFollowerError: another broker leads it, or its log is being created.
            StorageError: the directory of its log is offline.
        """
        try:
            found = self.partitions[topic][index]
        except KeyError:
            raise self._missing(topic, index) from None
        if found.log.is_closed and not found.switch_log():
            raise StorageError(f"The log directory of partition {topic}-{index} is offline")
        return found

    def _missing(self, topic: str, index: int) -> KafkaError:
        image = self._metadata.image
        known = image.topics.get(topic)
        if known is None or index not in known.partitions:
            return UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if (topic, index) in self.creating:
            return NotLeaderOrFollowerError(
                f"The log of partition {topic}-{index} is being created"
            )
        partition = known.partitions[index]
        own = image.brokers.get(self.node_id)
        directory = partition.directory_of(self.node_id)
        is_offline = own is not None and not own.has_online_directory(directory)
        if partition.leader == self.node_id or is_offline:
            return StorageError(f"The log directory of partition {topic}-{index} is offline")
        return NotLeaderOrFollowerError(f"Error while fetching partition state for {topic}-{index}")

    @property
    def led_count(self) -> int:
        """The number of partitions that this broker leads."""
        return sum(map(len, self.partitions.values()))

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
            KafkaError: as `partition` and `append_to`.
        """
        return self.append_to(
            self.partition(topic, index),
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
            raise
        self._metrics.appended(partition.topic, result, len(records))
        return result

    # ---- changes of partitions

    def listen(self, topic: str, listener: HighWatermarkListener) -> None:
        """Calls `listener` after each change of a partition of the topic; one for each topic.

        Source: ReplicaManager.maybeAddListener.
        """
        self._listeners[topic] = listener

    def partition_changed(self, partition: Partition, size_bytes: int) -> None:
        """Completes the requests that wait for a change of a partition."""
        self.delayed.check(partition.topic, partition.index, size_bytes)
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
        if found is None or known is None:
            return
        if found != known:
            self.directory_reports.assign(topic_id, log.topic_partition.partition, found)

    def logs_with_futures(self) -> Iterator[tuple[PartitionLog, bool]]:
        """Every log, and whether it is the future log of a move."""
        for log in self.logs.logs():
            yield log, self.logs.get(log.topic_partition) is not log

    def moved(self, partition: TopicPartition) -> None:
        """Serves a partition from the directory that its log was moved to, and reports that."""
        log = self.logs.get(partition)
        topic = self._metadata.image.topics.get(partition.topic)
        here = self.partitions.get(partition.topic, {}).get(partition.partition)
        if log is None or topic is None or here is None:
            return
        here.log = log
        here.wake(0)
        image = topic.partitions[partition.partition]
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
        for directory in self.logs.directories:
            if directory.path == log_dir and directory.directory_id is not None:
                self.directory_reports.failed(directory.directory_id, on_timeout)
