"""Groups of a broker that runs, asked message by message: restarts, expiry, a topic too wide."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.testing.broker import RunningBroker
from support.another_replica import has_another_replica
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import API_KEYS, Wire, request_body

_WAIT_S = 120
_WEEK_DAYS = 7


def started(root: Path, **properties: str) -> RunningBroker:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return RunningBroker(given, log_dir=root, engine=NoEngine)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with started(tmp_path, offsets_topic_num_partitions="4") as running:
        prepare(running)
        yield running


def prepare(broker: RunningBroker) -> None:
    """Makes a topic, and waits for the one of the groups."""
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    with Wire(broker.port) as wire:
        wire.ask("create_topics", 5, {"topics": [topic], "timeout_ms": 10_000})
        poll_until(lambda: coordinator(wire) == "none", timeout_s=_WAIT_S, what="a coordinator")


def coordinator(wire: Wire) -> str:
    answer = wire.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    return str(answer["coordinators"][0]["error_code"])


def commit(wire: Wire, offset: int, *, group: str = "g", topic: str = "t") -> str:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    values: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1}
    values |= {"topics": [{"name": topic, "partitions": [part]}]}
    answer = wire.ask("offset_commit", 8, values)
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def committed(wire: Wire, *, group: str = "g", topic: str = "t") -> int:
    values = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = wire.ask("offset_fetch", 7, values)
    return int(answer["topics"][0]["partitions"][0]["committed_offset"])


def members(broker: RunningBroker) -> int:
    def count(running: Broker) -> int:
        try:
            return len(running.groups.describe("g", ClassicGroup))
        except KafkaError:
            return 0

    return broker.call(count)


def connections(broker: RunningBroker) -> int:
    return broker.call(lambda _: broker.node.server.connection_count)


def groups(wire: Wire) -> list[str]:
    answer = wire.ask("list_groups", 4, {"states_filter": []})
    return sorted(group["group_id"] for group in answer["groups"])


def listed(wire: Wire) -> list[int]:
    """The numbers of the groups, in the order in which they are answered."""
    answer = wire.ask("list_groups", 4, {"states_filter": []})
    return [int(group["group_id"].removeprefix("g-")) for group in answer["groups"]]


#: What a Kafka 4.3 answered whose topic of groups has five partitions, before and after every
#: second group was deleted: partitions as ConcurrentHashMap, groups as TimelineHashMap has them.
LISTED = [15, 9, 4, 10, 7, 22, 18, 13, 2, 14, 19, 8, 3, 23, 20, 16, 11, 0, 5, 12, 17, 6, 1, 21]
LISTED_AFTER = [15, 9, 7, 13, 19, 3, 23, 11, 5, 17, 1, 21]


def test_groups_are_listed_in_the_order_of_kafka(tmp_path: Path) -> None:
    with started(tmp_path, offsets_topic_num_partitions="5") as broker:
        prepare(broker)
        with Wire(broker.port) as wire:
            for number in range(24):
                assert commit(wire, number, group=f"g-{number}") == "none"
            assert listed(wire) == LISTED
            names = [f"g-{number}" for number in range(0, 24, 2)]
            wire.ask("delete_groups", 2, {"groups_names": names})
            assert listed(wire) == LISTED_AFTER


def test_topic_of_the_groups_is_made_when_a_coordinator_is_first_asked_for(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as broker, Wire(broker.port) as wire:
        assert groups(wire) == []
        assert coordinator(wire) == "coordinator_not_available"
        poll_until(lambda: coordinator(wire) == "none", timeout_s=_WAIT_S, what="a coordinator")
        image = broker.call(lambda b: b.metadata.image)
    assert len(image.topics[GROUP_METADATA_TOPIC].partitions) == 50
    assert image.topic_config(GROUP_METADATA_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_no_group_of_the_request_that_creates_the_topic_has_a_coordinator(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Wire(broker.port) as wire:
        asked = {"key_type": 0, "coordinator_keys": ["g", "h"]}
        for expected in ("coordinator_not_available", "none"):
            answer = wire.ask("find_coordinator", 4, asked)
            assert [each["error_code"] for each in answer["coordinators"]] == [expected] * 2


def test_topic_of_more_replicas_than_there_are_brokers_is_not_made(tmp_path: Path) -> None:
    with (
        started(tmp_path, offsets_topic_replication_factor="3") as broker,
        Wire(broker.port) as wire,
    ):
        for _ in range(3):
            assert coordinator(wire) == "coordinator_not_available"
        assert GROUP_METADATA_TOPIC not in broker.call(lambda b: b.metadata.image).topics
        join = {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"}
        assert wire.ask("join_group", 5, join)["error_code"] == "not_coordinator"


def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Wire(broker.port) as wire:
        prepare(broker)
        for number in range(10):
            assert commit(wire, number, group=f"g{number}") == "none"
    with started(tmp_path) as broker, Wire(broker.port) as wire:
        assert groups(wire) == sorted(f"g{number}" for number in range(10))
        assert [committed(wire, group=f"g{number}") for number in range(10)] == list(range(10))


def test_offsets_expire_as_the_clock_goes_on(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        commit(wire, 5)
        broker.advance(days=_WEEK_DAYS - 1, compact=False)
        commit(wire, 6, group="later")
        broker.advance(days=1, minutes=11, compact=False)
        poll_until(lambda: groups(wire) == ["later"], timeout_s=_WAIT_S, what="offsets expire")
        assert (committed(wire), committed(wire, group="later")) == (-1, 6)


def test_deleted_topic_takes_its_offsets_with_it(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        commit(wire, 5)
        wire.ask("delete_topics", 5, {"topic_names": ["t"], "timeout_ms": 10_000})
        poll_until(lambda: committed(wire) == -1, timeout_s=_WAIT_S, what="offsets are gone")


def test_deleted_topic_of_the_groups_is_made_anew(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        commit(wire, 5)
        wire.ask("delete_topics", 5, {"topic_names": [GROUP_METADATA_TOPIC], "timeout_ms": 10_000})
        assert commit(wire, 6) == "not_coordinator"
        assert groups(wire) == []
        poll_until(lambda: coordinator(wire) == "none", timeout_s=_WAIT_S, what="a coordinator")
        assert committed(wire) == -1
        assert commit(wire, 7) == "none"
        assert committed(wire) == 7


def test_offset_commit_is_answered_when_the_other_replicas_have_it(broker: RunningBroker) -> None:
    partition = broker.call(lambda it: it.groups.partition_for("g").partition)

    def replicate(it: Broker, *, value: bool) -> None:
        has_another_replica(it.replicas.partition(GROUP_METADATA_TOPIC, partition), value=value)

    def end_offset() -> int:
        return broker.call(
            lambda it: it.replicas.log(GROUP_METADATA_TOPIC, partition).log_end_offset
        )

    with Wire(broker.port) as wire, Wire(broker.port) as other:
        assert commit(wire, 5) == "none"
        broker.call(lambda it: replicate(it, value=True))
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(commit(wire, 6)))
        before = end_offset()
        asking.start()
        poll_until(lambda: end_offset() > before, timeout_s=_WAIT_S, what="the append")
        assert committed(other) == 5
        assert answers == []
        broker.call(lambda it: replicate(it, value=False))
        asking.join(_WAIT_S)
        assert answers == ["none"]
        assert committed(other) == 6


def test_member_whose_connection_is_gone_does_not_hold_up_the_others(
    broker: RunningBroker,
) -> None:
    join = {
        "group_id": "g",
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    with Wire(broker.port) as wire:
        first = wire.ask("join_group", 3, join)["member_id"]
        with Wire(broker.port) as gone:
            key = API_KEYS["join_group"]
            gone.tell_raw(key, 3, request_body(key, 3, join))
            poll_until(lambda: members(broker) == 2, timeout_s=_WAIT_S, what="the second member")
        poll_until(lambda: connections(broker) == 1, timeout_s=_WAIT_S, what="its end is noticed")
        answer = wire.ask("join_group", 3, join | {"member_id": first})
        assert answer["error_code"] == "none"
        assert len(answer["members"]) == 2
