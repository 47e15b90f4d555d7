"""A broker and the only controller in one process (process.roles=broker,controller).

Source: kafka.server.KafkaRaftServer, ControllerServer (4.3.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from cordwood.broker.replica_manager import ReplicaManager
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource_checks import require_topic
from cordwood.configs.server_properties import BrokerSettings
from cordwood.controller.controller import Controller
from cordwood.controller.controller_server import ControllerServer
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.node.cluster_member import ClusterMember
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.server import Server
from cordwood.serving.slices import Slices


class EmbeddedController(ClusterMember):
    """A `ClusterMember` that has its cluster's controller in its process."""

    channel: LocalControllerChannel
    _configs: EffectiveConfigs

    def __init__(
        self,
        controller: Controller,
        *,
        settings: BrokerSettings,
        cluster_id: str,
        server: Server | None,
    ) -> None:
        """Creates a member whose controller does not serve yet.

        Args:
            controller: open, and closed by `close` or `abandon`.
            settings: of server.properties.
            cluster_id: of the directories.
            server: for the controllers' listeners, bound; None without one: then no other broker
                can be in the cluster.
        """
        super().__init__(
            settings,
            cluster_id=cluster_id,
            log=controller.log,
            log_settings=controller.settings,
            log_context=controller.context,
        )
        self._controller = controller
        self._server = server
        self._serving: ControllerServer | None = None
        self._shrinking: asyncio.Task[None] | None = None

    @property
    def controller_id(self) -> int:
        """The id of this node."""
        return self._controller.node_id

    @property
    def voter_count(self) -> int:
        """One: this node is the only voter."""
        return 1

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration; -1 before it."""
        return self._controller.broker_epoch

    def connect(self, loader: MetadataLoader, configs: EffectiveConfigs, slices: Slices) -> None:
        """Connects the controller's channel to the loader, and its check of topic settings."""
        self._controller.check_topic_configs = partial(require_topic, configs)
        self._configs = configs
        self._loader = loader
        self.admin = self.channel = LocalControllerChannel(
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
        """Registers this node's broker, then serves other brokers."""
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
            self._begin_replication(replicas, metadata, thread)
            self._shrinking = thread.loop.create_task(self._remove_lagging(replicas))
        return epoch

    async def unfence(self) -> None:
        """Unfences the broker at its controller."""
        await self.channel.unfence_broker()

    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """Writes a snapshot if one is due; nothing is appended meanwhile."""
        self._controller.write_snapshot_if_due(snapshots)

    async def leave(self) -> None:
        """Has the other brokers lead what they can, and waits until they have that metadata."""
        if self._serving is not None:
            await self.channel.leave()
            await self._serving.all_have(self._controller.image)
        await self._end_replication()

    async def _end_replication(self) -> None:
        if self._shrinking is not None:
            self._shrinking.cancel()
        await super()._end_replication()

    async def close(self, snapshots: SnapshotGenerator) -> None:
        """Ends replication and the controller's server, and leaves the log for the next start."""
        controller, loader = self._controller, self._loader
        assert loader is not None, "connected"
        await self._end_replication()
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
        """Closes the controller."""
        self._controller.close()
