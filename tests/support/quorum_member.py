"""A member of a real Kafka's cluster: an observer of its metadata, and a broker that is alive."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cordwood.client.node_connection import NodeAddress
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.metadata.quorum.follower import QuorumFollower
from cordwood.metadata.quorum.lifecycle import BrokerState
from cordwood.metadata.quorum.membership import QuorumMembership
from cordwood.metadata.quorum.messages import Identity
from cordwood.metadata.quorum.observed_log import ObservedLog
from cordwood.metadata.quorum.observer import QuorumObserver
from cordwood.metadata.quorum.quorum_channel import QuorumChannel
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.model.clock import SystemClock
from cordwood.model.rng import SystemRng
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext
from support.kafka import CLUSTER_ID
from support.kafka_cluster import KafkaController
from support.requests import request_of

WAIT_S = 60
NODE_ID = 7


class Observer:
    """An observer of a controller: its log, its loader, and the last image."""

    def __init__(self, log_dir: Path, controller: KafkaController, cluster_id: str) -> None:
        self.image = MetadataImage()
        self.is_first = True
        clock = SystemClock()
        self.log = ObservedLog(
            log_dir, context=LogContext(clock=clock), settings=MetadataLogSettings()
        )
        self.slices = Slices(asyncio.get_running_loop())
        loader = MetadataLoader(self.log, schedule=self.slices.run)
        loader.install(self)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        observer = QuorumObserver(
            servers=[NodeAddress("127.0.0.1", controller.port)],
            leader=self.log.leader,
            rng=SystemRng(),
        )
        self.follower = QuorumFollower(
            observer,
            self.log,
            identity=Identity(cluster_id=cluster_id, node_id=NODE_ID, directory_id=uuid.uuid4()),
            between_updates=loader.between_updates,
            run=self.slices.run,
            clock=clock,
        )

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Reports the decisions of an update as events."""
        self.image = update.after
        self._loop.call_soon_threadsafe(self._changed.set)

    async def has_topic(self, name: str) -> None:
        """Returns when the image has a topic."""
        async with asyncio.timeout(WAIT_S):
            while name not in self.image.topics:
                await self._changed.wait()
                self._changed.clear()


@asynccontextmanager
async def observing(
    log_dir: Path, controller: KafkaController, cluster_id: str = CLUSTER_ID
) -> AsyncIterator[Observer]:
    """An observer that fetches meanwhile."""
    observer = Observer(log_dir, controller, cluster_id)
    task = asyncio.create_task(observer.follower.run())
    try:
        yield observer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        observer.log.close()


class QuorumMember:
    """A broker that is registered and sends heartbeats; it serves no requests."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.controller = ActiveController(
            lambda: observer.follower.leader_address, client_id=str(NODE_ID), clock=SystemClock()
        )
        self.membership = QuorumMembership(
            BrokerRegistration(
                broker_id=NODE_ID,
                incarnation_id=uuid.uuid4(),
                endpoints=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9),),
                log_dirs=(uuid.uuid4(),),
                features=KNOWN_FEATURES,
            ),
            self.controller,
            cluster_id=CLUSTER_ID,
            metadata_offset=lambda: observer.image.offset,
            clock=SystemClock(),
            heartbeat_interval_ms=200,
        )
        self.channel = QuorumChannel(
            self.controller,
            broker_id=NODE_ID,
            broker_epoch=lambda: self.membership.broker_epoch,
            directories_failed=self.membership.directories_failed,
            cordoned_changed=self.membership.lifecycle.cordoned_changed,
        )

    async def create_topic(self, name: str, *replicas: int, **configs: str) -> None:
        """Creates a topic of one partition; by the controller, as no client can ask this broker."""
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": replicas}],
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        created = await self.controller.ask(
            request_of("create_topics", {"topics": [topic], "timeout_ms": 30_000}),
            timeout_ms=30_000,
        )
        assert [each.error_code for each in created.topics] == [0], created
        await self.observer.has_topic(name)


@asynccontextmanager
async def joined(log_dir: Path, controller: KafkaController) -> AsyncIterator[QuorumMember]:
    """A member that runs, and leaves the cluster in the end."""
    async with observing(log_dir, controller) as observer:
        member = QuorumMember(observer)
        living = asyncio.create_task(member.membership.run())
        async with asyncio.timeout(WAIT_S):
            await member.membership.reached(BrokerState.RECOVERY)
            member.membership.lifecycle.ready_to_unfence()
            await member.membership.reached(BrokerState.RUNNING)
        try:
            yield member
        finally:
            member.membership.lifecycle.begin_shutdown()
            async with asyncio.timeout(WAIT_S):
                await living
