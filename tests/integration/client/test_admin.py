from __future__ import annotations

import pytest

from cordwood.client.admin import Admin, by_topic
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.model.topic_partition import TopicPartition


def test_a_topic_is_created_described_grown_and_deleted(cluster: ClusterClient) -> None:
    admin = Admin(cluster)
    admin.create_topic("life", partitions=2, configs={"retention.ms": "5"})
    (topic,) = admin.describe_topics(["life"])
    assert [p.partition for p in topic.partitions] == [0, 1]
    admin.create_partitions({"life": 5})
    (topic,) = admin.describe_topics(["life"], partitions_max=2)
    assert [p.partition for p in topic.partitions] == [0, 1, 2, 3, 4], "in several answers"
    assert topic.topic_id is not None
    assert [t.name for t in admin.topics_by_id([topic.topic_id])] == ["life"]
    admin.delete_topics(["life"])
    assert "life" not in [t.name for t in admin.topics()]


def test_what_a_broker_refuses_is_an_error_with_its_code(cluster: ClusterClient) -> None:
    admin = Admin(cluster)
    admin.create_topic("twice")
    with pytest.raises(RefusedError, match=r"Topic 'twice' already exists\.") as caught:
        admin.create_topic("twice")
    assert caught.value.code == 36
    with pytest.raises(RefusedError) as caught:
        admin.topics(["none"])
    assert caught.value.code == 3


def test_log_dirs_tell_what_is_in_them(cluster: ClusterClient) -> None:
    admin = Admin(cluster)
    admin.create_topic("sized")
    (node,) = admin.describe_cluster().nodes
    (found,) = admin.describe_log_dirs(node.id)
    assert found.error_code == 0
    assert found.replicas[TopicPartition("sized", 0)].size_bytes == 0


def test_partitions_are_gathered_by_topic() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    assert by_topic(partitions) == {"b": [1, 0], "a": [0]}
