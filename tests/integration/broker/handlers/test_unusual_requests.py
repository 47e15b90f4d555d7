"""Requests that few clients send, and what a broker answers as Kafka does."""

from __future__ import annotations

import pytest

from cordwood.broker.broker import Broker
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Plain, Wire


def create(wire: Wire, name: str) -> None:
    asked = {"name": name, "num_partitions": 1, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": [asked]})


def test_a_follower_describes_producers() -> None:
    def follow(broker: Broker) -> None:
        led = broker.replicas.partitions["t"].pop(0)
        broker.replicas.followed._partitions[TopicIdPartition(led.topic_id, 0)] = led

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


@pytest.mark.parametrize("require_stable", [False, True])
def test_offsets_are_fetched_by_members_of_a_consumer_group_in_their_epoch(
    require_stable: bool,
) -> None:
    def fetched(wire: Wire, **member: object) -> str:
        group = {"group_id": "g", "topics": None, **member}
        asked = {"groups": [group], "require_stable": require_stable}
        code: str = wire.ask("offset_fetch", 9, asked)["groups"][0]["error_code"]
        return code

    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        create(wire, "t")
        join = {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        sought = {"key_type": 0, "coordinator_keys": ["g"]}

        def joins() -> Plain | None:
            wire.ask("find_coordinator", 4, sought)  # makes its topic
            answer = wire.ask("consumer_group_heartbeat", 1, join)
            return answer if answer["error_code"] == "none" else None

        joined = poll_until(joins, timeout_s=60, what="the coordinator")
        epoch = joined["member_epoch"]
        assert fetched(wire) == "none"
        assert fetched(wire, member_id="m", member_epoch=epoch) == "none"
        assert fetched(wire, member_id="m", member_epoch=epoch + 1) == "stale_member_epoch"
        assert fetched(wire, member_id="m", member_epoch=epoch - 1) == "stale_member_epoch"
        assert fetched(wire, member_id="other", member_epoch=epoch) == "unknown_member_id"
        assert fetched(wire, member_id="", member_epoch=-1) == "unknown_member_id"


def test_a_broker_of_classic_groups_alone_has_no_consumer_groups() -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with RunningBroker(settings, engine=NoEngine) as running, Wire(running.port) as wire:
        heartbeat = wire.ask("consumer_group_heartbeat", 1, {"group_id": "g", "member_id": "m"})
        described = wire.ask("consumer_group_describe", 1, {"group_ids": ["g"]})
    assert heartbeat["error_code"] == "unsupported_version"
    assert described["groups"][0]["error_code"] == "unsupported_version"
