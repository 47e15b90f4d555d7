"""Composition root: builds a broker from its settings, starts and stops its parts.

The order of a start: directories are formatted if they are empty, and locked; sockets are bound;
the metadata log is read, and says of which topics there are logs; these are loaded; partitions are
led; only then are clients served. A stop goes the other way, and leaves `.kafka_cleanshutdown`.

Source: kafka.server.KafkaRaftServer, BrokerServer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.broker.broker import Broker
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import served_apis
from cordwood.broker.metadata_publisher import BrokerMetadataPublisher
from cordwood.cleanup.erasure.erasure_runs import ErasureRuns
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.log_cleaner import LogCleaner, ManagedEngine
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.configs.server_properties import BrokerSettings
from cordwood.controller.controller import Controller
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.formatting import read_previous_broker_epoch
from cordwood.metadata.image import Endpoint
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.uuids import fresh_uuid
from cordwood.node.broker_assembly import is_stray, make_broker, open_logs
from cordwood.node.changed_settings import follow_settings
from cordwood.node.cluster_member import ClusterMember
from cordwood.node.derived_settings import (
    controller_endpoints,
    controller_settings,
    server_limits,
)
from cordwood.node.directories import format_node, usable_directories
from cordwood.node.embedded_controller import EmbeddedController
from cordwood.node.lifecycle import NodeLifecycle
from cordwood.node.loaded_metadata import load_metadata, schedule_snapshots
from cordwood.node.quorum_member import QuorumMember
from cordwood.node.topic_restoration import TopicRestoration
from cordwood.serving.addresses import is_wildcard, machine_name
from cordwood.serving.api import Api
from cordwood.serving.dispatch import Dispatcher
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.server import Server
from cordwood.serving.slices import Slices
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.loaded_log_directory import LoadProgress
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.scheduler import SchedulerThread
from cordwood.storage.segment.resources import ResourceCache

_log = logging.getLogger(__name__)

_SWITCH_S: Final = 0.0005
# How many objects are made before the collector looks at them: a request makes dozens, and hardly
# ever a cycle.
_GARBAGE_MIN: Final = 20_000

EngineFactory = Callable[[], ManagedEngine]


class Node(NodeLifecycle):
    """A broker, which fails when no directory is left to serve from."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        engine: EngineFactory | None = None,
        fs: FileSystem = OS,
        owns_process: bool = False,
    ) -> None:
        """Nothing is touched yet.

        Args:
            settings: those of server.properties.
            clock: the machine's if None.
            engine: makes what compacts; Spark in a process of its own if None.
            fs: where all files are.
            owns_process: whether the process runs nothing else. Only then is its garbage collector
                set for a broker: one look at all objects takes a second in a large process.
        """
        super().__init__(settings, clock=clock, fs=fs)
        self._apis: Mapping[int, Api[BrokerContext]] = served_apis(
            unstable_versions=settings.unstable_api_versions_enable
        )
        self._owns_process = owns_process
        self._engine = engine or spark_engine
        self._controller_server: Server | None = None
        self._scheduler: SchedulerThread | None = None

    # ---- start

    async def _start(self, progress: LoadProgress | None) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        # A thread that computes gives the interpreter back ten times as often as it would: the
        # loop must not wait for retention, or for compiled code that is being loaded.
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._at_end(lambda: sys.setswitchinterval(switch_s))
        log_dirs = [Path(name).absolute() for name in settings.log_dirs]
        failures = FailureChannel(self.clock)
        cluster_id, directory_ids = format_node(
            usable_directories(self.metadata_dir, log_dirs, failures, fs=self._fs),
            settings,
            clock=self.clock,
            fs=self._fs,
        )
        previous_epoch = read_previous_broker_epoch(log_dirs, fs=self._fs)
        logs = self._open_logs([each for each in log_dirs if each in directory_ids], failures)
        # A start that fails before the broker is registered leaves the marks of the last stop.
        logs.broker_epoch = previous_epoch
        server = self._bind()
        member = self._open_member(cluster_id, directory_ids, logs)
        self._at_end(member.abandon)
        slices = Slices(loop)
        configs = EffectiveConfigs(settings)
        self._configs = configs
        metadata = self._load_metadata(member, slices)
        member.connect(self.loader, configs, slices)
        self._at_end(lambda: member.close(self._snapshots))
        thread = NodeThread(loop, slices=slices, clock=self.clock, scheduler=logs.context.scheduler)
        self._apis = member.served(self._apis)
        broker = self.broker = self._make_broker(cluster_id, logs, metadata, member, thread)
        self._at_end(lambda: self._finish_requests(slices))
        self._at_end(broker.replicas.directory_reports.close)
        logs.defaults = configs.log_config("")
        logs.broker = configs.values
        logs.broker_epoch = await self._unless_failed(
            member.join(
                self._registration(directory_ids, previous_epoch, logs),
                broker.replicas,
                metadata,
                thread,
                self._fail,
            )
        )
        logs.broker = configs.values  # with what is recorded for brokers, in a cluster by others
        await _finished_in_thread(partial(logs.load, is_stray=self._is_stray, progress=progress))
        publisher = self._start_parts(broker)
        await slices.run(lambda: self.loader.install(publisher))
        await self._unless_failed(member.unfence())
        self._resume(broker, member)
        schedule_snapshots(thread, lambda: member.write_snapshot_if_due(self._snapshots))
        follow_settings(broker, self.cleaner, server)
        self._serve(server, broker)
        self._at_end(lambda: self._finish_requests(slices))
        self._at_end(broker.replicas.directory_reports.close)
        self._at_end(member.leave)

    def _resume(self, broker: Broker, member: ClusterMember) -> None:
        """Continues moves and restorations that the last stop has interrupted."""
        broker.replicas.moves.resume()
        channel = member.channel if isinstance(member, EmbeddedController) else None
        self.restoration = TopicRestoration(broker, channel)
        resuming = broker.thread.loop.create_task(self.restoration.resume())
        self._at_end(lambda: _cancel(resuming))

    def _serve(self, server: Server, broker: Broker) -> None:
        thread = broker.thread
        dispatcher = Dispatcher(
            self._apis,
            context_of=partial(BrokerContext, broker),
            thread=thread,
            metrics=broker.metrics.requests,
            # Not the loop's own, which stands still while a handler runs.
            monotonic_s=SystemClock().monotonic_s,
        )
        if self._owns_process:
            # What is there now stays: the collector need not look through it again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(_GARBAGE_MIN, *gc.get_threshold()[1:])
        server.start(thread.loop, dispatcher.answer)
        thread.iterations.resume()
        self._at_end(thread.iterations.pause)
        self._at_end(server.stop)  # as in Kafka: before the parts that serve its clients
        thread.read_input_with(server.after_input)

    def _load_metadata(self, member: ClusterMember, slices: Slices) -> MetadataCache:
        """Loads the committed metadata for all that needs it before the logs are opened."""
        self.loader, metadata, self._snapshots = load_metadata(
            member.log,
            settings=member.log_settings,
            context=member.log_context,
            configs=self._configs,
            slices=slices,
        )
        return metadata

    def _make_broker(
        self,
        cluster_id: str,
        logs: LogManager,
        metadata: MetadataCache,
        member: ClusterMember,
        thread: NodeThread,
    ) -> Broker:
        self._cleaner_manager = CleanerManager(logs)
        return make_broker(
            self.settings,
            cluster_id=cluster_id,
            logs=logs,
            cleaner=self._cleaner_manager,
            metadata=metadata,
            configs=self._configs,
            member=member,
            thread=thread,
            apis=self._apis,
            at_end=self._at_end,
        )

    async def _finish_requests(self, slices: Slices) -> None:
        """Ends long requests; a change that is committed meanwhile need not be published."""
        self.loader.stopping()
        await slices.finish()

    def _open_logs(self, log_dirs: list[Path], failures: FailureChannel) -> LogManager:
        logs = open_logs(
            self.settings,
            log_dirs,
            topic_config=self._topic_config,
            failures=failures,
            clock=self.clock,
            fs=self._fs,
        )
        self._at_end(logs.shutdown, waits=True)
        loop = asyncio.get_running_loop()

        def failed(log_dir: Path, reason: str) -> None:
            loop.call_soon_threadsafe(self._directory_failed, log_dir, reason)

        failures.subscribe(failed)
        return logs

    def _directory_failed(self, log_dir: Path, reason: str) -> None:
        """Gives up where nothing, or not the metadata log, is left to serve from.

        Source: kafka.server.ReplicaManager.handleLogDirFailure, LogManager.handleLogDirFailure.
        """
        logs = self.broker.replicas.logs
        offline = logs.context.failures.offline
        why = ""
        if log_dir == self.metadata_dir:
            why = f"Shutdown broker because the metadata log dir {log_dir} has failed: {reason}"
        elif all(directory.path in offline for directory in logs.directories):
            names = ", ".join(str(each) for each in self.broker.replicas.log_dirs)
            why = f"Shutdown broker because all log dirs in {names} have failed"
        if why:
            self._fail(why)
            return
        self.broker.replicas.directory_failed(
            log_dir,
            lambda: self._fail(
                "Shutdown broker because the controller did not record in "
                f"log.dir.failure.timeout.ms that the log dir {log_dir} has failed: {reason}"
            ),
        )

    def _topic_config(self, topic: str) -> LogConfig:
        return self._configs.log_config(topic)

    def _bind(self) -> Server:
        settings = self.settings
        server = Server(
            limits=server_limits(settings, self.settings),
            properties=settings.given,
            notes_reached=settings.advertises_reached,
        )
        self.server = server
        self._at_end(server.stop)
        self.ports = {each.name: server.bind(each) for each in settings.listeners}
        if settings.controller_listeners:
            self._controller_server = Server(
                limits=server_limits(settings, settings), properties=settings.given
            )
            self._at_end(self._controller_server.stop)
            self.ports |= {
                each.name: self._controller_server.bind(each)
                for each in settings.controller_listeners
            }
        return server

    def _open_member(
        self, cluster_id: str, directory_ids: Mapping[Path, UUID], logs: LogManager
    ) -> ClusterMember:
        settings = self.settings
        # Its delayed tasks are run by a scheduler of its own.
        context = LogContext(
            clock=self.clock,
            resources=ResourceCache(fs=self._fs),
            failures=logs.context.failures,
        )
        if not settings.is_controller:
            return QuorumMember(
                settings,
                metadata_dir=self.metadata_dir,
                cluster_id=cluster_id,
                directory_id=directory_ids[self.metadata_dir],
                log_settings=controller_settings(settings),
                context=context,
            )
        advertised = self._advertised()
        self.controller = Controller.open(
            metadata_dir=self.metadata_dir,
            node_id=settings.node_id,
            directory_ids=list(directory_ids.values()),
            clock=self.clock,
            endpoints=controller_endpoints(settings, self.ports),
            default_host=advertised[0].host if advertised else "localhost",
            settings=controller_settings(settings),
            context=context,
        )
        return EmbeddedController(
            self.controller,
            settings=settings,
            cluster_id=cluster_id,
            server=self._controller_server,
        )

    def _advertised(self) -> tuple[Endpoint, ...]:
        """The endpoints to register; clients may get another address, see `endpoint_for`."""
        return tuple(
            Endpoint(
                name=each.name,
                host=machine_name() if is_wildcard(each.host) else each.host,
                port=each.port or self.ports[each.name],
                security_protocol=each.protocol,
            )
            for each in self.settings.advertised_listeners
        )

    def _registration(
        self, directory_ids: Mapping[Path, UUID], previous_epoch: int, logs: LogManager
    ) -> BrokerRegistration:
        offline = logs.context.failures.offline
        return BrokerRegistration(
            broker_id=self.settings.node_id,
            incarnation_id=fresh_uuid(logs.context.rng),
            endpoints=self._advertised(),
            log_dirs=tuple(
                directory_ids[each.path] for each in logs.directories if each.path not in offline
            ),
            cordoned_log_dirs=logs.cordoned_ids,
            rack=self.settings.rack,
            previous_broker_epoch=previous_epoch,
        )

    def _is_stray(self, log: PartitionLog) -> bool:
        return is_stray(log, self.broker.metadata.image, self.settings.node_id)

    def _start_parts(self, broker: Broker) -> BrokerMetadataPublisher:
        """Starts what works beside the clients; returns what applies the images to it."""
        replicas = broker.replicas
        logs = replicas.logs
        for each in broker.coordinators:
            self._at_end(each.close)
        engine = self._engine()
        settings = CleanerSettings.of(logs.broker)
        self.cleaner = LogCleaner(logs, self._cleaner_manager, engine, self.clock, settings)
        self._at_end(self.cleaner.shutdown, waits=True)
        self.erasures = ErasureRuns(self.cleaner)
        self._at_end(self.erasures.close, waits=True)
        self._scheduler = SchedulerThread(logs.context.scheduler, self.clock)
        self._at_end(self._scheduler.stop, waits=True)
        logs.start_tasks()
        self._scheduler.start()
        self.cleaner.startup()
        for each in broker.coordinators:
            each.start()
        self._at_end(replicas.moves.close, waits=True)
        publisher = BrokerMetadataPublisher(
            replicas=replicas,
            metadata=broker.metadata,
            coordinators=broker.coordinators,
            groups=broker.groups.maintenance,
            configs=broker.configs,
            cleaner=self.cleaner,
            metrics=broker.metrics,
            thread=broker.thread,
            between_updates=self.loader.between_updates,
        )
        self._at_end(publisher.finish_deletions, waits=True)
        return publisher

    # ---- afterwards

    def clock_moved(self) -> None:
        """Starts all work that is due after the clock was advanced, without waiting for it."""
        assert self._scheduler is not None
        self._scheduler.wake()
        self.cleaner.clock_moved()

    def run_due(self, *, compact: bool = True) -> None:
        """Runs all work that is due after the clock was advanced, and returns when it is done.

        To be called by any thread but the event loop's.

        Args:
            compact: also compact what is due.

        Raises:
            NotCompactedError: logs are due and could not be compacted; everything else is done.
        """
        scheduler = self.broker.replicas.logs.context.scheduler
        cleaner = self.cleaner
        scheduler.run_due()
        scheduler.wait_for_others()
        cleaner.retention_once_now()
        try:
            if compact:
                cleaner.compact_due()
        finally:
            # Delayed tasks, such as the removal of files, are due later, or now.
            scheduler.run_due()
            scheduler.wait_for_others()
            self.clock_moved()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def spark_engine() -> ManagedEngine:
    """Spark in a process of its own, started when something is first compacted."""
    from cordwood.cleanup.engine.spark_process import SparkProcess  # noqa: PLC0415

    return SparkProcess()


async def _finished_in_thread(work: Callable[[], object]) -> None:
    """Does work in a thread; a caller that is cancelled waits for its end nevertheless."""
    done = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        done.exception()  # the cancellation goes first
        raise
