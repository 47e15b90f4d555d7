"""Committed offsets of all groups, of coordinators here and on other brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.committed_offsets import AllCommitted, CommittedOffsets
from cordwood.broker.group_offsets import GroupOffsets
from cordwood.broker.replication.replication import ImageBrokers
from cordwood.client.node_connection import NodeAddress
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.model.kafka_errors import CoordinatorLoadInProgressError
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.broker import RunningBroker
from support.aged_topic import AgedTopic
from support.no_engine import NoEngine

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """Three groups have committed offsets."""
    settings = {"offsets.topic.num.partitions": "3"}
    with RunningBroker(settings, engine=NoEngine) as running:
        topic = AgedTopic(running.bootstrap_servers, "t")
        topic.create({})
        topic.commit("a", {0: 7})
        topic.commit("b", {0: 1, 1: 2})
        other = AgedTopic(running.bootstrap_servers, "other")
        other.create({})
        other.commit("c", {0: 9})
        yield running


class Addresses(ImageBrokers):
    """The address of every broker is the same, or not known."""

    def __init__(self, address: NodeAddress | None) -> None:
        self.address = address

    def address_of(self, broker_id: int, listener: str) -> NodeAddress | None:
        assert listener == "PLAINTEXT"
        return self.address


def elsewhere(broker: RunningBroker, address: NodeAddress | None) -> AllCommitted:
    """The committed offsets from a node that coordinates nothing itself."""
    inner = broker.broker
    node_id = inner.node_id + 1
    channels = BrokerChannels(
        Addresses(address), inner.thread, node_id=node_id, listener="PLAINTEXT", timeout_ms=5_000
    )
    offsets = GroupOffsets(inner.groups, inner.metadata, channels, inner.thread, node_id=node_id)
    committed = CommittedOffsets(
        inner.groups, offsets, inner.metadata, channels, inner.thread, node_id=node_id
    )
    found = committed.look_up([FIRST, SECOND])
    broker.call(lambda _: channels.close())
    return found


EXPECTED = {("a", "t-0"): 7, ("b", "t-0"): 1, ("b", "t-1"): 2}


def test_all_groups_are_found_that_have_committed_for_the_partitions(broker: RunningBroker) -> None:
    found = broker.broker.committed_offsets.look_up([FIRST, SECOND])
    assert (found.offsets, found.warnings) == (EXPECTED, [])
    assert broker.broker.committed_offsets.look_up([SECOND]).offsets == {("b", "t-1"): 2}


def test_coordinators_on_other_brokers_are_asked(broker: RunningBroker) -> None:
    found = elsewhere(broker, NodeAddress("127.0.0.1", broker.port))
    assert (found.offsets, found.warnings) == (EXPECTED, [])


def test_a_broker_that_does_not_answer_is_a_warning(broker: RunningBroker) -> None:
    found = elsewhere(broker, None)
    assert found.offsets == {}
    assert found.warnings == ["the consumer groups of broker 1 are not known: it has not answered"]


def test_a_coordinator_that_is_loading_is_a_warning(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_loading(*_: object, **__: object) -> None:
        raise CoordinatorLoadInProgressError("loading")

    committed = broker.broker.committed_offsets
    with monkeypatch.context() as patch:
        patch.setattr(GroupCoordinator, "list_groups", is_loading)
        assert committed.look_up([FIRST]).warnings == [
            "the consumer groups of broker 1 are not known: loading"
        ]
    monkeypatch.setattr(GroupCoordinator, "fetch", is_loading)
    found = committed.look_up([FIRST])
    assert found.offsets == {}
    why = "its coordinator is still loading its offsets"
    assert found.warnings == [
        f"the offsets of group {group} are not known: {why}" for group in ("a", "b", "c")
    ]
