"""Requests to a controller that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cordwood.client.errors import TimedOutError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.model.clock import SystemClock
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import CreateTopicsRequest, DescribeClusterRequest
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.ports import free_port


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker:
        yield broker


def test_controller_is_asked_where_it_is_by_then(running: RunningBroker) -> None:
    places = [None, NodeAddress("127.0.0.1", free_port()), NodeAddress("127.0.0.1", running.port)]

    async def run() -> Any:
        controller = ActiveController(
            lambda: places.pop(0) if len(places) > 1 else places[0],
            client_id="c",
            clock=SystemClock(),
        )
        try:
            return await controller.ask(DescribeClusterRequest(), timeout_ms=60_000)
        finally:
            controller.close()

    assert len(asyncio.run(run()).brokers) == 1


def test_controller_that_is_not_found_in_time() -> None:
    async def run() -> None:
        controller = ActiveController(lambda: None, client_id="c", clock=SystemClock())
        await controller.ask(DescribeClusterRequest(), timeout_ms=1)

    with pytest.raises(TimedOutError, match="no controller has answered describe_cluster in 1 ms"):
        asyncio.run(run())


@pytest.mark.parametrize("where", ["answer", "topic"])
def test_node_that_is_no_controller_any_more_is_not_the_answer(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = SimpleNamespace(error_code=ErrorCode.NOT_CONTROLLER)
    answers = [
        refused if where == "answer" else SimpleNamespace(topics=[refused]),
        SimpleNamespace(error_code=0, topics=[SimpleNamespace(error_code=0)]),
    ]

    async def call(*_: Any, **__: Any) -> Any:
        return answers.pop(0)

    async def run() -> Any:
        controller = ActiveController(
            lambda: NodeAddress("here", 1), client_id="c", clock=SystemClock()
        )
        return await controller.ask(CreateTopicsRequest(), timeout_ms=60_000)

    monkeypatch.setattr(NodeConnection, "call", call)
    assert asyncio.run(run()).error_code == 0
    assert not answers
