"""A broker's role in its cluster: where its metadata and its controller are, and its replication.

Source: kafka.server.KafkaRaftServer, SharedServer, BrokerServer (4.3.0); KIP-631.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.replication.fetch_session import FetchLimits
from cordwood.broker.replication.isr_changes import IsrChanges
from cordwood.broker.replication.replication import FollowerSettings, ImageBrokers, Replication
from cordwood.client.transport import Transports
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import AdminChannel, ControllerChannel
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.serving.api import Api
from cordwood.serving.forwarding import Forwarding
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext


class ClusterMember(ABC):
    """A broker in its cluster; all belongs to the event loop's thread.

    A start calls `connect`, `join` and `unfence`; a stop `leave`, `close` and `abandon`.

    Attributes:
        log: the metadata log.
        log_settings: its settings.
        log_context: its clock, file system and failed directories.
        channel: sends this broker's requests to the active controller; after `connect`.
        admin: carries out clients' requests to the controller; None if it is on another node.
        forwarding: sends such requests to a controller on another node; None without one.
        transports: of the connections to other nodes.
    """

    channel: ControllerChannel
    admin: AdminChannel | None = None
    forwarding: Forwarding | None = None

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        cluster_id: str,
        log: MetadataLog,
        log_settings: MetadataLogSettings,
        log_context: LogContext,
    ) -> None:
        """Takes the log, which `close` or `abandon` closes; nothing is sent yet.

        Args:
            settings: of server.properties.
            cluster_id: of the directories.
            log: the metadata log; open.
            log_settings: its settings.
            log_context: its context.
        """
        self._settings = settings
        self._cluster_id = cluster_id
        self.log = log
        self.log_settings = log_settings
        self.log_context = log_context
        self.transports = Transports(settings.given)
        self._loader: MetadataLoader | None = None
        self._replication: Replication | None = None

    @property
    @abstractmethod
    def controller_id(self) -> int:
        """The node id of the active controller; -1 if it is not known."""

    @property
    @abstractmethod
    def voter_count(self) -> int:
        """The number of voters of the metadata quorum."""

    @property
    @abstractmethod
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration; -1 before it."""

    def served(self, apis: Mapping[int, Api[BrokerContext]]) -> Mapping[int, Api[BrokerContext]]:
        """The APIs of a broker, those of the controller answered as this role does."""
        return apis

    @abstractmethod
    def connect(self, loader: MetadataLoader, configs: EffectiveConfigs, slices: Slices) -> None:
        """Connects the log's loader, and what checks settings."""

    @abstractmethod
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

    @abstractmethod
    async def unfence(self) -> None:
        """Lets the broker lead partitions; to be called when it can serve requests."""

    @abstractmethod
    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """Writes a snapshot of the metadata, in slices, if one is due."""

    @abstractmethod
    async def leave(self) -> None:
        """Takes the broker out of service, while it still serves: a controlled shutdown."""

    @abstractmethod
    async def close(self, snapshots: SnapshotGenerator) -> None:
        """Leaves the metadata log for the next start."""

    @abstractmethod
    def abandon(self) -> None:
        """Closes what is still open, of a start that has failed, too."""

    # ---- replication

    def _begin_replication(
        self, replicas: ReplicaManager, metadata: MetadataCache, thread: NodeThread
    ) -> None:
        """Gives `replicas` what fetches for their partitions, and proposes ISRs."""
        settings = self._settings
        self._replication = replicas.followed.replication = Replication(
            IsrChanges(self.channel.alter_partitions, answered=replicas.isr_answered),
            ImageBrokers(metadata),
            node_id=settings.node_id,
            broker_epoch=lambda: self.broker_epoch,
            settings=FollowerSettings(
                listener=settings.inter_broker_listener,
                limits=FetchLimits(
                    wait_max_ms=settings.integer("replica.fetch.wait.max.ms"),
                    min_bytes=settings.integer("replica.fetch.min.bytes"),
                    response_max_bytes=settings.integer("replica.fetch.response.max.bytes"),
                    partition_max_bytes=settings.integer("replica.fetch.max.bytes"),
                ),
                backoff_ms=settings.integer("replica.fetch.backoff.ms"),
                socket_timeout_ms=settings.integer("replica.socket.timeout.ms"),
                transports=self.transports,
            ),
            thread=thread,
            run=thread.slices.run,
            changed=replicas.followed.fetched,
            throttle=replicas.throttles.follower,
            full=replicas.follower_full,
        )

    async def _remove_lagging(self, replicas: ReplicaManager) -> None:
        """Takes followers that lag out of ISRs, for ever.

        Source: ReplicaManager.startup: isr-expiration.
        """
        period_s = self._settings.replica_lag_time_max_ms / 2000
        while True:
            await asyncio.sleep(period_s)
            replicas.remove_lagging()

    async def _end_replication(self) -> None:
        replication, self._replication = self._replication, None
        if replication is not None:
            await replication.close()
