"""The interface of a node's role in its cluster: where the metadata and the controller are.

Source: kafka.server.KafkaRaftServer, SharedServer (4.3.0); KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from cordwood.broker.forwarding import Forwarding
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.request_context import BrokerContext
from cordwood.configs.service import ConfigService
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import AdminChannel, ControllerChannel
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.serving.api import Api
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext


class ClusterMember(Protocol):
    """A node in its cluster; all belongs to the event loop's thread.

    A start calls `connect`, `join` and `unfence`; a stop `leave`, `close` and `abandon`.
    """

    @property
    def log(self) -> MetadataLog:
        """The metadata log."""

    @property
    def log_settings(self) -> MetadataLogSettings:
        """Its settings."""

    @property
    def log_context(self) -> LogContext:
        """Its clock, file system and failed directories."""

    @property
    def controller_id(self) -> int:
        """The node id of the active controller; -1 if it is not known."""

    @property
    def voter_count(self) -> int:
        """The number of voters of the metadata quorum."""

    @property
    def channel(self) -> ControllerChannel:
        """Sends this broker's requests to the active controller; after `connect`."""

    @property
    def admin(self) -> AdminChannel | None:
        """Carries out clients' requests to the controller; None if it is on another node."""

    @property
    def forwarding(self) -> Forwarding | None:
        """Sends such requests to a controller on another node; None without one."""

    def served(self, apis: Mapping[int, Api[BrokerContext]]) -> Mapping[int, Api[BrokerContext]]:
        """The APIs of a broker, those of the controller answered as this role does."""

    def connect(self, loader: MetadataLoader, configs: ConfigService, slices: Slices) -> None:
        """Connects the log's loader, and what checks settings."""

    async def join(
        self,
        registration: BrokerRegistration,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        thread: NodeThread,
        fail: Callable[[str], None],
    ) -> int:
        """Registers the broker, and returns its epoch when the metadata has the registration.

        Args:
            registration: of the broker.
            replicas: get what replicates their partitions.
            metadata: has the other brokers.
            thread: the event loop's.
            fail: called with the reason when the node must end.

        Raises:
            KafkaError: the controller refuses the registration.
        """

    async def unfence(self) -> None:
        """Has the broker lead partitions; to be called when it can serve requests."""

    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """Writes a snapshot of the metadata, in slices, if one is due."""

    async def leave(self) -> None:
        """Takes the broker out of service, while it still serves: a controlled shutdown."""

    async def close(self, snapshots: SnapshotGenerator) -> None:
        """Leaves the metadata log for the next start."""

    def abandon(self) -> None:
        """Closes what is still open, of a start that has failed, too."""
