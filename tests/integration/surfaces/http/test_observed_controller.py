"""The HTTP endpoint of a node that is a controller alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cordwood.configs.server_properties import BrokerSettings
from cordwood.model.clock import MovableClock
from cordwood.node.controller_node import ControllerNode
from cordwood.surfaces.http.endpoint import HttpEndpoint, listen
from cordwood.surfaces.http.observed import ObservedController
from support.scrape import HttpAnswer, Probe

HOUR_MS = 3_600_000


def settings(log_dir: Path) -> BrokerSettings:
    given = {
        "process.roles": "controller",
        "node.id": "7",
        "log.dirs": str(log_dir),
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "7@127.0.0.1:1",
    }
    return BrokerSettings(given, source="a test")


def with_controller(
    log_dir: Path, do: Callable[[Callable[..., Awaitable[HttpAnswer]], ControllerNode], Any]
) -> None:
    """Calls `do` with a function that asks the endpoint, while the node's loop runs."""

    async def run() -> None:
        node = ControllerNode(settings(log_dir), clock=MovableClock(HOUR_MS))
        await node.start()
        endpoint = HttpEndpoint(ObservedController(node), listen(0))
        probe = Probe(endpoint)

        async def ask(path: str, method: str = "GET") -> HttpAnswer:
            return await asyncio.to_thread(probe.ask, path, method)

        try:
            await do(ask, node)
        finally:
            endpoint.close()
            await node.stop()

    asyncio.run(run())


def test_a_controller_says_what_it_is_and_that_it_serves(tmp_path: Path) -> None:
    async def check(ask: Callable[..., Awaitable[HttpAnswer]], node: ControllerNode) -> None:
        identity = json.loads((await ask("/broker")).text)
        assert identity["role"] == "controller"
        assert identity["node_id"] == 7
        assert identity["log_dirs"] == [str(tmp_path)]
        health = json.loads((await ask("/health")).text)
        assert health["status"] == "ok"
        assert health["cluster_id"] == node.cluster_id

    with_controller(tmp_path, check)


def test_the_clock_of_a_controller_is_advanced(tmp_path: Path) -> None:
    async def check(ask: Callable[..., Awaitable[HttpAnswer]], _: ControllerNode) -> None:
        assert json.loads((await ask("/clock")).text)["ahead_ms"] == HOUR_MS
        advanced = await ask(f"/clock/advance?ms={HOUR_MS}", "POST")
        assert json.loads(advanced.text)["ahead_ms"] == 2 * HOUR_MS

    with_controller(tmp_path, check)


def test_a_controller_has_its_own_metrics_and_none_of_a_broker(tmp_path: Path) -> None:
    async def check(ask: Callable[..., Awaitable[HttpAnswer]], _: ControllerNode) -> None:
        text = (await ask("/metrics")).text
        for name in (
            *("activecontrollercount 1.0", "fencedbrokercount 0.0", "activebrokercount 0.0"),
            *("globaltopiccount 0.0", "globalpartitioncount 0.0", "offlinepartitionscount 0.0"),
            *("preferredreplicaimbalancecount 0.0", "lastappliedrecordoffset "),
        ):
            assert f"kafka_controller_kafkacontroller_{name}" in text
        assert "kafka_server_raftmetrics_current_leader 7.0" in text
        assert "kafka_server_replicamanager" not in text
        assert "kafka_server_brokermetadatametrics" not in text

    with_controller(tmp_path, check)


def test_a_controller_has_no_cleaner(tmp_path: Path) -> None:
    async def check(ask: Callable[..., Awaitable[HttpAnswer]], _: ControllerNode) -> None:
        answer = await ask("/cleaner")
        assert answer.status == 404
        assert "/health" in answer.text

    with_controller(tmp_path, check)
