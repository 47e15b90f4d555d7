"""The interfaces through which a broker sends requests to the active controller.

The controller runs in this process or on another node. A request is answered when its change is
committed, or with an error. Whether this broker has applied the change by then depends on the
channel: the classes that implement it say so.

Every method belongs to the event loop's thread, and raises a `KafkaError` if the controller refuses
a request as a whole or cannot write it; nothing has changed then. A sequence of results is in the
order of the request's items, with None or an error for each.

Source: org.apache.kafka.server.common.NodeToControllerChannelManager,
org.apache.kafka.controller.Controller, Kafka 4.3; KIP-500, KIP-590.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cordwood.configs.resource import ConfigChange
from cordwood.metadata.controller_requests import (
    AlteredIsr,
    CreatedTopic,
    DirectoryAssignment,
    ElectionResult,
    FeatureUpdate,
    IsrChange,
    NewPartitions,
    NewTopic,
    QuorumInfo,
    QuotaChange,
    Reassignment,
)
from cordwood.model.kafka_errors import KafkaError


class ControllerChannel(Protocol):
    """Requests of the broker itself."""

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Sequence[CreatedTopic | KafkaError]:
        """Creates topics, each name once; with `validate_only` they are only checked."""

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocates a block of producer ids for this broker: (first id, count)."""

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[AlteredIsr]:
        """Changes the ISRs of partitions that this broker leads."""

    async def assign_directories(self, assigned: Iterable[DirectoryAssignment]) -> None:
        """Records in which directory this broker has partitions."""

    async def directories_failed(self, directories: Collection[uuid.UUID]) -> None:
        """Records which directories of this broker are offline."""

    async def directories_cordoned(self, directories: Collection[uuid.UUID]) -> None:
        """Records which directories of this broker get no new partitions, and no others."""


class AdminChannel(ControllerChannel, Protocol):
    """Requests of clients, too: those to a controller in this process.

    A broker whose controller is on another node forwards them (`serving.forwarding`).
    """

    async def delete_topics(self, wanted: Sequence[uuid.UUID | str]) -> Sequence[KafkaError | None]:
        """Deletes topics by id or name."""

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Adds partitions to topics."""

    async def elect_leaders(
        self, wanted: Iterable[tuple[str, int]] | None, *, election_type: int
    ) -> Sequence[ElectionResult]:
        """Elects preferred leaders (type 0), or any where there is none (1); None for all."""

    async def alter_partition_reassignments(
        self, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> Sequence[KafkaError | None]:
        """Moves partitions to other replicas."""

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes settings of resources."""

    async def alter_client_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Sequence[KafkaError | None]:
        """Changes quotas of entities."""

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Sets levels of features, all or none."""

    async def unregister_broker(self, broker_id: int) -> None:
        """Removes the registration of a broker."""

    async def unregister_controller(self, controller_id: int) -> None:
        """Removes the registration of a controller that is not the active one."""

    async def describe_quorum(self) -> QuorumInfo:
        """Describes the voters of the metadata log, its leader and its end."""
