"""A broker of the cluster: the parts of `node.node.Node`, connected as there.

Real: the log manager with its logs on a simulated disk, the membership of the quorum with the
observer and its log, the metadata publisher, the replica manager with leaders, followers, fetchers
and ISR proposals, the coordinators of groups and of transactions with their markers, and the
handlers of all APIs. Simulated: sockets, threads, disk, time. Nothing is compacted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from cordwood.broker.auto_topic_creation import AutoTopicCreation
from cordwood.broker.broker import Broker
from cordwood.broker.broker_thread import BrokerThread
from cordwood.broker.configs.service import ConfigService
from cordwood.broker.fetch_sessions import FetchSessionCache
from cordwood.broker.group_cluster import GroupCluster
from cordwood.broker.group_metadata_log import GroupMetadataLog
from cordwood.broker.handlers import served_apis
from cordwood.broker.metadata_publisher import BrokerMetadataPublisher
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.peers import Peers
from cordwood.broker.producer_ids import ProducerIds
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.replication.replication import ImageBrokers
from cordwood.broker.request_context import RequestContext
from cordwood.broker.transaction_parts import TransactionParts
from cordwood.cleanup.cleaner_manager import CleanerManager
from cordwood.cleanup.cleaner_settings import CleanerSettings
from cordwood.cleanup.log_cleaner import LogCleaner
from cordwood.cleanup.paused_changes import PausedMove, truncate_fully_paused, truncate_paused
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.formatting import format_directories, read_previous_broker_epoch
from cordwood.metadata.image import Endpoint
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.clock import Clock
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.uuids import fresh_uuid
from cordwood.network.dispatch import Dispatcher
from cordwood.node.quorum_member import QuorumMember
from cordwood.storage.failures import FailureChannel
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.scheduler import Scheduler
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.simulation.event_loop import Process, SimulatedLoop
from support.simulation.network import Network
from support.simulation.serving import SimulatedServer, Slices
from support.simulation.settings import (
    BROKER_PORT,
    CLUSTER_ID,
    DATA,
    broker_name,
    broker_settings,
)
from support.simulation.watch import Watch, WatchedReplicas
from support.watched import SeededRng

APIS = served_apis()
SETTINGS = {broker_id: broker_settings(broker_id) for broker_id in (1, 2, 3)}
_RUN_DUE_S = 0.05
_SEGMENT_BYTES = 8192
#: As `node.node` has it, but smaller.
_RESERVE_BYTES = 64 * 1024


def format_broker(fs: SimulatedFileSystem, broker_id: int, clock: Clock, rng: SeededRng) -> None:
    """Formats a broker's disk."""
    format_directories(
        [DATA],
        node_id=broker_id,
        cluster_id=CLUSTER_ID,
        clock=clock,
        controller_endpoints=[],
        has_dynamic_voters=False,
        rng=rng,
        fs=fs,
    )


class BrokerProcess:
    """One life of a broker."""

    def __init__(
        self,
        broker_id: int,
        loop: SimulatedLoop,
        network: Network,
        fs: SimulatedFileSystem,
        clock: Clock,
        rng: SeededRng,
        watch: Watch,
    ) -> None:
        """Starts nothing yet; `watch` sees what it leads."""
        self.broker_id = broker_id
        self._watch = watch
        self.settings = SETTINGS[broker_id]
        self.process = Process(broker_name(broker_id))
        self.fs = fs
        self._loop = loop
        self._network = network
        self._clock = clock
        self._rng = rng
        #: Whether it serves clients.
        self.is_serving = False
        self.failure: str | None = None
        self.broker: Broker
        self.logs: LogManager
        self.member: QuorumMember | None = None

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration; -1 without one."""
        return -1 if self.member is None else self.member.broker_epoch

    # ---- start

    async def start(self) -> None:
        """Joins the cluster, and serves when it returns. For the context of its process."""
        settings, loop, clock = self.settings, self._loop, self._clock
        directory_ids = format_directories(
            [DATA],
            node_id=self.broker_id,
            cluster_id=CLUSTER_ID,
            clock=clock,
            controller_endpoints=[],
            has_dynamic_voters=False,
            fs=self.fs,
        )
        failures = FailureChannel(clock)
        failures.subscribe(self._directory_failed)
        previous_epoch = read_previous_broker_epoch([DATA], fs=self.fs)
        logs = self.logs = self._open_logs(failures)
        logs.broker_epoch = previous_epoch
        slices = Slices(loop)
        configs = self._configs = SmallSegments(settings)
        member = self.member = QuorumMember(
            settings,
            metadata_dir=DATA,
            cluster_id=CLUSTER_ID,
            directory_id=directory_ids[0],
            log_settings=MetadataLogSettings(reserve_bytes=_RESERVE_BYTES),
            context=LogContext(
                clock=clock,
                rng=self._rng,
                resources=ResourceCache(fs=self.fs),
                failures=failures,
            ),
        )
        metadata = self._load_metadata(member, configs, slices)
        member.connect(self.loader, configs, slices)  # type: ignore[arg-type]  # as real ones
        thread = BrokerThread(
            loop,
            slices=slices,  # type: ignore[arg-type]  # as real ones
            clock=clock,
            scheduler=logs.context.scheduler,
        )
        broker = self.broker = self._make_broker(member, metadata, thread)
        logs.defaults = configs.log_config("")
        registration = BrokerRegistration(
            broker_id=self.broker_id,
            incarnation_id=fresh_uuid(self._rng),
            endpoints=(
                Endpoint(name="PLAINTEXT", host=broker_name(self.broker_id), port=BROKER_PORT),
            ),
            log_dirs=tuple(directory_ids),
            previous_broker_epoch=previous_epoch,
        )
        logs.broker_epoch = await member.join(
            registration, broker.replicas, metadata, thread, self._fail
        )
        logs.load(is_stray=self._is_stray)
        self.loader.install(self._start_parts(broker))
        await member.unfence()
        self._serve(broker, thread)
        self.is_serving = True

    def _open_logs(self, failures: FailureChannel) -> LogManager:
        settings = self.settings
        context = LogContext(
            clock=self._clock,
            rng=self._rng,
            resources=ResourceCache(fs=self.fs),
            scheduler=Scheduler(self._clock, catch_up=False),
            failures=failures,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            max_transaction_timeout_ms=settings.transaction_max_timeout_ms,
            verify_transactions=settings.transaction_partition_verification_enable,
        )
        return LogManager(
            [DATA],
            broker=settings.broker_config,
            topic_config=self._topic_config,
            context=context,
        )

    def _topic_config(self, topic: str) -> LogConfig:
        return self._configs.log_config(topic)

    def _load_metadata(
        self, member: QuorumMember, configs: ConfigService, slices: Slices
    ) -> MetadataCache:
        self.loader = MetadataLoader(member.log, schedule=slices.run)
        self._snapshots = SnapshotGenerator(
            member.log, settings=member.log_settings, context=member.log_context
        )
        metadata = MetadataCache(lambda: member.log.kraft_version)
        self.loader.install(metadata)
        self.loader.install(configs)
        self.loader.install(self._snapshots)
        self.loader.catch_up()
        return metadata

    def _make_broker(
        self, member: QuorumMember, metadata: MetadataCache, thread: BrokerThread
    ) -> Broker:
        settings, logs = self.settings, self.logs
        metrics = BrokerMetrics()
        self._cleaner = CleanerManager(logs)
        replicas = WatchedReplicas(
            self.process,
            self._watch,
            node_id=self.broker_id,
            logs=logs,
            metadata=metadata,
            controller=member.channel,
            thread=thread,
            settings=settings,
            metrics=metrics,
            begin_move=lambda partition, to: PausedMove(self._cleaner, partition, to),
            truncate=lambda partition, offset, is_wanted: truncate_paused(
                self._cleaner, {partition: offset}, is_wanted=is_wanted
            ),
            start_at=lambda partition, offset, is_wanted: truncate_fully_paused(
                self._cleaner, partition, offset, is_wanted=is_wanted
            ),
        )
        groups = self._make_groups(replicas, metadata, thread)
        peers = Peers(
            ImageBrokers(metadata),
            thread,
            node_id=self.broker_id,
            listener=settings.inter_broker_listener,
            timeout_ms=settings.integer("request.timeout.ms"),
        )
        parts = TransactionParts.of(
            settings,
            replicas,
            groups,
            metadata,
            ProducerIds(member.channel, thread),
            thread,
            peers,
        )
        return Broker(
            node_id=self.broker_id,
            cluster_id=CLUSTER_ID,
            thread=thread,
            settings=settings,
            configs=self._configs,
            metadata=metadata,
            admin=member.admin,
            forwarding=member.forwarding,
            controller_id=lambda: member.controller_id,
            voter_count=lambda: member.voter_count,
            replicas=replicas,
            groups=groups,
            transactions=parts.coordinator,
            transaction_partitions=parts.partitions,
            verification=parts.verification,
            markers=parts.markers,
            topic_creation=AutoTopicCreation(member.channel, settings),
            fetch_sessions=FetchSessionCache(1000, self._clock, self._rng),
            metrics=metrics,
            api_versions={key: (api.min_version, api.max_version) for key, api in APIS.items()},
        )

    def _make_groups(
        self, replicas: ReplicaManager, metadata: MetadataCache, thread: BrokerThread
    ) -> GroupCoordinator:
        settings = GroupSettings.of(self.settings.all)
        groups = GroupCoordinator(
            GroupMetadataLog(replicas, metadata, settings.topic_codec),
            thread,
            settings,
            GroupCluster(metadata, self._configs.own_group_integer),
            self._rng,
        )
        replicas.listen(GROUP_METADATA_TOPIC, groups.on_high_watermark)
        return groups

    def _is_stray(self, log: PartitionLog) -> bool:
        topic = self.broker.metadata.image.topics.get(log.topic_partition.topic)
        return topic is None or log.topic_partition.partition not in topic.partitions

    def _start_parts(self, broker: Broker) -> BrokerMetadataPublisher:
        logs = broker.replicas.logs
        cleaner = LogCleaner(
            logs,
            self._cleaner,
            _NoEngine(),  # type: ignore[arg-type]  # it is never started
            self._clock,
            CleanerSettings.of(logs.broker),
        )
        logs.start_tasks()
        self._loop.create_task(self._run_due())
        broker.groups.start()
        broker.transactions.start()
        return BrokerMetadataPublisher(
            replicas=broker.replicas,
            metadata=broker.metadata,
            groups=broker.groups,
            transactions=broker.transactions,
            configs=broker.configs,
            cleaner=cleaner,
            metrics=broker.metrics,
            thread=broker.thread,
            between_updates=self.loader.between_updates,
        )

    async def _run_due(self) -> None:
        scheduler = self.logs.context.scheduler
        while True:
            await asyncio.sleep(_RUN_DUE_S)
            scheduler.run_due()

    def _serve(self, broker: Broker, thread: BrokerThread) -> None:
        assert self.member is not None, "started"
        dispatcher: Dispatcher[Any] = Dispatcher(
            self.member.served(APIS),
            context_of=partial(RequestContext, broker),
            slices=thread.slices,
            turns=thread.turns,
            request_done=broker.metrics.request_done,
            monotonic_s=self._clock.monotonic_s,
        )
        server = SimulatedServer(self._network, self.process, ("PLAINTEXT", BROKER_PORT))
        server.start(self._loop, dispatcher.answer)
        thread.read_input_with(server.after_input)

    # ---- end

    async def stop(self) -> None:
        """A controlled shutdown, which leaves the mark of a clean stop."""
        member = self.member
        assert member is not None, "started"
        self.is_serving = False
        await member.leave()
        self._network.stop_listening(self.process)
        self.broker.replicas.directory_reports.close()
        for end in (self.broker.transactions.close, self.broker.groups.close):
            end()
        # As in `StopSequence`: what fails, as on a full disk, does not keep the rest from ending.
        with suppress(CordwoodError, OSError):
            await member.close(self._snapshots)
        member.abandon()
        self.logs.shutdown()

    def _directory_failed(self, _log_dir: object, reason: str) -> None:
        self._fail(reason)

    def _fail(self, why: str) -> None:
        """It cannot serve any more: who has started it ends it."""
        if self.failure is None:
            self.failure = why


class SmallSegments(ConfigService):
    """The settings of a broker; segments are smaller than Kafka allows, so that logs roll."""

    def log_config(self, topic: str) -> LogConfig:
        """As `ConfigService`."""
        found = super().log_config(topic)
        return replace(found, segment_bytes=_SEGMENT_BYTES, file_delete_delay_ms=1000)


class _NoEngine:
    """In place of Spark: nothing is compacted."""
