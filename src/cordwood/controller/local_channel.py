"""The channel to a controller in this process.

An operation runs in slices between the turns of the event loop. Its answer comes when this node's
loader has published the change to all its parts, so that a client that gets the answer finds what
it has changed on this broker: a topic that was created has its logs.

Source: kafka.server.NodeToControllerChannelManagerImpl, for a node with both roles.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from cordwood.configs.resource import ConfigChange
from cordwood.controller.controller import Controller
from cordwood.controller.host_lookup import look_up_hosts
from cordwood.controller.quotas import hosts_to_look_up
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
from cordwood.metadata.records import has_directories
from cordwood.model.kafka_errors import KafkaError

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
        """Registers the broker; returns its epoch."""
        return await self._ask(lambda: self._controller.register_broker(broker))

    async def unfence_broker(self) -> None:
        """Unfences this broker."""
        await self._ask(self._controller.unfence)

    async def shut_down_broker(self) -> None:
        """Takes this broker out of service at once, as no other change is in progress."""
        self._controller.shut_down_broker()

    async def leave(self) -> None:
        """Takes the broker out of service while the controller serves other brokers."""
        await self._ask(self._controller.shut_down_broker)

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Sequence[CreatedTopic | KafkaError]:
        """Creates topics."""
        return await self._ask(
            lambda: self._controller.create_topics(wanted, validate_only=validate_only)
        )

    async def delete_topics(self, wanted: Sequence[uuid.UUID | str]) -> Sequence[KafkaError | None]:
        """Deletes topics."""
        return await self._ask(lambda: self._controller.delete_topics(wanted))

    async def restore_topic(self, topic: RestoredTopic, prepare: Callable[[], object]) -> None:
        """Restores a deleted topic; `prepare` brings its logs back before the topic exists."""
        await self._ask(lambda: self._controller.restore_topic(topic, prepare))

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Adds partitions."""
        return await self._ask(
            lambda: self._controller.create_partitions(wanted, validate_only=validate_only)
        )

    async def elect_leaders(
        self, wanted: Iterable[tuple[str, int]] | None, *, election_type: int
    ) -> Sequence[ElectionResult]:
        """Elects leaders."""
        return await self._ask(
            lambda: self._controller.elect_leaders(wanted, election_type=election_type)
        )

    async def alter_partition_reassignments(
        self, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> Sequence[KafkaError | None]:
        """Moves partitions to other replicas."""
        return await self._ask(
            lambda: self._controller.alter_partition_reassignments(
                wanted, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes settings."""
        return await self._ask(
            lambda: self._controller.alter_configs(changes, validate_only=validate_only)
        )

    async def alter_client_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes quotas; names of hosts are looked up first, which may take seconds."""
        names = hosts_to_look_up(changes)
        known_hosts = await look_up_hosts(names) if names else frozenset()
        return await self._ask(
            lambda: self._controller.alter_client_quotas(
                changes, known_hosts=known_hosts, validate_only=validate_only
            )
        )

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Sets levels of features."""
        await self._ask(
            lambda: self._controller.update_features(updates, validate_only=validate_only)
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes the registration of a broker."""
        await self._ask(lambda: self._controller.unregister_broker(broker_id))

    async def describe_quorum(self) -> QuorumInfo:
        """Describes the quorum, whose observers are the nodes that follow the metadata log."""
        return replace(self._controller.describe_quorum(), observers=self.observers())

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocates a block of producer ids to this node's broker."""
        controller = self._controller
        return await self._ask(
            lambda: controller.allocate_producer_ids(controller.node_id, controller.broker_epoch)
        )

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[AlteredIsr]:
        """Changes ISRs, for this node's broker."""
        controller = self._controller
        return await self._ask(lambda: controller.alter_partitions(controller.node_id, changes))

    async def assign_directories(self, assigned: Iterable[DirectoryAssignment]) -> None:
        """Records directories, if the metadata version has them."""
        controller = self._controller
        if has_directories(controller.image.metadata_version):
            await self._ask(lambda: controller.assign_directories(controller.node_id, assigned))

    async def directories_failed(self, directories: Collection[uuid.UUID]) -> None:
        """Records offline directories."""
        await self._ask(lambda: self._controller.directories_failed(directories))

    async def _ask(self, operation: Callable[[], T]) -> T:
        def work() -> tuple[T, int]:
            with self._controller.between_changes:
                return operation(), self._controller.image.next_offset

        result, end_offset = await self._run(work)
        await self._published(end_offset)
        return result
