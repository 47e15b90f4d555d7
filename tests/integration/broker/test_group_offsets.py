"""A broker keeps what a group has not consumed: stock clients, under a clock that is moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.group_offsets import GroupOffsets
from cordwood.broker.replication.replication import ImageBrokers
from cordwood.cleanup.rules.group_guard import Consumed, GroupPosition
from cordwood.client.node_connection import NodeAddress
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.model import topic_partition
from cordwood.model.kafka_errors import CoordinatorLoadInProgressError
from cordwood.testing.broker import RunningBroker
from support.commits import commit
from support.no_engine import NoEngine

HOUR_MS = 3_600_000
PARTITION = topic_partition.TopicPartition("t", 0)


def make_topic(broker: RunningBroker) -> None:
    config = {
        "retention.ms": str(HOUR_MS),
        "segment.ms": "1000",
        "cordwood.retention.groups": "readers",
        "cordwood.retention.groups.max.ms": str(48 * HOUR_MS),
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)


def produce(broker: RunningBroker, segments: int) -> None:
    """Segments of ten records each, two seconds apart."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(segments):
        for number in range(10):
            producer.produce("t", b"%d" % number, timestamp=broker.now_ms())
        assert producer.flush(30) == 0
        broker.advance(compact=False, seconds=2)


def start_of(broker: RunningBroker) -> int:
    def start(running: Any) -> int:
        return int(running.replicas.log("t", 0).log_start_offset)

    return broker.call(start)


def looked_up(broker: RunningBroker) -> Consumed:
    groups = broker.node.cleaner.manager.groups
    assert groups.source is not None
    return groups.source({PARTITION: ("readers",)})[PARTITION]


def test_a_stopped_groups_unread_data_is_kept_until_it_commits_or_the_limit_takes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker:
        make_topic(broker)
        produce(broker, 4)
        broker.advance(compact=False, hours=10)
        assert start_of(broker) == 0, "it has never committed"
        commit(broker.bootstrap_servers, "readers", [TopicPartition("t", 0, 25)])
        broker.advance(compact=False, minutes=5)
        assert start_of(broker) == 20
        broker.advance(compact=False, hours=10)
        assert start_of(broker) == 20
    with RunningBroker(log_dir=tmp_path, engine=NoEngine, clock=broker.clock) as broker:

        def is_loading(*_: object, **__: object) -> None:
            raise CoordinatorLoadInProgressError("loading")

        with monkeypatch.context() as patch:
            patch.setattr(GroupCoordinator, "fetch", is_loading)
            assert "still loading" in looked_up(broker).position("readers").unknown
            broker.advance(compact=False, minutes=5)
        assert start_of(broker) == 20
        assert looked_up(broker).position("readers").committed == 25
        caplog.clear()
        broker.advance(compact=False, hours=48)
        assert start_of(broker) == 40
        assert (
            "t-0: group readers lost offsets 25 to 39 (both inclusive), at most 15 records, by "
            "cordwood.retention.groups.max.ms" in caplog.text
        )
        losses = broker.node.cleaner.manager.groups.losses
        (noted,) = losses.of(PARTITION)
        assert (noted.loss.first_offset, noted.loss.last_offset) == (25, 39)
        assert losses.offsets() == {("t", "readers"): 15}


def test_a_group_without_an_offsets_topic_has_committed_nothing() -> None:
    with RunningBroker(engine=NoEngine) as broker:
        position = looked_up(broker).position("readers")
    assert (position.committed, position.unknown) == (None, "")


def test_a_coordinator_elsewhere_is_asked_and_without_an_answer_nothing_is_known() -> None:
    with RunningBroker(engine=NoEngine) as broker:
        make_topic(broker)
        commit(broker.bootstrap_servers, "readers", [TopicPartition("t", 0, 7)])
        inner = broker.broker
        addresses = Addresses(NodeAddress("127.0.0.1", broker.port))

        def look_up(node_id: int) -> Consumed:
            channels = BrokerChannels(
                addresses, inner.thread, node_id=node_id, listener="PLAINTEXT", timeout_ms=5_000
            )
            offsets = GroupOffsets(
                inner.groups, inner.metadata, channels, inner.thread, node_id=node_id
            )
            found = offsets.look_up({PARTITION: ("readers", "others")})[PARTITION]
            broker.call(lambda _: channels.close())
            return found

        # As a node that leads nothing, it asks the leader, which is the broker itself.
        found = look_up(node_id=inner.node_id + 1)
        assert addresses.asked == [inner.node_id]
        assert found.position("readers").committed == 7
        assert found.position("others") == GroupPosition(group="others")
        addresses.address = None
        assert look_up(node_id=inner.node_id + 1).position("readers").unknown == (
            "its coordinator has not answered"
        )


class Addresses(ImageBrokers):
    """The address of every broker is the same, or not known."""

    def __init__(self, address: NodeAddress | None) -> None:
        self.address = address
        self.asked: list[int] = []

    def address_of(self, broker_id: int, listener: str) -> NodeAddress | None:
        assert listener == "PLAINTEXT"
        if self.address is not None:
            self.asked.append(broker_id)
        return self.address
