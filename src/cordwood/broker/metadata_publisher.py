"""Applies the images of the cluster's metadata to this broker: logs, leaderships, groups, settings.

Installed last of the broker's publishers: a new log is created with the settings that its topic has
in the same image.

Source: kafka.server.metadata.BrokerMetadataPublisher, ReplicaManager.applyDelta,
TopicConfigHandler, Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from cordwood.broker.deleted_topics import DeletedTopics
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.cleanup.schedule.paused_changes import update_topic_config
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.coordinator.group.maintenance import GroupMaintenance
from cordwood.coordinator.registry import Coordinators
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import MetadataImage, PartitionImage, TopicImage
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.model.change_lock import ChangeLock
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import KafkaError, StorageError, UnknownServerError
from cordwood.model.pauses import background, in_steps
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_set import NewLog

_log = logging.getLogger(__name__)

# A log's renaming is milliseconds.
_DELETED_AT_ONCE_MAX: Final = 8
_DELETERS: Final = 4
_SERVE_AGAIN_MS: Final = 5_000
"""After a full disk has kept a partition from being served."""


class _Replica(NamedTuple):
    """A partition to be led or followed here; `is_new` if it cannot have a log yet."""

    topic: TopicImage
    number: int
    image: PartitionImage
    is_new: bool


class BrokerMetadataPublisher:
    """A `MetadataPublisher`; belongs to the event loop's thread, as the broker does."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        coordinators: Coordinators,
        groups: GroupMaintenance,
        configs: EffectiveConfigs,
        cleaner: LogCleaner,
        metrics: BrokerMetrics,
        thread: NodeThread,
        between_updates: ChangeLock,
    ) -> None:
        """Creates the publisher; it applies nothing before the first update.

        Args:
            replicas: gets the partitions that this broker leads.
            metadata: the newest image.
            coordinators: load and unload partitions with another leader.
            groups: deletes the offsets of deleted topics.
            configs: the settings of topics.
            cleaner: stops cleaning a log before the log is deleted or gets other settings.
            metrics: removes the counters of deleted topics.
            thread: owns this object.
            between_updates: the loader's lock; excludes updates while an attempt is repeated.
        """
        self._replicas = replicas
        self._node_id = replicas.node_id
        self._metadata = metadata
        self._coordinators = coordinators
        self._groups = groups
        self._configs = configs
        self._cleaner = cleaner
        self._metrics = metrics
        self._thread = thread
        self._between_updates = between_updates
        self._deletions: dict[str, asyncio.Future[None]] = {}
        self._deleters = ThreadPoolExecutor(_DELETERS, "topic-deletion")
        self._is_stopping = False

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Creates, deletes and reconfigures logs according to the image.

        If work runs in slices, other requests are served in the meantime; those to a partition
        whose log is not created yet get NOT_LEADER_OR_FOLLOWER, as in Kafka.
        """
        old, new = update.before, update.after
        if old is None or old.topics is not new.topics:
            self._apply_topics(old, new)
        if old is None or old.configs is not new.configs:
            self._reconfigure()

    def _apply_topics(self, old: MetadataImage | None, new: MetadataImage) -> None:
        before = {} if old is None else old.topics
        deleted = [
            topic
            for name, topic in in_steps(before.items(), every=64)
            if name not in new.topics or new.topics[name].topic_id != topic.topic_id
        ]
        if deleted:
            names = [topic.name for topic in deleted]
            noted = self._delete(deleted, old)
            self._coordinators.on_topics_deleted(names)
            self._groups.on_topics_deleted(names, noted.note_offsets)
        if old is not None:
            self._groups.on_topics_changed(new.changed_topics(old))
        wanted: list[_Replica] = []
        for name, topic in in_steps(new.topics.items(), every=64):
            known = before.get(name)
            if known is topic:
                continue
            if known is not None and known.topic_id != topic.topic_id:
                known = None
            deletion = self._deletions.get(name)
            if deletion is not None:  # of an earlier topic with this name
                deletion.add_done_callback(partial(self._serve_after_deletion, topic))
            else:
                wanted += self._wanted(topic, known, is_start=old is None)
        self._serve(wanted)
        if self._replicas.followed.replication is not None:
            self._replicas.followed.replication.stop_idle()

    def _wanted(
        self, topic: TopicImage, known: TopicImage | None, *, is_start: bool
    ) -> list[_Replica]:
        """The replicas of a topic that this broker has; stops serving what it no longer has."""
        led = self._replicas.partitions.setdefault(topic.name, {})
        found = []
        removed = []
        for index, image in in_steps(topic.partitions.items(), every=64):
            before = None if known is None else known.partitions.get(index)
            if before is image:
                continue
            leads = image.leader == self._node_id
            if index in led and not leads:
                self._resign(topic.name, index)
            if self._node_id in image.replicas:
                is_new = not is_start and before is None
                if leads or self._replicas.followed.replication is not None:
                    found.append(_Replica(topic, index, image, is_new))
            elif before is not None and self._node_id in before.replicas:
                self._replicas.removed(topic.topic_id, index)
                removed.append(TopicPartition(topic.name, index))
        if removed:
            # Before the next update, which may bring them back.
            with background():
                self._replicas.logs.delete_all(removed)
        return found

    def _resign(self, topic: str, index: int) -> None:
        """Another broker leads a partition, or none."""
        self._replicas.partitions[topic].pop(index).resign()
        self._coordinators.on_resigned(topic, index)

    def _serve_after_deletion(self, topic: TopicImage, _deletion: object) -> None:
        self._serve_again(topic, is_new=True)

    def _serve_again(self, topic: TopicImage, *, is_new: bool) -> None:
        """Serves a topic's replicas, if there still is that topic."""

        def serve() -> None:
            with self._between_updates:
                now = self._metadata.image.topics.get(topic.name)
                if now is not None and now.topic_id == topic.topic_id and not self._is_stopping:
                    self._serve(self._wanted(now, None, is_start=not is_new))

        self._thread.run_in_slices(serve)

    def _serve(self, wanted: Sequence[_Replica]) -> None:
        """Leads and follows partitions: all logs are there before the first is led.

        One that is led is not fetched from another broker before it is led.
        """
        if not wanted:
            return
        full: dict[str, TopicImage] = {}
        elected: list[_Replica] = []
        for each in wanted:
            if each.image.leader == self._node_id:
                self._replicas.followed.unfollow(TopicIdPartition(each.topic.topic_id, each.number))
        with background():
            logs = self._replicas.logs.get_or_create_all([self._log_of(each) for each in wanted])
        for each, log in in_steps(zip(wanted, logs, strict=True), every=8):
            error = self._serve_one(each, log, elected)
            if error is not None:
                _log.error("Cannot serve %s-%s", each.topic.name, each.number, exc_info=error)
            if isinstance(error, StorageError):
                self._replicas.full.has_no_log(TopicIdPartition(each.topic.topic_id, each.number))
                if error.is_out_of_space:
                    full[each.topic.name] = each.topic
                    self._replicas.give_up(each.topic.name, each.number, None)
        for each in in_steps(elected, every=8):
            self._coordinators.on_elected(each.topic.name, each.number)
        for topic in full.values():
            # Some logs may be there: no partition is new, where another directory is offline.
            self._thread.call_later_ms(
                _SERVE_AGAIN_MS, partial(self._serve_again, topic, is_new=False)
            )

    def _serve_one(
        self, wanted: _Replica, log: PartitionLog | KafkaError, elected: list[_Replica]
    ) -> KafkaError | None:
        """Leads or follows a partition; adds it to `elected` if it was not led in this epoch."""
        if isinstance(log, KafkaError):
            return log
        topic, number, image, _ = wanted
        self._replicas.full.has_log(TopicIdPartition(topic.topic_id, number))
        self._replicas.report_place(log, topic.topic_id, image.directory_of(self._node_id))
        try:
            if image.leader != self._node_id:
                self._replicas.follow(log, topic.topic_id, image)
            elif self._replicas.lead(log, topic.topic_id, image)[1]:
                elected.append(wanted)
        except KafkaError as error:
            return error
        except CordwoodError as error:  # such as of the cleaner
            return UnknownServerError(str(error))
        return None

    def _log_of(self, wanted: _Replica) -> NewLog:
        directory = wanted.image.directory_of(self._node_id)
        return NewLog(
            TopicPartition(wanted.topic.name, wanted.number),
            topic_id=wanted.topic.topic_id,
            directory_id=directory,
            is_new=wanted.is_new,
        )

    def _delete(self, topics: Sequence[TopicImage], before: MetadataImage | None) -> DeletedTopics:
        """Takes topics' logs out of service, immediately or in another thread.

        Those that go to the trash are noted before.
        """
        partitions: list[TopicPartition] = []
        names: list[str] = []
        for topic in in_steps(topics, every=8):
            led = self._replicas.partitions.pop(topic.name, {})
            for partition in led.values():
                partition.resign()
            for index in topic.partitions:
                self._replicas.removed(topic.topic_id, index)
            self._metrics.topic_deleted(topic.name)
            if topic.name not in self._deletions:  # otherwise it has no logs
                names.append(topic.name)
                partitions += [TopicPartition(topic.name, index) for index in topic.partitions]
        noted = DeletedTopics(self._replicas.logs)
        with background():
            for topic in topics:
                if before is not None and topic.name in names:
                    noted.note(topic, before.topic_config(topic.name))
        self._delete_logs(partitions, names)
        return noted

    def _delete_logs(self, partitions: Sequence[TopicPartition], names: Sequence[str]) -> None:
        """Deletes logs; `names` are the topics of which all logs are deleted."""
        if self._is_stopping or not (
            len(partitions) > _DELETED_AT_ONCE_MAX
            or any(self._cleaner.manager.states.of(each) for each in partitions)
        ):
            with background():
                self._replicas.logs.delete_all(partitions)
            return
        # The cleaner must release them first, or there are many: the answer does not wait for that.
        deletion = self._thread.loop.run_in_executor(
            self._deleters, self._replicas.logs.delete_all, partitions
        )
        for name in names:
            self._deletions[name] = deletion
            deletion.add_done_callback(partial(self._deleted, name))

    def _deleted(self, name: str, _deletion: object) -> None:
        self._deletions.pop(name, None)

    def finish_deletions(self) -> None:
        """Returns when the logs of all topics that were deleted are out of service.

        To be called by another thread than the event loop's, before the cleaner stops.
        """
        self._is_stopping = True
        self._deleters.shutdown(wait=True)

    def _reconfigure(self) -> None:
        configs = self._configs
        self._replicas.throttles.update(
            (configs.dynamic, configs.dynamic_default), configs.image.configs, self._node_id
        )
        logs: dict[str, list[PartitionLog]] = {}
        for log in in_steps(self._replicas.logs.logs(), every=64):
            logs.setdefault(log.topic_partition.topic, []).append(log)
        for name, found in in_steps(logs.items()):
            config = self._configs.log_config(name)
            if any(log.config != config for log in found):
                self._update_config(name, found, config)

    def _update_config(self, name: str, logs: Sequence[PartitionLog], config: LogConfig) -> None:
        for partition in self._replicas.partitions.get(name, {}).values():
            partition.update_min_insync_replicas(config.min_insync_replicas)
        manager = self._cleaner.manager

        def update() -> None:
            update_topic_config(manager, name, config)
            self._cleaner.wake()

        if any(manager.states.of(log.topic_partition) is not None for log in logs):
            # What is being cleaned may have to stop first, for which the others must not wait.
            self._thread.loop.run_in_executor(None, update)
        else:
            update()
