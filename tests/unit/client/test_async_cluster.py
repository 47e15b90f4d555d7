from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from cordwood.client.async_cluster import AsyncCluster
from cordwood.client.core import BrokerEndpoint, ClientSettings
from cordwood.client.errors import BadAddressError, NotSupportedError, TimedOutError
from cordwood.testing.broker import RunningBroker
from support.ports import free_port

T = TypeVar("T")


def run(bootstrap_servers: str, use: Callable[[AsyncCluster], Awaitable[T]]) -> T:
    async def main() -> T:
        settings = ClientSettings(bootstrap_servers=bootstrap_servers)
        async with AsyncCluster(settings, warn=pytest.fail) as cluster:
            return await use(cluster)

    return asyncio.run(main())


def test_calls_at_one_time_share_a_connection(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> int:
        calls = [cluster.call("metadata", {"topics": None}) for _ in range(50)]
        assert len({answer.cluster_id for answer in await asyncio.gather(*calls)}) == 1
        return len(cluster._connections)

    assert run(broker.bootstrap_servers, use) == 1


def test_a_node_is_called_by_its_id(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> None:
        answer = await cluster.call("describe_cluster", {})
        cluster.learn([BrokerEndpoint(int(b.broker_id), b.host, b.port) for b in answer.brokers])
        (node,) = (int(b.broker_id) for b in answer.brokers)
        named = await cluster.call("metadata", {"topics": None}, node_id=node)
        assert int(named.controller_id) == node
        assert (await cluster.versions(node))[18][0] == 0
        assert await cluster.supports("metadata", 9)

    run(broker.bootstrap_servers, use)


def test_an_api_that_no_broker_serves_is_refused(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> None:
        with pytest.raises(NotSupportedError, match="The node does not support VOTE"):
            await cluster.call("vote", {})

    run(broker.bootstrap_servers, use)


def test_a_lost_connection_is_opened_again_under_pipelined_calls(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> None:
        await cluster.call("metadata", {"topics": None})
        (connection,) = cluster._connections.values()
        calls = [asyncio.create_task(cluster.call("metadata", {"topics": None})) for _ in range(9)]
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        assert all(answer.brokers for answer in await asyncio.gather(*calls))
        assert connection not in cluster._connections.values()

    run(broker.bootstrap_servers, use)


def test_a_cancelled_call_leaves_the_others_their_answers(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> None:
        await cluster.call("metadata", {"topics": None})
        cancelled = asyncio.create_task(cluster.call("metadata", {"topics": None}))
        other = asyncio.create_task(cluster.call("metadata", {"topics": None}))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await other).brokers
        assert cancelled.cancelled()
        assert len(cluster._connections) == 1

    run(broker.bootstrap_servers, use)


def test_a_cancelled_call_does_not_cancel_the_connection_that_others_wait_for(
    broker: RunningBroker,
) -> None:
    async def use(cluster: AsyncCluster) -> None:
        first = asyncio.create_task(cluster.call("metadata", {"topics": None}))
        other = asyncio.create_task(cluster.call("metadata", {"topics": None}))
        await asyncio.sleep(0)
        first.cancel()
        assert (await other).brokers
        assert first.cancelled()

    run(broker.bootstrap_servers, use)


def test_a_request_without_an_answer_returns_at_once(broker: RunningBroker) -> None:
    async def use(cluster: AsyncCluster) -> None:
        fields = {"acks": 0, "timeout_ms": 1000, "topic_data": []}
        assert await cluster.call("produce", fields, is_answered=False) is None
        assert (await cluster.call("metadata", {"topics": None})).brokers

    run(broker.bootstrap_servers, use)


def test_a_listener_that_says_nothing_times_out() -> None:
    async def main(port: int) -> None:
        settings = ClientSettings(
            bootstrap_servers=f"127.0.0.1:{port}", api_timeout_ms=100, request_timeout_ms=50
        )
        async with AsyncCluster(settings, warn=pytest.fail) as cluster:
            with pytest.raises(TimedOutError, match="Timed out waiting for a node assignment"):
                await cluster.call("metadata", {"topics": None})

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(silent.getsockname()[1]))


def test_an_address_where_nobody_listens_is_a_warning() -> None:
    port, warnings = free_port(), list[str]()

    async def main() -> None:
        settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{port}", api_timeout_ms=100)
        async with AsyncCluster(settings, warn=warnings.append) as cluster:
            with pytest.raises(TimedOutError):
                await cluster.call("metadata", {"topics": None})

    asyncio.run(main())
    assert f"Connection to node -1 (/127.0.0.1:{port}) could not be established" in warnings[0]


def test_addresses_are_resolved_on_entry() -> None:
    async def main() -> None:
        async with AsyncCluster(ClientSettings(bootstrap_servers="nowhere"), warn=pytest.fail):
            pytest.fail("entered")

    with pytest.raises(BadAddressError, match=r"Invalid url in bootstrap\.servers: nowhere"):
        asyncio.run(main())
