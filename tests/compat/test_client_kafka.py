"""The client against a real Kafka: versions, nodes by id, requests beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.errors import NotSupportedError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.client.settings import ClientSettings
from cordwood.protocol.data import DescribeClusterRequest, MetadataRequest, VoteRequest
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


def test_both_kinds_of_connections_reach_a_real_kafka(settings: ClientSettings) -> None:
    with ClusterClient(settings, warn=pytest.fail) as blocking:
        for topic in TOPICS:
            Admin(blocking).create_topic(topic, partitions=1, replication_factor=1)
        (node,) = Admin(blocking).describe_cluster().nodes
        versions = blocking.versions(node.id)
        with pytest.raises(NotSupportedError):
            blocking.call(VoteRequest())
    assert asyncio.run(seen_by_asyncio(node)) == (node, versions, sorted(TOPICS))


async def seen_by_asyncio(node: BrokerEndpoint) -> tuple[BrokerEndpoint, object, list[str]]:
    connection = NodeConnection(
        lambda: NodeAddress(node.host, node.port), client_id="c", timeout_s=30
    )
    with pytest.raises(NotSupportedError):
        await connection.call(VoteRequest())
    (found,) = (await connection.call(DescribeClusterRequest())).brokers
    wanted = [
        connection.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]))
        for topic in TOPICS
    ]
    topics = [str(answer.topics[0].name) for answer in await asyncio.gather(*wanted)]
    connection.close()
    seen = BrokerEndpoint(int(found.broker_id), found.host, found.port, found.rack)
    return seen, connection.versions, sorted(topics)
