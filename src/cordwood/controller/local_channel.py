"""The channel to a controller in this process.

An operation runs in slices between the turns of the event loop. Its answer comes when this node's
loader has published the change to all its parts, so that a client that gets the answer finds what
it has changed on this broker: a topic that was created has its logs.

Source: kafka.server.NodeToControllerChannelManagerImpl, for a node with both roles.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from cordwood.configs.resource import ConfigChange
from cordwood.controller import configs, features, partitions, registration, topics
from cordwood.controller.cluster_view import ClusterView
from cordwood.controller.controller import Controller
from cordwood.controller.host_lookup import look_up_hosts
from cordwood.controller.quotas import alter_client_quotas, hosts_to_look_up
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
from cordwood.metadata.feature_levels import KRAFT_VERSION
from cordwood.metadata.records import ApiRecord, Records, has_directories
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import background

T = TypeVar("T")


class RunInSlices(Protocol):
    """Runs work in slices, between which the event loop serves other requests."""

    def __call__(self, run: Callable[[], T], /) -> Awaitable[T]:
        """The result of `run`."""


class LocalControllerChannel:
    """A `ControllerChannel`."""

    def __init__(
        self,
        controller: Controller,
        *,
        run: RunInSlices,
        published: Callable[[int], Awaitable[None]],
    ) -> None:
        """Creates the channel; it sends no request yet.

        Args:
            controller: the controller in this process.
            run: runs an operation of the controller.
            published: returns when this node has applied all records below an offset.
        """
        self._controller = controller
        self._run = run
        self._published = published
        #: Returns the nodes that follow the metadata log.
        self.observers: Callable[[], tuple[QuorumReplica, ...]] = tuple

    async def register_broker(self, broker: BrokerRegistration) -> int:
        """Registers the broker, which is fenced until `unfence_broker`; its broker epoch."""
        return await self._ask(lambda: self._controller.register_broker(broker))

    async def unfence_broker(self) -> None:
        """Lets the broker lead and be seen."""
        await self._ask(self._controller.unfence)

    async def shut_down_broker(self) -> None:
        """Takes the broker out of service at once, as no other change is under way."""
        self._controller.shut_down_broker()

    async def leave(self) -> None:
        """Takes the broker out of service while the controller serves other brokers."""
        await self._ask(self._controller.shut_down_broker)

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Sequence[CreatedTopic | KafkaError]:
        """Creates topics, each name once, or only checks them."""
        check = self._controller.check_topic_configs
        return await self._change(
            lambda view: topics.create_topics(view, wanted, check), validate_only=validate_only
        )

    async def delete_topics(self, wanted: Sequence[uuid.UUID | str]) -> Sequence[KafkaError | None]:
        """Deletes topics by id or name."""
        check = self._controller.check_topic_deletion
        return await self._change(
            lambda view: topics.delete_topics(view, wanted, check), at_need=True
        )

    async def restore_topic(self, topic: RestoredTopic, prepare: Callable[[], object]) -> None:
        """Makes a deleted topic exist again.

        Args:
            topic: as it was.
            prepare: brings its logs back; called when nothing is in the way of the topic, and
                before it exists.

        Raises:
            KafkaError: its name or its id is in use, or its settings are not valid any more.
            StorageError: the disk returned an error; it was not made.
        """

        def restore(view: ClusterView) -> tuple[Records, None]:
            records = topics.restore_topic(view, topic, self._controller.check_topic_configs)
            with background():
                prepare()
            return records, None

        await self._change(restore, at_need=True)

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Adds partitions to topics."""
        return await self._change(
            lambda view: topics.create_partitions(view, wanted), validate_only=validate_only
        )

    async def elect_leaders(
        self, wanted: Iterable[tuple[str, int]] | None, *, election_type: int
    ) -> Sequence[ElectionResult]:
        """Elects preferred leaders (type 0), or any for leaderless partitions (1)."""
        return await self._change(
            lambda view: partitions.elect_leaders(view, wanted, election_type), in_parts=True
        )

    async def alter_partition_reassignments(
        self, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> Sequence[KafkaError | None]:
        """Moves partitions to other replicas."""
        return await self._change(
            lambda view: partitions.alter_reassignments(
                view, wanted, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes settings of resources."""
        return await self._change(
            lambda view: configs.alter_configs(view, changes), validate_only=validate_only
        )

    async def alter_client_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes quotas; names of hosts are looked up first, which may take seconds."""
        names = hosts_to_look_up(changes)
        known_hosts = await look_up_hosts(names) if names else frozenset()
        return await self._change(
            lambda view: alter_client_quotas(view, changes, known_hosts),
            validate_only=validate_only,
        )

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Sets levels of features, all or none."""
        controller = self._controller

        def update(view: ClusterView) -> tuple[Records, None]:
            kraft_version = controller.log.kraft_version
            records = features.update_features(
                view, controller.node_id, updates, kraft_version=kraft_version
            )
            levels = {each.name: each.level for each in updates}
            if levels.get(KRAFT_VERSION, 0) > kraft_version and not validate_only:
                controller.make_voters_dynamic()
            return records, None

        await self._change(update, validate_only=validate_only)

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes the registration of a broker."""
        await self._change(
            lambda view: (registration.unregistering(view, broker_id), None), in_parts=True
        )

    async def unregister_controller(self, controller_id: int) -> None:
        """Removes the registration of a controller other than this one, the active one."""
        own = self._controller.node_id
        await self._change(
            lambda view: (registration.unregistering_controller(view, controller_id, own), None)
        )

    async def describe_quorum(self) -> QuorumInfo:
        """Describes the only voter, which is the controller, and the nodes that follow it."""
        controller = self._controller
        log, now_ms = controller.log, controller.context.clock.now_ms()
        directory = controller.directory_ids[0] if log.kraft_version else uuid.UUID(int=0)
        own = QuorumReplica(controller.node_id, directory, log.end_offset, now_ms, now_ms)
        return QuorumInfo(
            leader_id=controller.node_id,
            leader_epoch=log.epoch,
            high_watermark=log.end_offset,
            voters=(own,),
            observers=self.observers(),
            endpoints=controller.endpoints,
        )

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocates a block of producer ids for this node's broker: (first id, count)."""
        controller = self._controller
        return await self._ask(
            lambda: controller.allocate_producer_ids(controller.node_id, controller.broker_epoch)
        )

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[AlteredIsr]:
        """Changes the ISRs of partitions that this node's broker leads."""
        controller = self._controller
        return await self._ask(lambda: controller.alter_partitions(controller.node_id, changes))

    async def assign_directories(self, assigned: Iterable[DirectoryAssignment]) -> None:
        """Records in which directories this node's broker has partitions."""
        controller = self._controller
        if has_directories(controller.image.metadata_version):
            await self._ask(lambda: controller.assign_directories(controller.node_id, assigned))

    async def directories_failed(self, directories: Collection[uuid.UUID]) -> None:
        """Records directories of this node's broker that have failed; known ones are skipped."""

        def fail(view: ClusterView) -> tuple[Records, None]:
            broker = view.image.brokers[self._controller.node_id]
            return registration.directories_failed(view, broker, directories), None

        await self._change(fail, in_parts=True, at_need=True)

    async def directories_cordoned(self, directories: Collection[uuid.UUID]) -> None:
        """Records which directories of this node's broker get no new partitions, if not known."""

        def cordon(view: ClusterView) -> tuple[Records, None]:
            broker = view.image.brokers[self._controller.node_id]
            return registration.cordoning(view, broker, directories), None

        await self._change(cordon)

    async def _change(
        self,
        operation: Callable[[ClusterView], tuple[Sequence[ApiRecord], T]],
        *,
        validate_only: bool = False,
        in_parts: bool = False,
        at_need: bool = False,
    ) -> T:
        """Has the controller make a change; returns when this node has applied its records."""
        return await self._ask(
            lambda: self._controller.change(
                operation, validate_only=validate_only, in_parts=in_parts, at_need=at_need
            )
        )

    async def _ask(self, operation: Callable[[], T]) -> T:
        def work() -> tuple[T, int]:
            with self._controller.between_changes:
                return operation(), self._controller.image.next_offset

        result, end_offset = await self._run(work)
        await self._published(end_offset)
        return result
