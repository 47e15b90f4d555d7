"""The controller of the cluster: the parts of `node.controller_node.ControllerNode`.

Real: the controller with its log on a simulated disk, `ControllerServer` with the control of the
cluster (sessions, fencing, elections), the leader of the quorum, and the handlers of all APIs.
Simulated: sockets, threads, disk, time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource_checks import require_topic
from cordwood.controller.controller import Controller
from cordwood.controller.controller_server import ControllerServer
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.publisher import MetadataPublisher
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.clock import Clock
from cordwood.node.derived_settings import controller_endpoints, controller_settings
from cordwood.node.loaded_metadata import load_metadata
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.failures import FailureChannel
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.scheduler import Scheduler
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.simulation.event_loop import Process, SimulatedLoop
from support.simulation.network import Network
from support.simulation.serving import SimulatedServer, Slices
from support.simulation.settings import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_ID,
    CONTROLLER_PORT,
    DATA,
    controller_node_settings,
    format_disk,
)
from support.watched import SeededRng

_SETTINGS = controller_node_settings()


class ControllerProcess:
    """One life of the controller."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        fs: SimulatedFileSystem,
        clock: Clock,
        rng: SeededRng,
        publisher: MetadataPublisher,
    ) -> None:
        """Starts nothing yet; `publisher` gets each image, too."""
        self._publisher = publisher
        self.process = Process(CONTROLLER)
        self.fs = fs
        self._loop = loop
        self._network = network
        self._clock = clock
        self._rng = rng
        self.controller: Controller | None = None
        self.serving: ControllerServer | None = None
        self.failure: str | None = None

    def start(self) -> None:
        """Serves from now on. To be called in the context of its process."""
        clock, settings = self._clock, _SETTINGS
        failures = FailureChannel(clock)
        failures.subscribe(self._failed)
        context = LogContext(
            clock=clock,
            rng=self._rng,
            resources=ResourceCache(fs=self.fs),
            failures=failures,
        )
        directory_ids = format_disk(self.fs, CONTROLLER_ID, clock, self._rng)
        controller = self.controller = Controller.open(
            metadata_dir=DATA,
            node_id=CONTROLLER_ID,
            directory_ids=directory_ids,
            clock=clock,
            endpoints=controller_endpoints(settings, {"CONTROLLER": CONTROLLER_PORT}),
            # Snapshots are made often, and brokers fetch them: the log below is removed.
            settings=replace(
                controller_settings(settings),
                snapshot_bytes=3000,
                segment_bytes=6000,
                retention_bytes=12_000,
            ),
            context=context,
        )
        slices = Slices(self._loop)
        scheduler = Scheduler(clock, catch_up=False)
        thread = NodeThread(
            self._loop,
            slices=slices,  # type: ignore[arg-type]  # as real ones
            clock=clock,
            scheduler=scheduler,
        )
        configs = EffectiveConfigs(settings)
        loader, metadata, snapshots = load_metadata(
            controller.log,
            settings=controller.settings,
            context=controller.context,
            configs=configs,
            slices=slices,  # type: ignore[arg-type]  # as real ones
        )
        loader.install(self._publisher)
        controller.check_topic_configs = partial(require_topic, configs)
        channel = LocalControllerChannel(controller, run=slices.run, published=loader.published)
        serving = self.serving = ControllerServer(
            controller,
            channel,
            settings=settings,
            cluster_id=CLUSTER_ID,
            configs=configs,
            metadata=metadata,
            thread=thread,
            endpoints=controller.endpoints,
            clock=clock,
        )
        server = SimulatedServer(self._network, self.process, ("CONTROLLER", CONTROLLER_PORT))
        serving.start(server)  # type: ignore[arg-type]  # as the real one
        self._loop.create_task(self._run_due(scheduler, controller, snapshots))

    def check_invariants(self) -> None:
        """Checks what the controller knows, between two changes."""
        controller, serving = self.controller, self.serving
        if (
            controller is not None
            and serving is not None
            and not controller.between_changes.is_held
        ):
            controller.check_invariants()
            serving.cluster.check_invariants()

    async def _run_due(
        self, scheduler: Scheduler, controller: Controller, snapshots: SnapshotGenerator
    ) -> None:
        while True:
            await asyncio.sleep(0.1)
            scheduler.run_due()
            with controller.between_changes:
                snapshots.run_if_due()

    def _failed(self, _log_dir: object, reason: str) -> None:
        self.failure = reason
