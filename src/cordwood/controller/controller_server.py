"""A controller as its cluster sees it: its listener, and its periodic work.

Source: kafka.server.ControllerServer, QuorumController (4.3.0); KIP-631.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.server_properties import BrokerSettings
from cordwood.controller.cluster_control import ClusterControl
from cordwood.controller.commit_watch import CommitWatch
from cordwood.controller.controller import Controller
from cordwood.controller.controller_context import ControllerContext
from cordwood.controller.controller_services import ControllerServices
from cordwood.controller.handlers import controller_apis
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.quorum.leader import QuorumLeader
from cordwood.model.clock import Clock, SystemClock
from cordwood.serving.dispatch import Dispatcher
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.serving.server import Server
from cordwood.serving.session import Session

_log = logging.getLogger(__name__)

#: How often in a session brokers are looked at. Source: QuorumController.
_CHECKS_IN_SESSION: Final = 8

_LEAVE_S: Final = 5.0
_LEAVE_CHECK_S: Final = 0.02

T = TypeVar("T")


class ControllerServer:
    """Serves the brokers of a cluster, from `start` until `close`."""

    def __init__(
        self,
        controller: Controller,
        channel: LocalControllerChannel,
        *,
        settings: BrokerSettings,
        cluster_id: str,
        configs: EffectiveConfigs,
        metadata: MetadataCache,
        thread: NodeThread,
        endpoints: Sequence[Endpoint],
        clock: Clock | None = None,
    ) -> None:
        """Serves nobody yet.

        Args:
            controller: active.
            channel: to the controller; from now on it describes the nodes that follow, too.
            settings: of server.properties.
            cluster_id: of the cluster.
            configs: check the settings of topics.
            metadata: as this node has loaded it.
            thread: the event loop's.
            endpoints: where the controller is reached.
            clock: for sessions and durations, whose time nobody moves; the machine's if None.
        """
        clock = clock or SystemClock()
        self._settings = settings
        self._thread = thread
        self._controller = controller
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = RequestMetrics()
        self.cluster = ClusterControl(
            controller,
            session_timeout_ms=settings.integer("broker.session.timeout.ms"),
            monotonic_ms=lambda: clock.monotonic_s() * 1000,
            local_broker=settings.node_id if settings.is_broker else None,
        )
        quorum = QuorumLeader(
            controller.log, node_id=settings.node_id, now_ms=controller.context.clock.now_ms
        )
        channel.observers = quorum.observers
        apis = controller_apis()
        self._services = ControllerServices(
            node_id=settings.node_id,
            cluster_id=cluster_id,
            thread=thread,
            settings=settings,
            configs=configs,
            metadata=metadata,
            admin=channel,
            forwarding=None,
            api_versions={key: (api.min_version, api.max_version) for key, api in apis.items()},
            cluster=self.cluster,
            quorum=quorum,
            commits=CommitWatch(controller.log, thread.call_soon),
            forwarded=self._answer_forwarded,
            change=self._change,
            endpoints=endpoints,
        )
        self._dispatcher = Dispatcher(
            apis,
            context_of=partial(ControllerContext, self._services),
            thread=thread,
            metrics=self.metrics,
            monotonic_s=clock.monotonic_s,
        )

    def _answer_forwarded(self, frame: memoryview, client: Session) -> Any:
        return self._dispatcher.answer(frame, client)

    def _change(self, work: Callable[[], T]) -> Awaitable[T]:
        def run() -> T:
            with self._controller.between_changes:
                return work()

        return self._thread.slices.run(run)

    def start(self, server: Server) -> None:
        """Answers the requests of a server's clients, and starts the periodic work."""
        settings, cluster = self._settings, self.cluster
        server.start(self._thread.loop, self._dispatcher.answer)
        session_ms = settings.integer("broker.session.timeout.ms")
        self._every(session_ms / _CHECKS_IN_SESSION, cluster.fence_expired)
        idle_ms = settings.integer("metadata.max.idle.interval.ms")
        if idle_ms > 0:
            self._every(idle_ms, self._write_no_op)
        if settings.all["auto.leader.rebalance.enable"]:
            check_ms = settings.integer("leader.imbalance.check.interval.seconds") * 1000
            self._every(check_ms, cluster.elect_preferred_leaders)
        unclean_ms = settings.integer("unclean.leader.election.interval.ms")
        self._every(unclean_ms, cluster.elect_unclean_leaders)

    def _write_no_op(self) -> None:
        """Differs: Kafka writes them although nobody follows the log."""
        if self._services.quorum.observers():
            self.cluster.write_no_op()

    def _every(self, period_ms: float, work: Callable[[], None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(period_ms / 1000)
                try:
                    await self._change(work)
                except Exception as error:
                    _log.warning("The controller cannot write to its log: %s", error)

        self._tasks.append(self._thread.loop.create_task(repeat()))

    async def all_have(self, image: MetadataImage) -> None:
        """Returns when the other brokers that are active have an image, or after some seconds."""
        others = {
            each.broker_id
            for each in image.brokers.values()
            if each.is_active and each.broker_id != self._settings.node_id
        }
        deadline = self._thread.loop.time() + _LEAVE_S
        while self._thread.loop.time() < deadline:
            ends = {
                each.replica_id: each.log_end_offset for each in self._services.quorum.observers()
            }
            if all(ends.get(each, -1) >= image.next_offset for each in others):
                return
            await asyncio.sleep(_LEAVE_CHECK_S)

    async def close(self) -> None:
        """Does nothing more by itself; its server is stopped by its owner."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
