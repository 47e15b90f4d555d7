"""Both shells of the client against a real Kafka: versions, nodes by id, pipelined calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.client.admin import Admin
from cordwood.client.async_cluster import AsyncCluster
from cordwood.client.cluster import Cluster
from cordwood.client.core import BrokerEndpoint, ClientSettings
from cordwood.client.errors import NotSupportedError
from support.kafka import RealKafka

pytestmark = pytest.mark.kafka
TOPICS = [f"topic-{number}" for number in range(20)]


@pytest.fixture(scope="module")
def settings(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientSettings]:
    with RealKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        kafka.start()
        yield ClientSettings(bootstrap_servers=kafka.bootstrap_servers)


def test_both_shells_reach_a_real_kafka(settings: ClientSettings) -> None:
    with Cluster(settings, warn=pytest.fail) as blocking:
        for topic in TOPICS:
            Admin(blocking).create_topic(topic, partitions=1, replication_factor=1)
        (node,) = Admin(blocking).describe_cluster().nodes
        versions = blocking.versions(node.id)
        with pytest.raises(NotSupportedError):
            blocking.call("vote", {})
    assert asyncio.run(seen_by_asyncio(settings)) == (node, versions, sorted(TOPICS))


async def seen_by_asyncio(
    settings: ClientSettings,
) -> tuple[BrokerEndpoint, object, list[str]]:
    async with AsyncCluster(settings, warn=pytest.fail) as cluster:
        with pytest.raises(NotSupportedError):
            await cluster.call("vote", {})
        (found,) = (await cluster.call("describe_cluster", {})).brokers
        node = BrokerEndpoint(int(found.broker_id), found.host, found.port, found.rack)
        cluster.learn([node])
        wanted = [
            cluster.call("metadata", {"topics": [{"name": topic}]}, node_id=node.id)
            for topic in TOPICS
        ]
        topics = [answer.topics[0].name for answer in await asyncio.gather(*wanted)]
        return node, await cluster.versions(node.id), sorted(topics)
