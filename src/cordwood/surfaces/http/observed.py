"""Nodes as the HTTP endpoint sees them: a broker, or a controller alone.

Everything that differs between the kinds of nodes is here; the endpoint has no cases.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from cordwood import __version__
from cordwood.cleanup.erasure.erasure_runs import ErasureRunsError
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.schedule.holds import add_hold
from cordwood.model.clock import Clock
from cordwood.model.hold import Hold, parse_target
from cordwood.model.topic_partition import TopicPartition
from cordwood.node.controller_node import ControllerNode
from cordwood.node.node import Node
from cordwood.queries.cleaner_node import cleaner_of
from cordwood.queries.explain.node import explain_node
from cordwood.queries.identity import BROKER, CONTROLLER, NodeIdentity, OtherBroker
from cordwood.queries.on_loop import OnLoop
from cordwood.storage.holds import HoldRegistry, holds_of
from cordwood.surfaces.http import trash
from cordwood.surfaces.http.erasures import parse_erasure
from cordwood.surfaces.http.readiness import why_not_ready
from cordwood.surfaces.http.server import Refusal, Request
from cordwood.surfaces.metrics.collector import registry
from cordwood.surfaces.metrics.snapshot import take, take_controller
from cordwood.surfaces.metrics.table import CONTROLLER_METRICS, METRICS

T = TypeVar("T")

Document = Callable[[OnLoop, Request], Any]

#: Does what a request asks for, and makes the JSON of the answer; raises a ConfigError if the
#: request is wrong.
Action = Callable[[Request], Any]


class ObservedNode(Protocol):
    """A running node; methods are thread-safe unless they say otherwise."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def host_names(self) -> set[str]:
        """The hosts of its listeners, as they are bound and advertised; some may be empty."""

    @property
    def documents(self) -> Mapping[str, Document]:
        """Makers of the JSON at /health, and at paths that only some kinds of nodes have."""

    @property
    def questions(self) -> Mapping[str, Document]:
        """Documents that take longer the more the node has, made for one request at a time."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """Actions of a POST, by path."""

    def identity(self, http_url: str | None) -> NodeIdentity:
        """The node's identity, with the URL of its endpoint."""

    @property
    def other_brokers(self) -> Sequence[OtherBroker]:
        """The other brokers of its cluster, in order of their ids; none for a controller."""

    def result_of(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Runs `work` in slices of the event loop; the future has its result.

        Raises:
            RuntimeError: the event loop has ended.
        """

    def registry(self, on_loop: OnLoop) -> CollectorRegistry:
        """The node's metrics, which are read at a scrape."""

    def run_due(self, *, compact: bool) -> None:
        """Runs all work that is due after the clock was advanced, and returns when it is done.

        Raises:
            NotCompactedError: logs are due for compaction, and were not compacted.
        """

    def published(self, http_url: str) -> None:
        """Takes the URL at which the endpoint listens from now on."""


class ObservedBroker:
    """An `ObservedNode` that is a broker."""

    def __init__(self, node: Node) -> None:
        """Takes the node, which must have been started."""
        self._node = node

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        return self._node.clock

    @property
    def host_names(self) -> set[str]:
        """Hosts of the broker's listeners, bound and advertised."""
        settings = self._node.settings
        return {each.host for each in (*settings.listeners, *settings.advertised_listeners)}

    @property
    def documents(self) -> Mapping[str, Document]:
        """Makers of the JSON of a broker."""
        return {
            "/holds": self._show_holds,
            "/erasures": self._show_erasures,
            "/health": self._health,
            "/ready": self._ready,
        }

    @property
    def questions(self) -> Mapping[str, Document]:
        """Questions to a broker."""
        return {
            "/cleaner": lambda on_loop, _: cleaner_of(self._node, on_loop),
            "/explain": self._explain,
            "/whatif": self._what_if,
            "/trash": lambda _on_loop, _: trash.show(self._node),
        }

    @property
    def actions(self) -> Mapping[str, Action]:
        """Actions on a broker."""
        return {
            "/holds/add": self._add_hold,
            "/holds/release": self._release_hold,
            "/trash/restore": lambda request: trash.restore(self._node, request),
            "/trash/empty": lambda request: trash.empty(self._node, request),
            "/erasures/start": self._start_erasure,
        }

    def identity(self, http_url: str | None) -> NodeIdentity:
        """The broker's identity."""
        broker = self._node.broker
        return NodeIdentity.here(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            log_dirs=broker.replicas.log_dirs,
            http_url=http_url,
            role=BROKER,
        )

    @property
    def other_brokers(self) -> Sequence[OtherBroker]:
        """The other brokers, by their addresses at a listener that this broker has, too."""
        broker = self._node.broker
        names = [each.name for each in self._node.settings.listeners]
        found = []
        for node_id, each in sorted(broker.metadata.image.brokers.items()):
            at = next((e for e in map(each.endpoint, names) if e is not None), None)
            if node_id != broker.node_id and at is not None:
                found.append(OtherBroker(node_id=node_id, address=f"{at.host}:{at.port}"))
        return found

    def result_of(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Runs `work` on the broker's event loop."""
        return self._node.broker.thread.result_of(work)

    def registry(self, on_loop: OnLoop) -> CollectorRegistry:
        """The metrics of a broker."""
        return registry(METRICS, lambda: on_loop(lambda: take(self._node)))

    def run_due(self, *, compact: bool) -> None:
        """Runs what is due in the broker."""
        self._node.run_due(compact=compact)

    def published(self, http_url: str) -> None:
        """Has DescribeConfigs return the URL."""
        configs = self._node.broker.configs
        self._node.broker.thread.call_soon(lambda: setattr(configs, "http_url", http_url))

    def _explain(self, on_loop: OnLoop, request: Request) -> Any:
        return explain_node(self._node, on_loop, request.all("topic") or ["*"])

    def _what_if(self, on_loop: OnLoop, request: Request) -> Any:
        # Few brokers are asked: what only the answer needs is not loaded at the start.
        from cordwood.queries.whatif.node import what_if_node  # noqa: PLC0415
        from cordwood.queries.whatif.question import WhatIfQuestion  # noqa: PLC0415

        return what_if_node(self._node, on_loop, WhatIfQuestion.parse(request.query))

    def _show_holds(self, _on_loop: OnLoop, _: Request) -> Any:
        return holds_of(self._holds)

    @property
    def _holds(self) -> HoldRegistry:
        return self._node.cleaner.logs.context.holds

    def _add_hold(self, request: Request) -> Any:
        partition = request.one("partition")
        topic, number = parse_target(f"{request.one('topic')}:{partition}".removesuffix(":"))
        hold = Hold(
            id=request.one("id"),
            topic=topic,
            partition=number,
            reason=request.one("reason"),
            by=request.one("by"),
            created_ms=self.clock.now_ms(),
        )
        add_hold(self._node.cleaner.manager, hold)
        return holds_of(self._holds)

    def _release_hold(self, request: Request) -> Any:
        self._holds.release(request.one("id"), by=request.one("by"))
        return holds_of(self._holds)

    def _show_erasures(self, _on_loop: OnLoop, request: Request) -> Any:
        return self._node.erasures.status(request.one("id") or None)

    def _start_erasure(self, request: Request) -> Any:
        asked = parse_erasure(request.body, now_ms=self.clock.now_ms())
        try:
            self._node.erasures.start(asked)
        except ErasureRunsError as error:
            raise Refusal(409, str(error)) from error
        return replace(self._node.erasures.status(asked.id), elsewhere=self._elsewhere(asked))

    def _elsewhere(self, request: EraseRequest) -> dict[str, list[int]]:
        """The other brokers that have a replica of a partition of an erasure, by partition."""
        broker = self._node.broker
        image, found = broker.metadata.image, {}
        for topic, known in image.topics.items():
            for number, each in known.partitions.items():
                partition = TopicPartition(topic, number)
                others = [node for node in each.replicas if node != broker.node_id]
                if others and any(target.covers(partition) for target in request.targets):
                    found[str(partition)] = others
        return found

    def _health(self, on_loop: OnLoop, _: Request) -> Any:
        broker = self._node.broker
        connections = on_loop(lambda: self._node.server.connection_count)
        offline = broker.replicas.logs.context.failures.offline
        return _health(broker.cluster_id, broker.node_id, connections, offline)

    def _ready(self, _on_loop: OnLoop, _: Request) -> Any:
        broker = self._node.broker
        reason = why_not_ready(broker.metadata.image, broker.node_id)
        if reason:
            raise Refusal(503, reason)
        return {"status": "ready", "node_id": broker.node_id}


class ObservedController:
    """An `ObservedNode` that is a controller alone."""

    def __init__(self, node: ControllerNode) -> None:
        """Takes the node, which must have been started."""
        self._node = node

    @property
    def clock(self) -> Clock:
        """The controller's clock."""
        return self._node.clock

    @property
    def host_names(self) -> set[str]:
        """Hosts of the controller's listeners, bound and advertised."""
        settings = self._node.settings
        listeners = settings.controller_listeners, settings.advertised_controller_listeners
        return {each.host for both in listeners for each in both}

    @property
    def documents(self) -> Mapping[str, Document]:
        """Makers of the JSON of a controller: its health."""
        return {"/health": self._health}

    @property
    def questions(self) -> Mapping[str, Document]:
        """No questions: a controller has no logs of topics."""
        return {}

    @property
    def actions(self) -> Mapping[str, Action]:
        """No actions."""
        return {}

    def identity(self, http_url: str | None) -> NodeIdentity:
        """The controller's identity; the only log directory is that of the metadata log."""
        node = self._node
        return NodeIdentity.here(
            node_id=node.settings.node_id,
            cluster_id=node.cluster_id,
            log_dirs=[Path(node.settings.metadata_log_dir).absolute()],
            http_url=http_url,
            role=CONTROLLER,
        )

    @property
    def other_brokers(self) -> Sequence[OtherBroker]:
        """No brokers: a controller alone is not asked about them."""
        return ()

    def result_of(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Runs `work` on the controller's event loop."""
        return self._node.thread.result_of(work)

    def registry(self, on_loop: OnLoop) -> CollectorRegistry:
        """The metrics of a controller."""
        return registry(CONTROLLER_METRICS, lambda: on_loop(lambda: take_controller(self._node)))

    def run_due(self, *, compact: bool) -> None:
        """Runs what is due in the controller, which compacts nothing."""
        del compact
        self._node.run_due()

    def published(self, http_url: str) -> None:
        """Does nothing: no request asks a controller for the URL."""

    def _health(self, on_loop: OnLoop, _: Request) -> Any:
        node = self._node
        connections = on_loop(lambda: node.server.connection_count)
        offline = node.controller.context.failures.offline
        return _health(node.cluster_id, node.settings.node_id, connections, offline)


def _health(
    cluster_id: str, node_id: int, connections: int, offline: Mapping[Path, str]
) -> dict[str, Any]:
    return {
        "status": "ok",
        "version": __version__,
        "cluster_id": cluster_id,
        "node_id": node_id,
        "connections": connections,
        "offline_log_dirs": {str(path): reason for path, reason in offline.items()},
    }
