"""What all handlers share: the partitions that are led here, the image, and the parts beside them.

All of it belongs to the event loop's thread. Cleaner, retention and scheduler run in threads of
their own and meet the broker only in the logs, which have locks; what they want done here they hand
over by `call_soon`.

Source: kafka.server.ReplicaManager, BrokerServer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from cordwood.broker.auto_creation import auto_created_topic
from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.directory_moves import DirectoryMoves
from cordwood.broker.directory_reports import DirectoryReports
from cordwood.broker.fetch_sessions import FetchSessionCache
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import Partition
from cordwood.broker.producer_ids import ProducerIds
from cordwood.broker.refused_transactions import RefusedTransactions
from cordwood.broker.slices import Slices
from cordwood.broker.turns import watch_of
from cordwood.cleanup.paused_changes import PausedMove
from cordwood.coordinator.timers import at_once
from cordwood.format.message_schema import uuid_bytes
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.metadata.feature_levels import SUPPORTED_FEATURES
from cordwood.metadata.image import MetadataImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.kafka_errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager

if TYPE_CHECKING:
    from cordwood.broker.configs.service import ConfigService
    from cordwood.broker.configs.settings import BrokerSettings
    from cordwood.cleanup.log_cleaner import LogCleaner
    from cordwood.coordinator.group.service import GroupCoordinator

_log = logging.getLogger(__name__)


class Timer(Protocol):
    """Something that will be done in a while."""

    def cancel(self) -> None:
        """Sees to it that it is not done."""


class Broker:
    """One node's partitions and the parts that serve them; `groups` and `cleaner` come last."""

    groups: GroupCoordinator
    cleaner: LogCleaner

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        clock: Clock,
        settings: BrokerSettings,
        configs: ConfigService,
        logs: LogManager,
        metadata: MetadataCache,
        controller: ControllerChannel,
        slices: Slices,
        loop: asyncio.AbstractEventLoop,
        ports: dict[str, int],
    ) -> None:
        """Nothing is served yet: a `BrokerMetadataPublisher` gives it the image's partitions.

        Args:
            node_id: this broker's.
            cluster_id: as clients see it.
            clock: for records, retention, expiry; may be moved by tests.
            settings: of server.properties.
            configs: those of topics and the broker, dynamic ones too.
            logs: already loaded.
            metadata: what the loader has published.
            controller: gets the changes that clients ask for.
            slices: for long work of requests.
            loop: whose thread owns all this.
            ports: bound, by listener.
        """
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.settings = settings
        self.configs = configs
        self.logs = logs
        self.metadata = metadata
        self.controller = controller
        self.loop = loop
        self.ports = ports
        self.wait_for_input: Callable[[Callable[[], None]], None] = at_once
        self.slices = slices
        self.turns = watch_of(loop)
        self.turns.cpu_elsewhere_s = lambda: self.slices.cpu_s
        self.metrics = BrokerMetrics()
        # Not the loop's own, which stands still while a handler runs.
        self.monotonic_s = SystemClock().monotonic_s
        #: The lowest and highest version of each served API by its key, both inclusive.
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        self.delayed = DelayedOperations(self.call_later_ms)
        self.fetch_sessions = FetchSessionCache(
            settings.max_incremental_fetch_session_cache_slots, clock, logs.context.chance
        )
        self.refused_transactions = RefusedTransactions()
        self.producer_ids = ProducerIds(controller)
        self.directory_reports = DirectoryReports(
            controller,
            call_soon=self.call_soon,
            call_later_ms=self.call_later_ms,
            failure_timeout_ms=settings.integer("log.dir.failure.timeout.ms"),
        )
        self.moves = DirectoryMoves(
            logs,
            loop,
            pause=lambda partition, target: PausedMove(self.cleaner.manager, partition, target),
            on_moved=self.moved,
            threads=settings.integer_or_none("num.replica.alter.log.dirs.threads")
            or len(settings.log_dirs),
        )
        #: Those that are led here, by topic and number.
        self.partitions: dict[str, dict[int, Partition]] = {}
        #: Those that will be led here when their logs are created.
        self.being_made: set[tuple[str, int]] = set()

    # ---- the image

    @property
    def image(self) -> MetadataImage:
        """The metadata of the cluster, as far as this broker has loaded it."""
        return self.metadata.image

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and highest level of each feature that this broker knows, both inclusive."""
        return SUPPORTED_FEATURES

    def finalized_features(self) -> Mapping[str, int]:
        """The finalized level of each feature."""
        return self.metadata.finalized_features()

    # ---- partitions

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that is led here.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name and number.
            NotLeaderOrFollowerError: another broker leads it.
            StorageError: the directory of its log is offline.
        """
        try:
            found = self.partitions[topic][index]
        except KeyError:
            raise self._missing(topic, index) from None
        if found.log.is_closed and not found.follow():
            raise StorageError(f"The log directory of partition {topic}-{index} is offline")
        return found

    def _missing(self, topic: str, index: int) -> KafkaError:
        known = self.image.topics.get(topic)
        if known is None or index not in known.partitions:
            return UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if (topic, index) in self.being_made:
            return NotLeaderOrFollowerError(f"The log of partition {topic}-{index} is being made")
        image = known.partitions[index]
        own = self.image.brokers.get(self.node_id)
        directory = image.directory_of(self.node_id)
        if image.leader == self.node_id or (own and not own.has_online_directory(directory)):
            return StorageError(f"The log directory of partition {topic}-{index} is offline")
        return NotLeaderOrFollowerError(f"Error while fetching partition state for {topic}-{index}")

    def topic_name(self, topic_id: UUID) -> str:
        """The name of a topic.

        Raises:
            UnknownTopicIdError: no topic has that id.
        """
        name = self.image.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return name

    @property
    def led_count(self) -> int:
        """How many are led here."""
        return sum(map(len, self.partitions.values()))

    def led_partitions(self) -> list[Partition]:
        """All that are led here."""
        return [p for topic in self.partitions.values() for p in topic.values()]

    def log(self, topic: str, index: int) -> PartitionLog:
        """A led partition's log.

        Raises:
            KafkaError: as `partition`.
        """
        return self.partition(topic, index).log

    def append(
        self,
        topic: str,
        index: int,
        records: bytes,
        *,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
    ) -> AppendResult:
        """Appends to a partition that is led here; committed if no other replica is in sync.

        Raises:
            KafkaError: as `partition` and `PartitionLog.append_as_leader`.
        """
        partition = self.partition(topic, index)
        try:
            result = partition.append(records, origin)
        except KafkaError as error:
            self.metrics.append_refused(topic, error, len(records))
            raise
        self.metrics.appended(topic, result, len(records))
        return result

    # ---- requests to the controller

    async def auto_create_topics(self, names: Sequence[str]) -> list[KafkaError | None]:
        """Creates topics that clients or coordinators need; for each name its error, if any.

        One change of the metadata log, unless that would be too large, or one of them stops it.
        """
        if not names:
            return []
        try:
            results = await self.controller.create_topics(
                [auto_created_topic(name, self.settings) for name in names]
            )
        except KafkaError as error:
            if len(names) == 1:
                return [error]
            return [result for name in names for result in await self.auto_create_topics([name])]
        return [result if isinstance(result, KafkaError) else None for result in results]

    # ---- directories

    def partition_changed(self, partition: Partition, size_bytes: int) -> None:
        """Completes the requests that waited for a change of a partition."""
        self.delayed.check(partition.topic, partition.index, size_bytes)
        if partition.topic == GROUP_METADATA_TOPIC:
            self.groups.on_high_watermark(partition.index, partition.log.high_watermark)

    def report_place(self, log: PartitionLog, topic_id: UUID, known: UUID | None) -> None:
        """Reports where a log lies, if the image says otherwise; None is before KIP-858."""
        ids = {d.path: d.directory_id for d in self.logs.directories}
        found = ids.get(log.log_dir)
        if found is None or known is None:
            return
        directory = UUID(bytes=uuid_bytes(found))
        if directory != known:
            self.directory_reports.assign(topic_id, log.topic_partition.partition, directory)

    @property
    def log_dirs(self) -> list[Path]:
        """Every log directory, offline ones too."""
        return [Path(name).absolute() for name in self.settings.log_dirs]

    def logs_with_futures(self) -> Iterator[tuple[PartitionLog, bool]]:
        """Every log, and whether it is the future one of a move."""
        for log in self.logs.logs():
            yield log, self.logs.get(log.topic_partition) is not log

    def moved(self, partition: TopicPartition) -> None:
        """Serves a partition from the directory that its log was moved to, and reports that."""
        log = self.logs.get(partition)
        topic = self.image.topics.get(partition.topic)
        here = self.partitions.get(partition.topic, {}).get(partition.partition)
        if log is None or topic is None or here is None:
            return
        here.log = log
        here.wake(0)
        image = topic.partitions[partition.partition]
        self.report_place(log, topic.topic_id, image.directory_of(self.node_id))

    def directory_failed(self, log_dir: Path, give_up: Callable[[], None]) -> None:
        """A log directory is offline: what lies there is led by nobody.

        Args:
            log_dir: which.
            give_up: called if the controller has not recorded it in log.dir.failure.timeout.ms.
        """
        for each in self.led_partitions():
            if each.log.is_closed:
                each.wake(0)
        for directory in self.logs.directories:
            if directory.path == log_dir and directory.directory_id is not None:
                found = UUID(bytes=uuid_bytes(directory.directory_id))
                self.directory_reports.failed(found, give_up)

    # ---- time

    def call_soon(self, run: Callable[[], Any]) -> None:
        """From any thread: has `run` called on the event loop's."""
        self.loop.call_soon_threadsafe(run)

    def call_later_ms(self, delay_ms: float, run: Callable[[], Any]) -> Timer:
        """Has `run` called after so much real time: for sessions, and those who wait."""
        return self.loop.call_later(delay_ms / 1000, run)

    def after_input(self, run: Callable[[], None]) -> None:
        """Has `run` called when the requests that have arrived by now have been read."""
        self.wait_for_input(run)

    def change(self, run: Callable[[], Any]) -> None:
        """Has `run`, a change of the cluster's metadata, done in slices; its errors are logged."""

        def ended(work: asyncio.Future[Any]) -> None:
            if not work.cancelled() and work.exception() is not None:
                _log.error("A change of the metadata failed", exc_info=work.exception())

        self.slices.run(run).add_done_callback(ended)

    def schedule(self, name: str, period_ms: int, run: Callable[[], Any]) -> Timer:
        """Has `run` called on the event loop's thread in every period of the movable clock."""
        return self.logs.context.scheduler.schedule(
            name, lambda: self.call_soon(run), delay_ms=period_ms, period_ms=period_ms
        )
