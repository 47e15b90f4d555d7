"""OffsetCommit's answers in every version: encoded by hand if all went well, else by the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.handlers import offset_commit
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import NO_UUID, Plain, Wire

VERSIONS = range(offset_commit.API.min_version, offset_commit.API.max_version + 1)
PARTITIONS = {"t": 3, "l" * 249: 1, "many": 130}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"offsets.topic.num.partitions": "1"}, engine=NoEngine) as broker:
        with Wire(broker.port) as wire:
            topics = [
                {"name": name, "num_partitions": count, "replication_factor": 1}
                for name, count in PARTITIONS.items()
            ]
            wire.ask("create_topics", 5, {"timeout_ms": 10_000, "topics": topics})
            asked = {"key_type": 0, "coordinator_keys": ["g"]}
            poll_until(
                lambda: (
                    wire.ask("find_coordinator", 4, asked)["coordinators"][0]["error_code"]
                    == "none"
                ),
                timeout_s=60,
                what="a coordinator",
            )
        yield broker


def commit(running: RunningBroker, version: int, topics: dict[str, list[int]], text: str) -> Plain:
    ids = running.call(lambda broker: broker.metadata.image.topics)
    with Wire(running.port) as wire:
        values: dict[str, Any] = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "retention_time_ms": -1,
            "topics": [
                {
                    "name": name,
                    "topic_id": known.topic_id if (known := ids.get(name)) else NO_UUID,
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": index,
                            "committed_leader_epoch": -1,
                            "committed_metadata": text,
                        }
                        for index in partitions
                    ],
                }
                for name, partitions in topics.items()
            ],
        }
        return wire.ask("offset_commit", version, values)


def codes(answer: Plain) -> list[list[tuple[int, str]]]:
    return [
        [(each["partition_index"], each["error_code"]) for each in topic["partitions"]]
        for topic in answer["topics"]
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_partitions_are_answered_in_the_order_asked(
    running: RunningBroker, version: int
) -> None:
    topics = {name: list(reversed(range(count))) for name, count in PARTITIONS.items()}
    answer = commit(running, version, topics, "m")
    assert codes(answer) == [[(index, "none") for index in each] for each in topics.values()]
    ids = running.call(lambda broker: broker.metadata.image.topics)
    if version >= 10:
        assert [each["topic_id"] for each in answer["topics"]] == [ids[n].topic_id for n in topics]
    else:
        assert [each["name"] for each in answer["topics"]] == list(topics)
    if version >= 3:
        assert answer["throttle_time_ms"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_that_do_not_exist_come_first(running: RunningBroker, version: int) -> None:
    unknown = "unknown_topic_id" if version >= 10 else "unknown_topic_or_partition"
    answer = commit(running, version, {"t": [0, 7], "none": [0]}, "")
    assert codes(answer) == [[(7, "unknown_topic_or_partition"), (0, "none")], [(0, unknown)]]


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_that_is_too_long_is_refused(running: RunningBroker, version: int) -> None:
    answer = commit(running, version, {"t": [0]}, "m" * 5_000)
    assert codes(answer) == [[(0, "offset_metadata_too_large")]]


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topic_without_partitions_is_answered(running: RunningBroker, version: int) -> None:
    answer = commit(running, version, {"x" * 32_000: [], "t": [0]}, "")
    assert codes(answer) == [[], [(0, "none")]]
