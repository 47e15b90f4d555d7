"""Requests that few clients send, and what a broker answers as Kafka does."""

from __future__ import annotations

from cordwood.broker.broker import Broker
from cordwood.broker.replication.isr_changes import LedBy
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire


def create(wire: Wire, name: str) -> None:
    asked = {"name": name, "num_partitions": 1, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout": 5000, "topics": [asked]})


def test_a_follower_describes_producers() -> None:
    def follow(broker: Broker) -> None:
        led = broker.replicas.partitions["t"].pop(0)
        broker.replicas._followed[LedBy(led.topic_id, 0)] = led

    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        create(wire, "t")
        running.call(follow)
        asked = {"topics": [{"name": "t", "partition_indexes": [0]}]}
        (partition,) = wire.ask("describe_producers", 0, asked)["topics"][0]["partitions"]
    assert partition["error_code"] == "none"


def test_no_directory_is_altered_for_a_topic_whose_future_log_would_have_too_long_a_name() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        codes = {}
        for length in (213, 214, 249):
            name = "x" * length
            create(wire, name)
            topics = [{"name": name, "partitions": [0]}]
            asked = {"dirs": [{"path": "/no/such/directory", "topics": topics}]}
            answer = wire.ask("alter_replica_log_dirs", 2, asked)
            codes[length] = answer["results"][0]["partitions"][0]["error_code"]
    assert codes == {
        213: "log_dir_not_found",
        214: "invalid_topic_exception",
        249: "invalid_topic_exception",
    }


def test_a_broker_of_classic_groups_alone_has_no_consumer_groups() -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with RunningBroker(settings, engine=NoEngine) as running, Wire(running.port) as wire:
        heartbeat = wire.ask("consumer_group_heartbeat", 1, {"group_id": "g", "member_id": "m"})
        described = wire.ask("consumer_group_describe", 1, {"group_ids": ["g"]})
    assert heartbeat["error_code"] == "unsupported_version"
    assert described["groups"][0]["error_code"] == "unsupported_version"
