from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from cordwood.client.errors import (
    DisconnectedError,
    NotSupportedError,
    TimedOutError,
    UnservedProtocolError,
)
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.protocol.data import AlterPartitionRequest, DescribeClusterRequest, MetadataRequest
from cordwood.testing.broker import RunningBroker
from support.ports import free_port


def to(port: int, *, timeout_s: float = 60) -> NodeConnection:
    return NodeConnection(
        lambda: NodeAddress("127.0.0.1", port), client_id="c", timeout_s=timeout_s
    )


def test_requests_of_a_connection_are_answered_beside_each_other(broker: RunningBroker) -> None:
    async def run() -> list[Any]:
        node = to(broker.port)
        try:
            answers = await asyncio.gather(
                *(node.call(DescribeClusterRequest()) for _ in range(50))
            )
            node.close()  # the next request opens another
            return [*answers, await node.call(DescribeClusterRequest())]
        finally:
            node.close()

    assert [len(each.brokers) for each in asyncio.run(run())] == [1] * 51


def test_a_cancelled_request_leaves_the_others_their_answers(broker: RunningBroker) -> None:
    async def run(*, is_open: bool) -> None:
        node = to(broker.port)
        if is_open:
            await node.call(DescribeClusterRequest())
        cancelled, other = (
            asyncio.create_task(node.call(DescribeClusterRequest())) for _ in range(2)
        )
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await other).brokers
        assert cancelled.cancelled()
        node.close()

    for is_open in (True, False):
        asyncio.run(run(is_open=is_open))


def test_requests_on_a_connection_that_is_lost_fail(broker: RunningBroker) -> None:
    async def run() -> None:
        node = to(broker.port)
        await node.call(DescribeClusterRequest())
        waiting = [asyncio.create_task(node.call(DescribeClusterRequest())) for _ in range(3)]
        await asyncio.sleep(0)
        node.close()
        for each in waiting:
            with pytest.raises(DisconnectedError, match="closed the connection"):
                await each

    asyncio.run(run())


def test_a_node_that_moves_is_asked_where_it_is_by_then(broker: RunningBroker) -> None:
    async def run() -> None:
        address: NodeAddress | None = None
        node = NodeConnection(lambda: address, client_id="c", timeout_s=60)
        with pytest.raises(DisconnectedError, match="the address of the node is not known"):
            await node.call(DescribeClusterRequest())
        assert not node.versions
        address = NodeAddress("127.0.0.1", broker.port)
        assert (await node.call(DescribeClusterRequest())).brokers
        assert node.versions
        address = NodeAddress("127.0.0.1", free_port())
        with pytest.raises(DisconnectedError, match="no connection to 127"):
            await node.call(DescribeClusterRequest())
        assert not node.versions

    asyncio.run(run())


def test_an_api_that_the_node_does_not_serve_is_not_asked_for(broker: RunningBroker) -> None:
    async def run() -> None:
        node = to(broker.port)
        with pytest.raises(NotSupportedError, match="ALTER_PARTITION"):
            await node.call(AlterPartitionRequest())
        assert (await node.call(DescribeClusterRequest())).brokers
        node.close()

    asyncio.run(run())


def test_a_node_that_says_nothing_times_out() -> None:
    async def run(port: int) -> None:
        with pytest.raises((DisconnectedError, TimedOutError)):
            await to(port, timeout_s=0.05).call(MetadataRequest())

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(run(silent.getsockname()[1]))


def test_a_listener_with_a_protocol_that_is_not_served_is_never_plain(
    broker: RunningBroker,
) -> None:
    async def run() -> None:
        address = NodeAddress("127.0.0.1", broker.port, SecurityProtocol.SSL)
        node = NodeConnection(lambda: address, client_id="c", timeout_s=60)
        with pytest.raises(UnservedProtocolError, match=r"^SSL is not supported: use PLAINTEXT$"):
            await node.call(MetadataRequest())

    asyncio.run(run())
