"""The controller of a node that is its own quorum: a change is committed once it is on disk.

Every operation checks the image, makes records, and writes them as one batch; the controller's
image includes them when the batch is on disk. An operation that fails changes nothing. Operations
run one after another; a long operation runs in slices (`model.pauses`). Brokers do not read this
image: a `MetadataLoader` gives them what the log has committed.

Source: org.apache.kafka.controller.QuorumController, ActivationRecordsGenerator; KIP-631, KIP-919.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from pathlib import Path
from typing import Self

from cordwood.configs.resource import ConfigChange
from cordwood.controller import configs, features, partitions, quotas, registration, topics
from cordwood.controller.cluster_view import ClusterView
from cordwood.controller.metadata_writer import MetadataWriter
from cordwood.controller.registration import ControllerRegistration
from cordwood.controller.settings import ControllerSettings
from cordwood.metadata.controller_requests import (
    AlteredIsr,
    BrokerRegistration,
    CreatedTopic,
    DirectoryAssignment,
    ElectionResult,
    FeatureUpdate,
    IsrChange,
    NewPartitions,
    NewTopic,
    QuorumInfo,
    QuorumReplica,
    QuotaChange,
    Reassignment,
    RestoredTopic,
)
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.records import ApiRecord
from cordwood.metadata.sole_voter_log import SoleVoterLog
from cordwood.model.change_lock import ChangeLock, one_at_a_time
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import KafkaError, StorageError, TopicDeletionDisabledError
from cordwood.model.pauses import background
from cordwood.model.uuids import fresh_uuid
from cordwood.storage.disk_reserve import DiskReserve
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.segment.resources import ResourceCache

_log = logging.getLogger(__name__)


class Controller:
    """The active controller; `image` is that of its log, up to its end.

    `node_id` is the id of both the controller and its broker; `directory_ids` are those of all
    directories, that of the metadata log first. `check_topic_configs` raises a `KafkaError` if it
    refuses a new topic's configs; `check_topic_deletion` returns one if a topic must stay.
    """

    def __init__(
        self,
        log: SoleVoterLog,
        node_id: int,
        directory_ids: Sequence[uuid.UUID],
        settings: ControllerSettings,
        reserve: DiskReserve,
        context: LogContext,
    ) -> None:
        """Use `open`."""
        self.settings = settings
        self.check_topic_configs: topics.CheckConfigs | None = None
        self.check_topic_deletion: topics.CheckDeletion | None = None
        self.log = log
        self._reserve = reserve
        self.context = context
        self._writer = MetadataWriter(log, reserve, settings, clock=context.clock, fs=context.fs)
        self.node_id = node_id
        self.directory_ids = tuple(directory_ids)
        self._broker_incarnation_id: uuid.UUID | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self._is_open = True
        self._is_log_closed = False
        self._changes = ChangeLock()

    @classmethod
    def open(
        cls,
        *,
        metadata_dir: Path,
        node_id: int,
        directory_ids: Sequence[uuid.UUID],
        clock: Clock,
        endpoints: Sequence[Endpoint] = (),
        default_host: str = "localhost",
        settings: ControllerSettings | None = None,
        context: LogContext | None = None,
        fs: FileSystem = OS,
    ) -> Self:
        """Reads the metadata log, begins a new leader epoch, and registers the controller.

        Args:
            metadata_dir: the log directory that holds `__cluster_metadata-0`, formatted.
            node_id: the id of both the broker and the controller.
            directory_ids: of all directories, that of `metadata_dir` first.
            clock: the time source.
            endpoints: of the controller, to register. If empty, the voter's own endpoints are used,
                or those of the last registration.
            default_host: the host of the endpoint that is registered if none of these is known.
            settings: the broker's configuration.
            context: shared with the broker's logs: clock, open files, failed directories.
            fs: the file system to use if there is no context.

        Raises:
            ConfigError: the log is that of a quorum with other voters.
            CorruptError: a file of the log cannot be read.
            UnsupportedVersionError: the log is of a later Kafka.
            StorageError: the disk returned an error.
        """
        settings = settings or ControllerSettings()
        context = context or LogContext(clock=clock, resources=ResourceCache(fs=fs))
        reserve = DiskReserve(metadata_dir, size_bytes=settings.reserve_bytes, fs=context.fs)
        reserve.release()
        log = SoleVoterLog(
            metadata_dir,
            node_id=node_id,
            directory_id=directory_ids[0],
            context=context,
            settings=settings,
        )
        controller = cls(log, node_id, directory_ids, settings, reserve, context)
        try:
            controller._writer.activate(metadata_dir)
            controller._remove_reserved_topics()
            controller._register(tuple(endpoints), default_host)
        except BaseException:
            log.abandon()
            raise
        return controller

    def _register(self, endpoints: tuple[Endpoint, ...], default_host: str) -> None:
        self._endpoints = endpoints or registration.known_endpoints(
            self.node_id, self.image, self.log.voters, default_host
        )
        controller = ControllerRegistration(
            node_id=self.node_id,
            incarnation_id=fresh_uuid(self.context.rng),
            endpoints=self._endpoints,
        )
        self._writer.commit_in_parts(registration.registering_controller(self.view(), controller))

    def _remove_reserved_topics(self) -> None:
        """Deletes topics that an earlier version created under the name of the metadata log."""
        records, names = topics.remove_reserved(self.view())
        if names:
            _log.warning(
                "The metadata log holds a topic with the reserved name %s, beside which a Kafka "
                "broker leads no partition: the topic is deleted. Its partitions above 0 are kept "
                "in directories whose names end in -stray.",
                ", ".join(names),
            )
        self._writer.commit(records)

    @one_at_a_time
    def register_broker(self, broker: BrokerRegistration) -> int:
        """Registers this node's broker, which is fenced until `unfence`; its broker epoch.

        Raises:
            StorageError: the disk refused.
        """
        for records in registration.registering(self.view(), broker, self.log.end_offset):
            self._writer.commit_in_parts(records)
        self._broker_incarnation_id = broker.incarnation_id
        return self.broker_epoch

    @one_at_a_time
    def unfence(self) -> None:
        """Lets the broker lead, and be seen: to be called when it serves requests.

        Raises:
            StorageError: the disk refused.
        """
        broker = self.image.brokers[self.node_id]
        if broker.fenced:
            self._writer.commit_in_parts(registration.unfencing(self.view(), broker))
        self._reserve.take()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this node's broker; a clean shutdown writes it to `.kafka_cleanshutdown`."""
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The controller's endpoints, as it has registered."""
        return self._endpoints

    @property
    def between_changes(self) -> ChangeLock:
        """Held during each change; hold it to keep changes out."""
        return self._changes

    @property
    def is_log_open(self) -> bool:
        """Whether the metadata log can be read: it is neither closed nor failed."""
        return not self._is_log_closed

    def shut_down_broker(self) -> None:
        """Takes the broker out of service as a controlled shutdown does.

        Call it when no long request is under way and before the logs are closed. If the
        disk returns an error, the error is logged, and the next start treats it as a crash.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._reserve.release()
        broker = self.image.brokers.get(self.node_id)
        if broker is None or broker.fenced or broker.incarnation_id != self._broker_incarnation_id:
            return  # not in service, or not since this start
        try:
            self._writer.commit_in_parts(registration.shutting_down(self.view(), broker))
            self._writer.commit_in_parts(
                registration.fencing_again(self.view(), self.image, broker)
            )
        except (OSError, NoSpaceError, StorageError) as error:
            self._abandon_for(error)

    def close(self) -> None:
        """Shuts the broker down, if that is not done yet, and closes the log.

        A disk that refuses is no error, as in `shut_down_broker`.
        """
        try:
            self.shut_down_broker()
            if not self._is_log_closed:
                self._is_log_closed = True
                self.log.close()
        except (OSError, NoSpaceError, StorageError) as error:
            self._abandon_for(error)
        except BaseException:
            self.log.abandon()
            raise

    def _abandon_for(self, error: Exception) -> None:
        _log.warning(
            "The shutdown of this broker cannot be written to the metadata log; the next "
            "start recovers it: %s",
            error,
        )
        self._is_log_closed = True
        self.log.abandon()

    def abandon(self) -> None:
        """Lets go of the files as a crash does: nothing is written."""
        self._is_open = False
        self._is_log_closed = True
        self.log.abandon()

    @one_at_a_time
    def take_reserve(self) -> None:
        """Takes the disk reserve of the metadata log again, if it was released."""
        self._reserve.take()

    @property
    def image(self) -> MetadataImage:
        """The metadata as the log has it, up to its end."""
        return self._writer.image

    def commit(self, records: Sequence[ApiRecord]) -> None:
        """Writes records that need not be applied together; a full disk does not refuse them.

        Raises:
            StorageError: the disk returned an error.
        """
        self._writer.commit_in_parts_at_need(records)

    def check_invariants(self) -> None:
        """Checks the image."""
        self._writer.check_invariants()

    # ---- topics

    @one_at_a_time
    def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        validate_only: bool = False,
    ) -> list[CreatedTopic | KafkaError]:
        """Makes topics: what became of each, in their order.

        Args:
            wanted: topics, each name once.
            validate_only: nothing is made.

        Raises:
            PolicyViolationError: they are too large for one operation.
            StorageError: the disk refused; none was made.
        """
        records, results = topics.create_topics(self.view(), wanted, self.check_topic_configs)
        self._writer.commit([] if validate_only else records)
        return results

    @one_at_a_time
    def delete_topics(self, wanted: Sequence[uuid.UUID | str]) -> list[KafkaError | None]:
        """Deletes topics by id or name, and returns the error of each, in their order.

        Raises:
            TopicDeletionDisabledError: delete.topic.enable is false.
            StorageError: the disk returned an error; no topic was deleted.
        """
        if not self.settings.delete_topic_enable:
            raise TopicDeletionDisabledError("Topic deletion is disabled.")
        records, results = topics.delete_topics(self.view(), wanted, self.check_topic_deletion)
        self._writer.commit_at_need(records)
        return results

    @one_at_a_time
    def restore_topic(self, topic: RestoredTopic, prepare: Callable[[], object]) -> None:
        """Makes a deleted topic exist again.

        Args:
            topic: as it was.
            prepare: brings its logs back; called when nothing is in the way of the topic, and
                before it exists.

        Raises:
            KafkaError: its name or its id is in use, or its settings are not valid any more.
            StorageError: the disk refused; it was not made.
        """
        records = topics.restore_topic(self.view(), topic, self.check_topic_configs)
        with background():
            prepare()
        self._writer.commit_at_need(records)

    @one_at_a_time
    def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Gives topics more partitions: what went wrong with each, in their order.

        Raises:
            PolicyViolationError: they are too many for one operation.
            StorageError: the disk refused; nothing changed.
        """
        records, results = topics.create_partitions(self.view(), wanted)
        self._writer.commit([] if validate_only else records)
        return results

    # ---- partitions

    @one_at_a_time
    def elect_leaders(
        self, wanted: Iterable[tuple[str, int]] | None, *, election_type: int
    ) -> list[ElectionResult]:
        """Elects leaders: preferred ones (type 0), or any for leaderless partitions (1).

        Args:
            wanted: partitions; None for all, without results for those that need no election.
            election_type: 0 or 1.

        Raises:
            InvalidRequestError: there is no such type.
            StorageError: the disk returned an error; nothing changed.
        """
        records, results = partitions.elect_leaders(self.view(), wanted, election_type)
        self._writer.commit_in_parts(records)
        return results

    @one_at_a_time
    def alter_partition_reassignments(
        self, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> list[KafkaError | None]:
        """Moves partitions to other replicas: what went wrong with each, in their order.

        Raises:
            StorageError: the disk refused; nothing changed.
        """
        records, results = partitions.alter_reassignments(
            self.view(),
            wanted,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        self._writer.commit(records)
        return results

    @one_at_a_time
    def alter_partitions(self, broker_id: int, changes: Sequence[IsrChange]) -> list[AlteredIsr]:
        """Changes ISRs as the leader of the partitions proposes, and returns what became of each.

        Raises:
            StorageError: the disk returned an error; nothing changed.
        """
        records, errors = partitions.alter_isrs(self.view(), broker_id, changes)
        self._writer.commit_in_parts_at_need(records)
        return [self._altered(change, error) for change, error in zip(changes, errors, strict=True)]

    def _altered(self, change: IsrChange, error: ErrorCode) -> AlteredIsr:
        if error is not ErrorCode.NONE:
            return AlteredIsr(error)
        topic = self.image.topic_by_id(change.topic_id)
        assert topic is not None, "altered"
        found = topic.partitions[change.partition]
        return AlteredIsr(error, found.leader_epoch, found.partition_epoch, found.isr)

    @one_at_a_time
    def assign_directories(
        self, broker_id: int, assigned: Iterable[DirectoryAssignment]
    ) -> list[ErrorCode]:
        """Records the directories of a broker's replicas, and returns an error for each.

        Raises:
            UnsupportedRequestError: the metadata.version has no directories.
            StorageError: the disk returned an error; nothing changed.
        """
        records, errors = partitions.assign_directories(self.view(), broker_id, assigned)
        self._writer.commit_in_parts_at_need(records)
        return errors

    @one_at_a_time
    def directories_failed(self, directories: Collection[uuid.UUID]) -> None:
        """Removes failed directories from this broker's registration, and their leaders.

        Directories that are already known to have failed are skipped.

        Raises:
            StorageError: the disk returned an error; nothing changed.
        """
        broker = self.image.brokers[self.node_id]
        records = registration.directories_failed(self.view(), broker, directories)
        self._writer.commit_in_parts_at_need(records)

    @one_at_a_time
    def cordon_directories(self, directories: Sequence[uuid.UUID]) -> None:
        """Records which directories of this broker take no new partitions (cordoned.log.dirs).

        Raises:
            StorageError: the disk refused; nothing changed.
        """
        broker = self.image.brokers[self.node_id]
        self._writer.commit(registration.cordoning(self.view(), broker, directories))

    # ---- settings, quotas, features

    @one_at_a_time
    def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Changes settings: what went wrong with each resource's, in their order.

        Raises:
            StorageError: the disk refused; nothing changed.
        """
        records, results = configs.alter_configs(self.view(), changes)
        self._writer.commit([] if validate_only else records)
        return results

    @one_at_a_time
    def alter_client_quotas(
        self,
        changes: Sequence[QuotaChange],
        *,
        known_hosts: Container[str] = (),
        validate_only: bool = False,
    ) -> list[KafkaError | None]:
        """Changes quotas: what went wrong with each entity's, in their order.

        Args:
            changes: quotas by entity.
            known_hosts: the names of hosts in them that have an address.
            validate_only: nothing is changed.

        Raises:
            StorageError: the disk refused; nothing changed.
        """
        records, results = quotas.alter_client_quotas(self.view(), changes, known_hosts)
        self._writer.commit([] if validate_only else records)
        return results

    @one_at_a_time
    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Sets levels of features, all or none.

        Raises:
            InvalidUpdateVersionError: one of the levels is not possible.
            StorageError: the disk returned an error; nothing changed.
        """
        records = features.update_features(
            self.view(), self.node_id, updates, kraft_version=self.log.kraft_version
        )
        self._writer.commit([] if validate_only else records)

    # ---- producers, brokers, quorum

    @one_at_a_time
    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """A block of producer ids that nobody else has: (first id, count).

        Raises:
            StorageError: the disk refused.
        """
        record, first, count = registration.producer_ids(self.image, broker_id, broker_epoch)
        self._writer.commit([record])
        return first, count

    @one_at_a_time
    def unregister_broker(self, broker_id: int) -> None:
        """Forgets a broker.

        Raises:
            BrokerIdNotRegisteredError: it is not registered.
            StorageError: the disk refused; nothing changed.
        """
        self._writer.commit_in_parts(registration.unregistering(self.view(), broker_id))

    def describe_quorum(self) -> QuorumInfo:
        """The voters, the leader, and the end of the metadata log."""
        now_ms = self.context.clock.now_ms()
        directory = self.directory_ids[0] if self.log.kraft_version else uuid.UUID(int=0)
        own = QuorumReplica(self.node_id, directory, self.log.end_offset, now_ms, now_ms)
        return QuorumInfo(
            leader_id=self.node_id,
            leader_epoch=self.log.epoch,
            high_watermark=self.log.end_offset,
            voters=(own,),
            endpoints=self._endpoints,
        )

    def view(self) -> ClusterView:
        """The cluster as it is, for operations."""
        return ClusterView(image=self.image, settings=self.settings, rng=self.context.rng)
