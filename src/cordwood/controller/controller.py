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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from cordwood.controller import partitions, registration, topics
from cordwood.controller.cluster_view import ClusterView
from cordwood.controller.metadata_writer import MetadataWriter
from cordwood.controller.registration import ControllerRegistration
from cordwood.controller.settings import ControllerSettings
from cordwood.metadata.controller_requests import (
    AlteredIsr,
    BrokerRegistration,
    DirectoryAssignment,
    IsrChange,
)
from cordwood.metadata.formatting import voter_fields
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.records import ApiRecord
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.metadata.sole_voter_log import SoleVoterLog
from cordwood.model.change_lock import ChangeLock, one_at_a_time
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.pauses import background
from cordwood.model.uuids import fresh_uuid
from cordwood.storage.disk_reserve import DiskReserve
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.segment.resources import ResourceCache

_log = logging.getLogger(__name__)

T = TypeVar("T")


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
        self._writer.commit(
            registration.registering_controller(self.view(), controller), in_parts=True
        )

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
            self._writer.commit(records, in_parts=True)
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
            self._writer.commit(registration.unfencing(self.view(), broker), in_parts=True)
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

    def make_voters_dynamic(self) -> None:
        """Raises `kraft.version` from 0 to 1: this node is the voter, with its own endpoints.

        Raises:
            StorageError: the disk returned an error.
        """
        directory_id = self.directory_ids[0]
        self._writer.make_voters_dynamic(voter_fields(self.node_id, directory_id, self._endpoints))

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
            self._writer.commit(registration.shutting_down(self.view(), broker), in_parts=True)
            self._writer.commit(
                registration.fencing_again(self.view(), self.image, broker), in_parts=True
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
        """Closes the files without writing anything, as a crash does."""
        self._is_open = False
        self._is_log_closed = True
        self.log.abandon()

    @one_at_a_time
    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """Writes a snapshot of the metadata if one is due; the disk reserve is taken again."""
        self._reserve.take()
        with background():
            snapshots.run_if_due()

    @property
    def image(self) -> MetadataImage:
        """The metadata as the log has it, up to its end."""
        return self._writer.image

    def commit(self, records: Sequence[ApiRecord]) -> None:
        """Writes records that need not be applied together; a full disk does not refuse them.

        Raises:
            StorageError: the disk returned an error.
        """
        self._writer.commit(records, in_parts=True, at_need=True)

    def check_invariants(self) -> None:
        """Checks the image."""
        self._writer.check_invariants()

    @one_at_a_time
    def change(
        self,
        operation: Callable[[ClusterView], tuple[Sequence[ApiRecord], T]],
        *,
        validate_only: bool = False,
        in_parts: bool = False,
        at_need: bool = False,
    ) -> T:
        """Writes the records of an operation, and returns its result.

        Args:
            operation: gets the cluster as it is; gives records, and the result if they are written.
            validate_only: nothing is written.
            in_parts: the records need not be applied together.
            at_need: a full disk does not refuse them.

        Raises:
            KafkaError: the operation refuses; nothing changed.
            StorageError: the disk returned an error; nothing changed.
        """
        records, result = operation(self.view())
        if not validate_only:
            self._writer.commit(records, in_parts=in_parts, at_need=at_need)
        return result

    # ---- requests of brokers, of which this node's may be one

    @one_at_a_time
    def alter_partitions(self, broker_id: int, changes: Sequence[IsrChange]) -> list[AlteredIsr]:
        """Changes ISRs as the leader of the partitions proposes, and returns what became of each.

        Raises:
            StorageError: the disk returned an error; nothing changed.
        """
        errors = self.change(
            lambda view: partitions.alter_isrs(view, broker_id, changes),
            in_parts=True,
            at_need=True,
        )
        return [self._altered(change, error) for change, error in zip(changes, errors, strict=True)]

    def _altered(self, change: IsrChange, error: ErrorCode) -> AlteredIsr:
        if error is not ErrorCode.NONE:
            return AlteredIsr(error)
        topic = self.image.topic_by_id(change.topic_id)
        assert topic is not None, "altered"
        found = topic.partitions[change.partition]
        return AlteredIsr(error, found.leader_epoch, found.partition_epoch, found.isr)

    def assign_directories(
        self, broker_id: int, assigned: Iterable[DirectoryAssignment]
    ) -> list[ErrorCode]:
        """Records the directories of a broker's replicas, and returns an error for each.

        Raises:
            UnsupportedRequestError: the metadata.version has no directories.
            StorageError: the disk returned an error; nothing changed.
        """
        return self.change(
            lambda view: partitions.assign_directories(view, broker_id, assigned),
            in_parts=True,
            at_need=True,
        )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """A block of producer ids that nobody else has: (first id, count).

        Raises:
            StorageError: the disk returned an error; nothing changed.
        """
        return self.change(lambda view: registration.producer_ids(view, broker_id, broker_epoch))

    def view(self) -> ClusterView:
        """The cluster as it is, for operations."""
        return ClusterView(image=self.image, settings=self.settings, rng=self.context.rng)
