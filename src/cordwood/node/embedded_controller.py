"""A broker and the only controller in one process (process.roles=broker,controller).

Source: kafka.server.KafkaRaftServer, ControllerServer (4.3.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from cordwood.broker.forwarding import Forwarding
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.replication.replication import Replication
from cordwood.broker.request_context import BrokerContext
from cordwood.configs.service import ConfigService
from cordwood.configs.settings import BrokerSettings
from cordwood.controller.controller import Controller
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.pauses import background
from cordwood.node.controller_server import ControllerServer
from cordwood.node.replicating import begin_replication, remove_lagging
from cordwood.serving.api import Api
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.server import Server
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext


class EmbeddedController:
    """A `ClusterMember` that has its cluster's controller in its process."""

    channel: LocalControllerChannel
    _configs: ConfigService

    def __init__(
        self,
        controller: Controller,
        *,
        settings: BrokerSettings,
        cluster_id: str,
        server: Server | None,
    ) -> None:
        """Nothing is served yet.

        Args:
            controller: open, and closed by `close` or `abandon`.
            settings: of server.properties.
            cluster_id: of the directories.
            server: for the controllers' listeners, bound; None without one: then no other broker
                can be in the cluster.
        """
        self._controller = controller
        self._settings = settings
        self._cluster_id = cluster_id
        self._server = server
        self._loader: MetadataLoader | None = None
        self._serving: ControllerServer | None = None
        self._replication: Replication | None = None
        self._shrinking: asyncio.Task[None] | None = None

    @property
    def log(self) -> MetadataLog:
        """As `ClusterMember`."""
        return self._controller.log

    @property
    def log_settings(self) -> MetadataLogSettings:
        """As `ClusterMember`."""
        return self._controller.settings

    @property
    def log_context(self) -> LogContext:
        """As `ClusterMember`."""
        return self._controller.context

    @property
    def controller_id(self) -> int:
        """As `ClusterMember`."""
        return self._controller.node_id

    @property
    def voter_count(self) -> int:
        """As `ClusterMember`."""
        return 1

    @property
    def admin(self) -> LocalControllerChannel:
        """As `ClusterMember`."""
        return self.channel

    @property
    def forwarding(self) -> Forwarding | None:
        """As `ClusterMember`."""
        return None

    def served(self, apis: Mapping[int, Api[BrokerContext]]) -> Mapping[int, Api[BrokerContext]]:
        """As `ClusterMember`."""
        return apis

    def connect(self, loader: MetadataLoader, configs: ConfigService, slices: Slices) -> None:
        """As `ClusterMember`."""
        self._controller.check_topic_configs = configs.require_topic_settings
        self._configs = configs
        self._loader = loader
        self.channel = LocalControllerChannel(
            self._controller, run=slices.run, published=loader.published
        )

    async def join(
        self,
        registration: BrokerRegistration,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        thread: NodeThread,
        _fail: Callable[[str], None],
    ) -> int:
        """As `ClusterMember`; from now on other brokers are served."""
        controller, settings = self._controller, self._settings
        controller.check_topic_deletion = replicas.logs.why_not_to_delete
        epoch = await self.channel.register_broker(registration)
        if self._server is not None:
            self._serving = ControllerServer(
                controller,
                self.channel,
                settings=settings,
                cluster_id=self._cluster_id,
                configs=self._configs,
                metadata=metadata,
                thread=thread,
                endpoints=controller.endpoints,
            )
            self._serving.start(self._server)
            self._replication = begin_replication(
                settings, self.channel, replicas, metadata, thread, lambda: controller.broker_epoch
            )
            self._shrinking = thread.loop.create_task(remove_lagging(settings, replicas))
        return epoch

    async def unfence(self) -> None:
        """As `ClusterMember`."""
        await self.channel.unfence_broker()

    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """As `ClusterMember`: nothing is appended to the log while old segments are removed."""
        with self._controller.between_changes:
            self._controller.take_reserve()
            with background():
                snapshots.run_if_due()

    async def leave(self) -> None:
        """As `ClusterMember`; the other brokers lead what they can."""
        if self._serving is not None:
            await self.channel.leave()
            await self._serving.all_have(self._controller.image)
        await self._stop_replicating()

    async def _stop_replicating(self) -> None:
        if self._shrinking is not None:
            self._shrinking.cancel()
        replication, self._replication = self._replication, None
        if replication is not None:
            await replication.close()

    async def close(self, snapshots: SnapshotGenerator) -> None:
        """As `ClusterMember`."""
        controller, loader = self._controller, self._loader
        assert loader is not None, "connected"
        await self._stop_replicating()
        if self._serving is not None and self._server is not None:
            self._server.stop()
            await self._serving.close()
        loader.close()
        await self.channel.shut_down_broker()
        if controller.is_log_open:
            loader.catch_up()
            snapshots.leave_for_next_start()
        controller.close()

    def abandon(self) -> None:
        """As `ClusterMember`."""
        self._controller.close()
