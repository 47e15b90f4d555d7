"""What all handlers share: the partitions that are led here, the image, and the parts beside them.

All of it belongs to the event loop's thread. Cleaner, retention and scheduler run in threads of
their own and meet the broker only in the logs, which have locks; what they want done here they hand
over by `call_soon`.

Source: kafka.server.ReplicaManager, BrokerServer, metadata.BrokerMetadataPublisher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.api import Api
from cordwood.broker.auto_creation import auto_created_topic
from cordwood.broker.controller.settings import SUPPORTED_FEATURES
from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.directory_moves import DirectoryMoves
from cordwood.broker.directory_reports import DirectoryReports
from cordwood.broker.fetch_sessions import FetchSessionCache
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import Partition
from cordwood.broker.refused_transactions import RefusedTransactions
from cordwood.broker.slices import Slices
from cordwood.broker.turns import watch_of
from cordwood.cleanup.paused_changes import update_topic_config
from cordwood.coordinator.timers import at_once
from cordwood.format.message_schema import uuid_bytes, uuid_text
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.config import LogConfig
from cordwood.model.kafka_errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.pauses import background, in_steps
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.cluster_image import MetadataImage, PartitionImage, TopicImage
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.log_set import NewLog

if TYPE_CHECKING:
    from cordwood.broker.configs.service import ConfigService
    from cordwood.broker.configs.settings import BrokerSettings
    from cordwood.broker.controller.controller import Controller
    from cordwood.cleanup.log_cleaner import LogCleaner
    from cordwood.coordinator.group.service import GroupCoordinator

_log = logging.getLogger(__name__)

# A log's renaming is milliseconds.
_DELETED_AT_ONCE_MAX: Final = 8
_DELETERS: Final = 4
_LEAD_AGAIN_MS: Final = 5_000
"""After a full disk has kept a partition from being served."""


class _ToLead(NamedTuple):
    """A partition to be led here; `is_new` if its log cannot have been made before."""

    topic: TopicImage
    number: int
    image: PartitionImage
    is_new: bool


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
        controller: Controller,
        loop: asyncio.AbstractEventLoop,
        ports: dict[str, int],
    ) -> None:
        """Nothing is served yet: `publish` makes the partitions of the image.

        Args:
            node_id: this broker's.
            cluster_id: as clients are told it.
            clock: for records, retention, expiry; may be moved by tests.
            settings: of server.properties.
            configs: those of topics and the broker, dynamic ones too.
            logs: already loaded.
            controller: already open.
            loop: whose thread owns all this.
            ports: bound, by listener.
        """
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.settings = settings
        self.configs = configs
        self.logs = logs
        self.controller = controller
        self.loop = loop
        self.ports = ports
        self.wait_for_input: Callable[[Callable[[], None]], None] = at_once
        self.slices = Slices(loop)
        self.turns = watch_of(loop)
        self.turns.cpu_elsewhere_s = lambda: self.slices.cpu_s
        self.metrics = BrokerMetrics()
        # Not the loop's own, which stands still while a handler runs.
        self.monotonic_s = SystemClock().monotonic_s
        self.apis: Mapping[int, Api] = {}
        self.delayed = DelayedOperations(self.call_later_ms)
        self.fetch_sessions = FetchSessionCache(
            settings.max_incremental_fetch_session_cache_slots, clock, logs.context.chance
        )
        self.refused_transactions = RefusedTransactions()
        self._producer_ids = range(0)
        self.directory_reports = DirectoryReports(
            self, failure_timeout_ms=settings.integer("log.dir.failure.timeout.ms")
        )
        self.moves = DirectoryMoves(
            self,
            threads=settings.integer_or_none("num.replica.alter.log.dirs.threads")
            or len(settings.log_dirs),
        )
        self._deletions: dict[str, asyncio.Future[None]] = {}
        self._deleters = ThreadPoolExecutor(_DELETERS, "topic-deletion")
        self._stopping = False
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._being_made: set[tuple[str, int]] = set()

    # ---- the image

    @property
    def image(self) -> MetadataImage:
        """What the cluster knows of itself now."""
        return self.controller.image

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Makes, deletes and reconfigures logs as the image says.

        Where work is done in slices, other requests are served meanwhile: those to a partition
        whose log is not there yet get NOT_LEADER_OR_FOLLOWER, as in Kafka.

        Source: ReplicaManager.applyDelta, DynamicConfigPublisher.
        """
        # First: a new log is made with the settings its topic has now.
        self.configs.on_image(old, new)
        if old is None or old.topics is not new.topics:
            before = {} if old is None else old.topics
            gone = [
                topic
                for name, topic in in_steps(before.items(), every=64)
                if name not in new.topics or new.topics[name].topic_id != topic.topic_id
            ]
            if gone:
                self._delete(gone)
                self.groups.on_topics_deleted([topic.name for topic in gone])
            led: list[_ToLead] = []
            for name, topic in in_steps(new.topics.items(), every=64):
                known = before.get(name)
                if known is topic:
                    continue
                if known is not None and known.topic_id != topic.topic_id:
                    known = None
                deletion = self._deletions.get(name)
                if deletion is not None:  # of the topic that had the name before
                    deletion.add_done_callback(partial(self._lead_after_deletion, topic))
                else:
                    led += self._to_lead(topic, known, is_start=old is None)
            self._lead(led)
        if old is None or old.configs is not new.configs:
            self._reconfigure()

    def _to_lead(
        self, topic: TopicImage, known: TopicImage | None, *, is_start: bool
    ) -> list[_ToLead]:
        """The partitions of a topic that this broker leads; those that it leads no more go."""
        led = self._partitions.setdefault(topic.name, {})
        found = []
        for index, image in in_steps(topic.partitions.items(), every=64):
            if self.node_id not in image.replicas:
                continue
            if image.leader == self.node_id:
                is_new = not is_start and (known is None or index not in known.partitions)
                found.append(_ToLead(topic, index, image, is_new))
                if index not in led:
                    self._being_made.add((topic.name, index))
            elif index in led:
                led.pop(index).wake(0)
                if topic.name == GROUP_METADATA_TOPIC:
                    self.groups.on_resigned(index)
        return found

    def _lead_after_deletion(self, topic: TopicImage, _deletion: object) -> None:
        self._lead_again(topic, known=None)

    def _lead_again(self, topic: TopicImage, *, known: TopicImage | None) -> None:
        """Leads a topic's partitions, if there still is that topic."""

        def lead() -> None:
            with self.controller.between_changes:
                now = self.image.topics.get(topic.name)
                if now is not None and now.topic_id == topic.topic_id and not self._stopping:
                    self._lead(self._to_lead(now, known, is_start=False))

        self.change(lead)

    def _lead(self, wanted: Sequence[_ToLead]) -> None:
        """Leads partitions: all logs are there before the first is led."""
        if not wanted:
            return
        full: dict[str, TopicImage] = {}
        try:
            with background():
                logs = self.logs.get_or_create_all([self._log_of(each) for each in wanted])
            for each, log in in_steps(zip(wanted, logs, strict=True), every=8):
                error = log if isinstance(log, KafkaError) else None
                try:
                    if isinstance(log, PartitionLog):
                        self._lead_partition(each, log)
                except KafkaError as failed:
                    error = failed
                if error is not None:
                    _log.error("Cannot serve %s-%s", each.topic.name, each.number, exc_info=error)
                    if isinstance(error, StorageError) and error.is_out_of_space:
                        full[each.topic.name] = each.topic
        finally:
            self._being_made.difference_update((each.topic.name, each.number) for each in wanted)
        for topic in full.values():
            # Some logs may be there: no partition is new, where another directory is offline.
            self.call_later_ms(_LEAD_AGAIN_MS, partial(self._lead_again, topic, known=topic))

    def _log_of(self, wanted: _ToLead) -> NewLog:
        directory = wanted.image.directory_of(self.node_id)
        return NewLog(
            TopicPartition(wanted.topic.name, wanted.number),
            topic_id=uuid_text(wanted.topic.topic_id.bytes),
            directory_id=None if directory is None else _directory_text(directory),
            is_new=wanted.is_new,
        )

    def _lead_partition(self, wanted: _ToLead, log: PartitionLog) -> None:
        topic, index, image, _ = wanted
        led = self._partitions.setdefault(topic.name, {})
        here = led.get(index)
        self._report_place(log, topic.topic_id, image.directory_of(self.node_id))
        is_alone = set(image.isr) <= {self.node_id}
        is_changed = here is not None and (
            here.log is not log or here.leader_epoch != image.leader_epoch
        )
        if here is None or here.leader_epoch != image.leader_epoch:
            log.assign_epoch(image.leader_epoch)
        if here is None or here.log is not log:
            if is_alone:
                log.maybe_update_high_watermark(log.log_end_offset)
            led[index] = Partition(
                log,
                topic_id=topic.topic_id,
                leader_epoch=image.leader_epoch,
                is_alone=is_alone,
                find=self.logs.get,
                on_change=self._partition_changed,
            )
        else:
            here.leader_epoch = image.leader_epoch
            here.update_isr(is_alone=is_alone)
        if here is not None and is_changed:
            here.wake(0)

    def _partition_changed(self, partition: Partition, size_bytes: int) -> None:
        """Completes the requests that waited for a change of a partition."""
        self.delayed.check(partition.topic, partition.index, size_bytes)
        if partition.topic == GROUP_METADATA_TOPIC:
            self.groups.on_high_watermark(partition.index, partition.log.high_watermark)

    def _report_place(self, log: PartitionLog, topic_id: UUID, known: UUID | None) -> None:
        """Tells the controller where a log is, if it does not know; None is before KIP-858."""
        ids = {d.path: d.directory_id for d in self.logs.directories}
        found = ids.get(log.log_dir)
        if found is None or known is None:
            return
        directory = UUID(bytes=uuid_bytes(found))
        if directory != known:
            self.directory_reports.assign(topic_id, log.topic_partition.partition, directory)

    def _delete(self, topics: Sequence[TopicImage]) -> None:
        """Takes topics' logs out of service, at once or in another thread."""
        partitions: list[TopicPartition] = []
        names: list[str] = []
        for topic in in_steps(topics, every=8):
            led = self._partitions.pop(topic.name, {})
            for partition in led.values():
                partition.wake(0)
            self._being_made.difference_update((topic.name, index) for index in topic.partitions)
            self.metrics.topic_deleted(topic.name)
            if topic.name not in self._deletions:  # else it has never had logs
                names.append(topic.name)
                partitions += [TopicPartition(topic.name, index) for index in topic.partitions]
        if self._stopping or not (
            len(partitions) > _DELETED_AT_ONCE_MAX
            or any(self.cleaner.manager.state(each) for each in partitions)
        ):
            with background():
                self.logs.delete_all(partitions)
            return
        # The cleaner has to let go first, or there are many: the answer does not wait for that.
        deletion = self.loop.run_in_executor(self._deleters, self.logs.delete_all, partitions)
        for name in names:
            self._deletions[name] = deletion
            deletion.add_done_callback(partial(self._deleted, name))

    def _deleted(self, name: str, _deletion: object) -> None:
        self._deletions.pop(name, None)

    def finish_deletions(self) -> None:
        """Returns when the logs of all topics that were deleted are out of service.

        To be called by another thread than the event loop's, before the cleaner stops.
        """
        self._stopping = True
        self._deleters.shutdown(wait=True)

    def _reconfigure(self) -> None:
        for name, led in in_steps(list(self._partitions.items())):
            config = self.configs.log_config(name)
            if any(partition.log.config != config for partition in led.values()):
                self._update_config(name, led, config)

    def _update_config(self, name: str, led: Mapping[int, Partition], config: LogConfig) -> None:
        manager = self.cleaner.manager
        if any(manager.state(p.log.topic_partition) is not None for p in led.values()):
            # What is being cleaned may have to stop first, for which the others must not wait.
            self.loop.run_in_executor(None, update_topic_config, manager, name, config)
        else:
            update_topic_config(manager, name, config)
        self.cleaner.wake()

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and highest level of each feature that this broker knows, both inclusive."""
        return SUPPORTED_FEATURES

    def finalized_features(self) -> Mapping[str, int]:
        """The level of each feature that is in force."""
        return self.controller.finalized_features()

    # ---- partitions

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that is led here.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name and number.
            NotLeaderOrFollowerError: another broker leads it.
            StorageError: the directory of its log is offline.
        """
        try:
            found = self._partitions[topic][index]
        except KeyError:
            raise self._missing(topic, index) from None
        if found.log.is_closed and not found.follow():
            raise StorageError(f"The log directory of partition {topic}-{index} is offline")
        return found

    def _missing(self, topic: str, index: int) -> KafkaError:
        known = self.image.topics.get(topic)
        if known is None or index not in known.partitions:
            return UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if (topic, index) in self._being_made:
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
        return sum(map(len, self._partitions.values()))

    def led_partitions(self) -> list[Partition]:
        """All that are led here."""
        return [p for topic in self._partitions.values() for p in topic.values()]

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

    # ---- what requests ask of the controller

    def auto_create_topics(self, names: Sequence[str]) -> list[KafkaError | None]:
        """Creates topics that clients or coordinators need; for each name its error, if any.

        One change of the metadata log, unless that would be too large, or one of them stops it.
        """
        if not names:
            return []
        try:
            results = self.controller.create_topics(
                [auto_created_topic(name, self.settings) for name in names]
            )
        except KafkaError as error:
            if len(names) == 1:
                return [error]
            return [result for name in names for result in self.auto_create_topics([name])]
        return [result if isinstance(result, KafkaError) else None for result in results]

    def next_producer_id(self) -> int:
        """An id that no producer has had.

        Raises:
            KafkaError: the metadata log cannot be written.
        """
        if not self._producer_ids:
            with self.controller.between_changes:
                if not self._producer_ids:  # else another request has asked meanwhile
                    first, count = self.controller.allocate_producer_ids()
                    self._producer_ids = range(first, first + count)
        found = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return found

    # ---- directories

    @property
    def log_dirs(self) -> list[Path]:
        """Every log directory, offline ones too."""
        return [Path(name).absolute() for name in self.settings.log_dirs]

    def logs_with_futures(self) -> Iterator[tuple[PartitionLog, bool]]:
        """Every log, and whether it is the future one of a move."""
        for log in self.logs.logs():
            yield log, self.logs.get(log.topic_partition) is not log

    def moved(self, partition: TopicPartition) -> None:
        """A partition's log has been moved: it is served from there, and the controller told."""
        log = self.logs.get(partition)
        topic = self.image.topics.get(partition.topic)
        here = self._partitions.get(partition.topic, {}).get(partition.partition)
        if log is None or topic is None or here is None:
            return
        here.log = log
        here.wake(0)
        image = topic.partitions[partition.partition]
        self._report_place(log, topic.topic_id, image.directory_of(self.node_id))

    def directory_failed(self, log_dir: Path, give_up: Callable[[], None]) -> None:
        """A log directory is offline: what lies there is led by nobody.

        Args:
            log_dir: which.
            give_up: called if the controller cannot be told in log.dir.failure.timeout.ms.
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


def _directory_text(directory: UUID | str) -> str:
    """A directory's id as `meta.properties` has it."""
    return directory if isinstance(directory, str) else uuid_text(directory.bytes)
