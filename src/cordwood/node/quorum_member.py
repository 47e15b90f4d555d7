"""A broker in a cluster whose controllers are other nodes (process.roles=broker).

Source: kafka.server.BrokerServer, SharedServer (4.3.0); KIP-631, KIP-866.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.client.node_connection import NodeAddress
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.metadata.quorum.follower import QuorumFollower
from cordwood.metadata.quorum.lifecycle import BrokerState
from cordwood.metadata.quorum.membership import QuorumMembership
from cordwood.metadata.quorum.messages import Identity
from cordwood.metadata.quorum.observed_log import ObservedLog
from cordwood.metadata.quorum.observer import QuorumObserver
from cordwood.metadata.quorum.quorum_channel import QuorumChannel
from cordwood.metadata.records import has_cordoned_directories
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.errors import CordwoodError
from cordwood.model.pauses import background
from cordwood.node.cluster_member import ClusterMember
from cordwood.serving.api import Api
from cordwood.serving.forwarding import Forwarding
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.request_errors import UnansweredRequestError
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext

_log = logging.getLogger(__name__)

#: Source: BrokerServer.shutdown.
_LEAVE_TIMEOUT_S: Final = 300.0


class QuorumMember(ClusterMember):
    """A `ClusterMember` that follows the controllers of a quorum."""

    channel: QuorumChannel
    forwarding: Forwarding
    log: ObservedLog

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata_dir: Path,
        cluster_id: str,
        directory_id: UUID,
        log_settings: MetadataLogSettings,
        context: LogContext,
    ) -> None:
        """Opens the metadata log; nothing is sent yet.

        Args:
            settings: of server.properties.
            metadata_dir: the log directory that holds the metadata log.
            cluster_id: of the directories.
            directory_id: of `metadata_dir`.
            log_settings: of the metadata log.
            context: of the metadata log.

        Raises:
            CorruptError, UnsupportedVersionError: the log cannot be read.
            StorageError: the disk returned an error.
        """
        super().__init__(
            settings,
            cluster_id=cluster_id,
            log=ObservedLog(metadata_dir, context=context, settings=log_settings),
            log_settings=log_settings,
            log_context=context,
        )
        self._clock = context.clock
        self._observer = QuorumObserver(
            servers=_servers(settings),
            leader=self.log.leader,
            rng=context.rng,
            retry_backoff_ms=settings.integer("controller.quorum.retry.backoff.ms"),
            voters=_voters(settings),
        )
        self._identity = Identity(
            cluster_id=cluster_id, node_id=settings.node_id, directory_id=directory_id
        )
        # Heartbeats do not wait for a connection on which a client's request waits.
        self._heartbeats, self._controller, forwarding = (self._asker() for _ in range(3))
        self._askers = self._heartbeats, self._controller, forwarding
        # Heartbeats are sent from the start: they know the controller first.
        self.forwarding = Forwarding(forwarding, versions=lambda: self._heartbeats.versions)
        self._membership: QuorumMembership | None = None
        self._follower: QuorumFollower | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_log_open = True
        self._is_leaving = False

    def _asker(self) -> ActiveController:
        """A connection of its own to the active controller."""
        return ActiveController(
            lambda: self._observer.leader_address,
            client_id=str(self._settings.node_id),
            clock=self._clock,
            transports=self.transports,
        )

    @property
    def controller_id(self) -> int:
        """The id of the quorum's leader; -1 if it is not known."""
        return self._observer.leader.leader_id

    @property
    def voter_count(self) -> int:
        """The number of voters: those of the log, or those of controller.quorum.voters."""
        return len(self.log.voters) or len(_voters(self._settings))

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration; -1 before it."""
        return -1 if self._membership is None else self._membership.broker_epoch

    def served(self, apis: Mapping[int, Api[BrokerContext]]) -> Mapping[int, Api[BrokerContext]]:
        """The APIs of a broker; those of the controller are forwarded."""
        return self.forwarding.served(apis)

    def connect(self, loader: MetadataLoader, _configs: EffectiveConfigs, slices: Slices) -> None:
        """Connects the follower of the metadata log; the controllers check settings themselves."""
        self._loader = loader
        self._follower = QuorumFollower(
            self._observer,
            self.log,
            identity=self._identity,
            between_updates=loader.between_updates,
            run=slices.run,
            clock=self._clock,
            request_timeout_ms=self._settings.integer("controller.quorum.request.timeout.ms"),
            transports=self.transports,
        )
        self.channel = QuorumChannel(
            self._controller,
            broker_id=self._settings.node_id,
            broker_epoch=lambda: self.broker_epoch,
            directories_failed=self._directories_failed,
            cordoned_changed=self._cordoned_changed,
        )

    async def join(
        self,
        registration: BrokerRegistration,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        thread: NodeThread,
        fail: Callable[[str], None],
    ) -> int:
        """Registers the broker, and returns its epoch when its metadata has the registration."""
        assert self._follower is not None, "connected"
        assert self._loader is not None, "connected"
        settings, loader = self._settings, self._loader
        membership = self._membership = QuorumMembership(
            registration,
            self._heartbeats,
            cluster_id=self._cluster_id,
            metadata_offset=lambda: loader.published_offset - 1,
            clock=self._clock,
            cordoned=lambda: (
                replicas.logs.cordoned_ids
                if has_cordoned_directories(metadata.image.metadata_version)
                else None
            ),
            heartbeat_interval_ms=settings.integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=settings.integer("broker.session.timeout.ms"),
            registration_timeout_ms=settings.integer("initial.broker.registration.timeout.ms"),
        )
        self._begin_replication(replicas, metadata, thread)
        shrinking = self._remove_lagging(replicas)
        for work in (self._follower.run(), membership.run(), shrinking):
            self._start(work, fail)
        await self._reached(membership, BrokerState.RECOVERY)
        return membership.broker_epoch

    async def unfence(self) -> None:
        """Asks the controller to unfence the broker, and waits until it does."""
        assert self._membership is not None, "joined"
        self._membership.lifecycle.ready_to_unfence()
        await self._reached(self._membership, BrokerState.RUNNING)
        self.log.take_reserve()

    async def _reached(self, membership: QuorumMembership, state: BrokerState) -> None:
        """Returns when the broker is in a state; raises the error of a task that has ended."""
        reached = asyncio.ensure_future(membership.reached(state))
        try:
            done, _ = await asyncio.wait(
                [reached, *self._tasks], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            reached.cancel()
        for each in done:
            await each

    def write_snapshot_if_due(self, snapshots: SnapshotGenerator) -> None:
        """Writes a snapshot if one is due; no record is applied meanwhile."""
        assert self._loader is not None, "connected"
        with self._loader.between_updates:
            self.log.take_reserve()
            with background():
                snapshots.run_if_due()

    async def leave(self) -> None:
        """Asks for a controlled shutdown; returns when the controller has moved the leaders."""
        self._is_leaving = True
        membership = self._membership
        if membership is None:
            return
        membership.lifecycle.begin_shutdown()
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._reached(membership, BrokerState.SHUTTING_DOWN)
        except CordwoodError as error:
            _log.warning("The controller is not asked to move the leaders: %s", error)
        except TimeoutError:
            _log.warning("The controller has not moved the leaders of this broker in time")
            membership.lifecycle.end()
        await self._end_replication()

    async def close(self, snapshots: SnapshotGenerator) -> None:
        """Ends requests to the controllers, and leaves the log for the next start."""
        assert self._loader is not None, "connected"
        self._is_leaving = True
        self._loader.close()
        if self._membership is not None:
            self._membership.lifecycle.end()
        await self._end_replication()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        for asker in self._askers:
            asker.close()
        self._loader.catch_up()
        snapshots.leave_for_next_start()
        self._is_log_open = False
        self.log.close()

    def abandon(self) -> None:
        """Closes the log as it is."""
        if self._is_log_open:
            self._is_log_open = False
            self.log.abandon()

    def _start(
        self, work: Coroutine[Any, Any, None], fail: Callable[[str], None]
    ) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            # While a start is given up, nothing is answered any more.
            is_stopping = self._is_leaving or isinstance(error, UnansweredRequestError)
            if error is not None and not is_stopping:
                fail(f"Shutdown broker because it cannot be in its cluster: {error}")

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        self._tasks.append(task)
        return task

    async def _directories_failed(self, directories: Collection[UUID]) -> None:
        await self._joined().directories_failed(directories)

    def _cordoned_changed(self) -> None:
        self._joined().lifecycle.cordoned_changed()

    def _joined(self) -> QuorumMembership:
        assert self._membership is not None, "reports begin when the broker has joined"
        return self._membership


def _voters(settings: BrokerSettings) -> dict[int, NodeAddress]:
    found = {}
    for each in settings.strings("controller.quorum.voters"):
        number, _, address = each.partition("@")
        found[int(number)] = _address(address, settings)
    return found


def _servers(settings: BrokerSettings) -> Sequence[NodeAddress]:
    given = settings.strings("controller.quorum.bootstrap.servers")
    return [_address(each, settings) for each in given] or list(_voters(settings).values())


def _address(text: str, settings: BrokerSettings) -> NodeAddress:
    host, _, port = text.rpartition(":")
    return NodeAddress(host.strip("[]"), int(port), settings.controller_protocol)
