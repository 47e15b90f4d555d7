"""A node that is its cluster's only controller, and no broker (process.roles=controller).

Source: kafka.server.KafkaRaftServer, ControllerServer (4.3.0); KIP-631.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource_checks import require_topic
from cordwood.configs.server_properties import BrokerSettings
from cordwood.controller.controller import Controller
from cordwood.controller.controller_server import ControllerServer
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.cache import MetadataCache
from cordwood.model.clock import Clock
from cordwood.node.derived_settings import (
    controller_endpoints,
    controller_settings,
    server_limits,
)
from cordwood.node.directories import format_node, usable_directories
from cordwood.node.lifecycle import NodeLifecycle
from cordwood.node.loaded_metadata import load_metadata, schedule_snapshots
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.server import Server
from cordwood.serving.slices import Slices
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import OS, FileSystem, Lock
from cordwood.storage.loaded_log_directory import LoadProgress
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.scheduler import Scheduler, SchedulerThread
from cordwood.storage.segment.resources import ResourceCache

_log = logging.getLogger(__name__)


class ControllerNode(NodeLifecycle):
    """A controller, which fails when the disk of the metadata log does."""

    def __init__(
        self, settings: BrokerSettings, *, clock: Clock | None = None, fs: FileSystem = OS
    ) -> None:
        """The same arguments as `NodeLifecycle`."""
        super().__init__(settings, clock=clock, fs=fs)

    async def _start(self, _progress: LoadProgress | None) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        failures = FailureChannel(self.clock)

        def failed(log_dir: Path, reason: str) -> None:
            why = f"Shutdown controller because the metadata log dir {log_dir} has failed: {reason}"
            loop.call_soon_threadsafe(self._fail, why)

        failures.subscribe(failed)
        cluster_id, directory_ids = format_node(
            usable_directories(self.metadata_dir, [], failures, fs=self._fs),
            settings,
            clock=self.clock,
            fs=self._fs,
        )
        self.cluster_id = cluster_id
        self._at_end(self._lock().release)
        server = self.server = Server(
            limits=server_limits(settings, settings), properties=settings.given
        )
        self._at_end(server.stop)
        self.ports = {each.name: server.bind(each) for each in settings.controller_listeners}
        context = LogContext(
            clock=self.clock, resources=ResourceCache(fs=self._fs), failures=failures
        )
        controller = self.controller = Controller.open(
            metadata_dir=self.metadata_dir,
            node_id=settings.node_id,
            directory_ids=list(directory_ids.values()),
            clock=self.clock,
            endpoints=controller_endpoints(settings, self.ports),
            settings=controller_settings(settings),
            context=context,
        )
        self._at_end(controller.close)
        slices = Slices(loop)
        scheduler = self._due = Scheduler(self.clock, catch_up=False)
        thread = self.thread = NodeThread(
            loop, slices=slices, clock=self.clock, scheduler=scheduler
        )
        self._serve(controller, self._load(controller, slices), thread, server)
        self._scheduler = SchedulerThread(scheduler, self.clock)
        self._at_end(self._scheduler.stop, waits=True)
        self._scheduler.start()

    def _lock(self) -> Lock:
        self._fs.make_directory_durably(self.metadata_dir)
        return self._fs.lock(self.metadata_dir)

    def _load(self, controller: Controller, slices: Slices) -> MetadataCache:
        """Loads the metadata that is committed."""
        configs = self.configs = EffectiveConfigs(self.settings)
        self._loader, self.metadata, self._snapshots = load_metadata(
            controller.log,
            settings=controller.settings,
            context=controller.context,
            configs=configs,
            slices=slices,
        )
        controller.check_topic_configs = partial(require_topic, configs)
        return self.metadata

    def _serve(
        self, controller: Controller, metadata: MetadataCache, thread: NodeThread, server: Server
    ) -> None:
        channel = LocalControllerChannel(
            controller, run=thread.slices.run, published=self._loader.published
        )
        serving = self.serving = ControllerServer(
            controller,
            channel,
            settings=self.settings,
            cluster_id=self.cluster_id,
            configs=self.configs,
            metadata=metadata,
            thread=thread,
            endpoints=controller.endpoints,
        )
        self._at_end(self._leave_snapshot)
        serving.start(server)
        thread.read_input_with(server.after_input)
        schedule_snapshots(thread, lambda: controller.write_snapshot_if_due(self._snapshots))
        self._at_end(self._finish_requests)
        self._at_end(serving.close)
        self._at_end(server.stop)

    async def _finish_requests(self) -> None:
        self._loader.stopping()
        await self.thread.slices.finish()

    def _leave_snapshot(self) -> None:
        self._loader.close()
        if self.controller.is_log_open:
            self._loader.catch_up()
            self._snapshots.leave_for_next_start()

    # ---- afterwards

    def clock_moved(self) -> None:
        """Starts all work that is due after the clock was advanced, without waiting for it."""
        self._scheduler.wake()

    def run_due(self) -> None:
        """Runs all work that is due after the clock was advanced, and returns when it is done.

        To be called by any thread but the event loop's.
        """
        self._due.run_due()
        self._due.wait_for_others()
        self.clock_moved()
