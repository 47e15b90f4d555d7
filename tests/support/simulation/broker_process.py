"""A broker of the cluster: the parts of `node.broker_assembly`, as `node.node.Node` has them.

Real: the log manager with its logs on a simulated disk, the membership of the quorum with the
observer and its log, the metadata publisher, the replica manager with leaders, followers, fetchers
and ISR proposals, the coordinators of groups and of transactions with their markers, and the
handlers of all APIs. Simulated: sockets, threads, disk, time. Nothing is compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from cordwood.broker.broker import Broker
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import served_apis
from cordwood.broker.metadata_publisher import BrokerMetadataPublisher
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.cleanup.schedule.retention_pass import start_retention
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.controller.partition_change import check_partition
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.formatting import read_previous_broker_epoch
from cordwood.metadata.image import Endpoint
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.uuids import fresh_uuid
from cordwood.node.broker_assembly import is_stray, make_broker, open_logs
from cordwood.node.loaded_metadata import load_metadata
from cordwood.node.quorum_member import QuorumMember
from cordwood.serving.dispatch import Dispatcher
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.failures import FailureChannel
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.simulation.event_loop import Process, SimulatedLoop
from support.simulation.log_watcher import LogWatcher, WatchedReplicas
from support.simulation.network import Network
from support.simulation.serving import SimulatedServer, Slices
from support.simulation.settings import (
    BROKER_PORT,
    CLUSTER_ID,
    DATA,
    broker_name,
    broker_settings,
    format_disk,
)
from support.watched import SeededRng

APIS = served_apis()
SETTINGS = {broker_id: broker_settings(broker_id) for broker_id in (1, 2, 3)}
_RUN_DUE_S = 0.05
_SEGMENT_BYTES = 8192
#: As `node.node` has it, but smaller.
_RESERVE_BYTES = 64 * 1024


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
        log_watcher: LogWatcher,
    ) -> None:
        """Starts nothing yet; `log_watcher` sees what it leads."""
        self.broker_id = broker_id
        self._log_watcher = log_watcher
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
        self._at_end: list[Callable[[], None]] = []

    @property
    def broker_epoch(self) -> int:
        """The epoch of its registration; -1 without one."""
        return -1 if self.member is None else self.member.broker_epoch

    def check_invariants(self) -> None:
        """Checks what the broker knows, and the partitions of its image."""
        broker = self.broker
        for part in (broker.coordinators, broker.replicas, broker.markers, self.logs, self.loader):
            part.check_invariants()
        for topic in broker.metadata.image.topics.values():
            for partition in topic.partitions.values():
                check_partition(partition)

    # ---- start

    async def start(self) -> None:
        """Joins the cluster, and serves when it returns. For the context of its process."""
        settings, loop, clock = self.settings, self._loop, self._clock
        directory_ids = format_disk(self.fs, self.broker_id, clock, self._rng)
        failures = FailureChannel(clock)
        failures.subscribe(self._directory_failed)
        previous_epoch = read_previous_broker_epoch([DATA], fs=self.fs)
        logs = self.logs = open_logs(
            settings,
            [DATA],
            topic_config=self._topic_config,
            failures=failures,
            clock=clock,
            fs=self.fs,
            rng=self._rng,
        )
        logs.broker_epoch = previous_epoch
        slices = Slices(loop)
        configs = self._configs = SmallSegments(settings)
        member = self.member = self._open_member(directory_ids[0], failures)
        self.loader, metadata, self._snapshots = load_metadata(
            member.log,
            settings=member.log_settings,
            context=member.log_context,
            configs=configs,
            slices=slices,  # type: ignore[arg-type]  # as real ones
        )
        member.connect(self.loader, configs, slices)  # type: ignore[arg-type]  # as real ones
        thread = NodeThread(
            loop,
            slices=slices,  # type: ignore[arg-type]  # as real ones
            clock=clock,
            scheduler=logs.context.scheduler,
        )
        broker = self.broker = self._make_broker(member, metadata, thread)
        logs.defaults = configs.log_config("")
        registration = self._registration(directory_ids, previous_epoch)
        self._log_watcher.starts(
            self.broker_id, self.process, registration.incarnation_id, previous_epoch
        )
        logs.broker_epoch = await member.join(
            registration,
            broker.replicas,
            metadata,
            thread,
            self._fail,
        )
        logs.load(is_stray=lambda log: is_stray(log, metadata.image, self.broker_id))
        self.loader.install(self._start_parts(broker))
        await member.unfence()
        self._serve(broker, thread)
        self.is_serving = True

    def _open_member(self, directory_id: UUID, failures: FailureChannel) -> QuorumMember:
        return QuorumMember(
            self.settings,
            metadata_dir=DATA,
            cluster_id=CLUSTER_ID,
            directory_id=directory_id,
            log_settings=MetadataLogSettings(reserve_bytes=_RESERVE_BYTES),
            context=LogContext(
                clock=self._clock,
                rng=self._rng,
                resources=ResourceCache(fs=self.fs),
                failures=failures,
            ),
        )

    def _make_broker(
        self, member: QuorumMember, metadata: MetadataCache, thread: NodeThread
    ) -> Broker:
        self._cleaner_manager = CleanerManager(self.logs)
        self._apis = member.served(APIS)
        return make_broker(
            self.settings,
            cluster_id=CLUSTER_ID,
            logs=self.logs,
            cleaner=self._cleaner_manager,
            metadata=metadata,
            configs=self._configs,
            member=member,
            thread=thread,
            apis=self._apis,
            at_end=self._at_end.append,
            replica_manager=partial(WatchedReplicas, self.process, self._log_watcher),
        )

    def _registration(
        self, directory_ids: Sequence[UUID], previous_epoch: int
    ) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id=self.broker_id,
            incarnation_id=fresh_uuid(self._rng),
            endpoints=(
                Endpoint(name="PLAINTEXT", host=broker_name(self.broker_id), port=BROKER_PORT),
            ),
            log_dirs=tuple(directory_ids),
            previous_broker_epoch=previous_epoch,
        )

    def _topic_config(self, topic: str) -> LogConfig:
        return self._configs.log_config(topic)

    def _start_parts(self, broker: Broker) -> BrokerMetadataPublisher:
        logs = broker.replicas.logs
        cleaner = LogCleaner(
            logs,
            self._cleaner_manager,
            _NoEngine(),  # type: ignore[arg-type]  # it is never started
            self._clock,
            CleanerSettings.of(logs.broker),
        )
        logs.start_tasks()
        start_retention(self._cleaner_manager)
        self._loop.create_task(self._run_due())
        for each in broker.coordinators:
            each.start()
        return BrokerMetadataPublisher(
            replicas=broker.replicas,
            metadata=broker.metadata,
            coordinators=broker.coordinators,
            groups=broker.groups.maintenance,
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

    def _serve(self, broker: Broker, thread: NodeThread) -> None:
        dispatcher = Dispatcher(
            self._apis,
            context_of=partial(BrokerContext, broker),
            thread=thread,
            metrics=broker.metrics.requests,
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
        for end in (self.broker.transactions.close, self.broker.groups.close, *self._at_end):
            end()
        # As in `NodeLifecycle`: what fails, as on a full disk, does not keep the rest from ending.
        with suppress(CordwoodError, OSError):
            await member.close(self._snapshots)
        member.abandon()
        self.logs.shutdown()

    def _directory_failed(self, _log_dir: object, reason: str) -> None:
        self._fail(reason)

    def _fail(self, why: str) -> None:
        """Ends the process, which cannot serve any more, by its starter."""
        if self.failure is None:
            self.failure = why


class SmallSegments(EffectiveConfigs):
    """The settings of a broker; segments are smaller than Kafka allows, so that logs roll."""

    def log_config(self, topic: str) -> LogConfig:
        """The settings of a topic with small segments."""
        found = super().log_config(topic)
        return replace(found, segment_bytes=_SEGMENT_BYTES, file_delete_delay_ms=1000)


class _NoEngine:
    """Replacement of Spark: nothing is compacted."""
