"""A member of a classic consumer group, of the client under test."""

from __future__ import annotations

import pytest

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer import Consumer
from cordwood.client.group import GroupConsumer
from cordwood.client.offsets import EARLIEST


def member_of(cluster: ClusterClient, group: str, topic: str) -> GroupConsumer:
    """A member that reads a topic from its start; a warning fails the test."""
    return GroupConsumer(
        cluster=cluster,
        consumer=Consumer(cluster=cluster, reset=EARLIEST),
        group_id=group,
        topics=lambda: [topic],
        warn=pytest.fail,
    )
