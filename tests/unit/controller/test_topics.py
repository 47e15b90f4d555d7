"""Topics made, deleted and enlarged: Kafka's checks, in its order and words."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cordwood.configs.resource import ConfigResource
from cordwood.controller import registration
from cordwood.controller.controller import Controller
from cordwood.metadata.controller_requests import (
    CreatedTopic,
    DirectoryAssignment,
    NewPartitions,
    NewTopic,
)
from cordwood.metadata.image import UNASSIGNED_DIRECTORY
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    InvalidConfigError,
    KafkaError,
    PolicyViolationError,
    TopicDeletionDisabledError,
)
from support.controller_under_test import ControllerUnderTest, requests_to

BY_HAND: dict[str, Any] = {"num_partitions": -1, "replication_factor": -1}


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(tmp_path / "d", num_partitions=4)


@pytest.fixture
def controller(place: ControllerUnderTest) -> Controller:
    return place.serve()


def said(result: CreatedTopic | KafkaError | None) -> tuple[int, str]:
    """The code and the text of an error."""
    assert isinstance(result, KafkaError), result
    return result.code, str(result)


def test_a_topic_is_led_by_the_broker_in_its_directory(
    place: ControllerUnderTest, controller: Controller
) -> None:
    (made,) = requests_to(controller).create_topics(
        [NewTopic(name="t", num_partitions=2, configs={"retention.ms": "5"})]
    )
    assert isinstance(made, CreatedTopic), made
    assert (made.name, made.num_partitions, made.replication_factor) == ("t", 2, 1)
    topic = controller.image.topics["t"]
    assert topic.topic_id == made.topic_id
    assert controller.image.topic_names[made.topic_id] == "t"
    assert controller.image.topic_config("t") == {"retention.ms": "5"}
    assert list(topic.partitions) == [0, 1]
    for partition in topic.partitions.values():
        assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(place.ids)


def test_with_several_directories_the_broker_chooses_and_tells(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", tmp_path / "e")
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    topic = controller.image.topics["t"]
    assert topic.partitions[0].directories == (UNASSIGNED_DIRECTORY,)
    chosen = place.ids[1]
    own = DirectoryAssignment(topic.topic_id, 0, chosen)
    foreign = DirectoryAssignment(uuid.uuid4(), 0, chosen)
    errors = controller.assign_directories(1, [own, foreign])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    partition = controller.image.topics["t"].partitions[0]
    assert (partition.directories, partition.partition_epoch) == ((chosen,), 1)
    before = controller.image.offset
    controller.assign_directories(1, [own])
    assert controller.image.offset == before


def test_defaults_are_the_brokers(controller: Controller) -> None:
    (made,) = requests_to(controller).create_topics([NewTopic(name="t")])
    assert isinstance(made, CreatedTopic)
    assert (made.num_partitions, made.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("topic", "code", "text"),
    [
        ({"name": "t"}, 36, "Topic 't' already exists."),
        ({"name": "a_b"}, 17, "Topic 'a_b' collides with existing topic: a.b"),
        ({"name": ""}, 17, "Topic name is invalid: the empty string is not allowed"),
        (
            {"name": "n", "configs": {"retention.ms": None, "x": None}},
            40,
            "Null value not supported for topic configs: retention.ms,x",
        ),
        (
            {"name": "n", "num_partitions": 0},
            37,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            {"name": "n", "replication_factor": 0},
            38,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            {"name": "n", "replication_factor": 2},
            38,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all "
            "their log directories cordoned.",
        ),
        (
            {"name": "n", "num_partitions": 1, "assignments": [(0, [1])]},
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            {"name": "n", "replication_factor": 1, "assignments": [(0, [1])]},
            42,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        ),
        (
            {"name": "n", "assignments": [(0, [1]), (0, [1])]},
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            {"name": "n", "assignments": [(0, [9])]},
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            {"name": "n", "assignments": [(0, [1, 1])]},
            39,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            {"name": "n", "assignments": [(0, [])]},
            39,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            {"name": "n", "assignments": [(1, [1])]},
            39,
            "partitions should be a consecutive 0-based integer sequence",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_the_rest_is_made(
    controller: Controller, topic: dict[str, Any], code: int, text: str
) -> None:
    requests_to(controller).create_topics([NewTopic(name="t"), NewTopic(name="a.b")])
    refused, made = requests_to(controller).create_topics(
        [NewTopic(**topic), NewTopic(name="other")]
    )
    assert said(refused) == (code, text)
    assert isinstance(made, CreatedTopic)
    assert set(controller.image.topics) == {"t", "a.b", "other"}


def test_partitions_assigned_by_hand(controller: Controller) -> None:
    (made,) = requests_to(controller).create_topics(
        [NewTopic(name="t", assignments=[(1, [1]), (0, [1])])]
    )
    assert isinstance(made, CreatedTopic)
    assert made.num_partitions == 2


def test_settings_are_checked_after_the_name_and_before_the_partitions(
    controller: Controller,
) -> None:
    requests_to(controller).create_topics([NewTopic(name="t")])

    def refuse(_configs: object) -> None:
        raise InvalidConfigError("no")

    configs = {"x": "1"}
    controller.check_topic_configs = refuse
    results = requests_to(controller).create_topics(
        [
            NewTopic(name="t", configs=configs),
            NewTopic(name="n", configs=configs, num_partitions=0),
            NewTopic(name="without"),
        ]
    )
    assert [each.code if isinstance(each, KafkaError) else 0 for each in results] == [36, 40, 0]


def test_min_insync_replicas_has_eligible_leaders_forgotten(
    place: ControllerUnderTest, controller: Controller
) -> None:
    requests_to(controller).create_topics(
        [NewTopic(name="t", configs={"min.insync.replicas": "1"})]
    )
    names = [name for name, _ in place.batches()[-1]]
    assert names[:3] == ["TopicRecord", "ConfigRecord", "ClearElrRecord"]


def test_validate_only_makes_nothing(controller: Controller) -> None:
    before = controller.image
    (made,) = requests_to(controller).create_topics([NewTopic(name="t")], validate_only=True)
    assert isinstance(made, CreatedTopic)
    assert controller.image is before
    assert requests_to(controller).create_partitions(
        [NewPartitions(topic="t", count=2)], validate_only=True
    )[0]


def test_more_than_ten_thousand_records_are_refused_whole(controller: Controller) -> None:
    before = controller.image
    many = NewTopic(name="many", num_partitions=10_001)
    with pytest.raises(PolicyViolationError, match="Excessively large number of partitions"):
        requests_to(controller).create_topics([NewTopic(name="t"), many])
    many = NewTopic(name="many", num_partitions=10_000)
    with pytest.raises(PolicyViolationError, match="excessively large batch operation"):
        requests_to(controller).create_topics([many])
    assert controller.image is before


def test_more_than_ten_thousand_additional_partitions_are_refused_whole(
    controller: Controller,
) -> None:
    asked = requests_to(controller)
    asked.create_topics([NewTopic(name="t"), NewTopic(name="u")])
    before = controller.image
    few = NewPartitions(topic="t", count=6_000)
    with pytest.raises(PolicyViolationError, match="number of additional partitions per request"):
        asked.create_partitions([few, NewPartitions(topic="u", count=5_002)])
    assert controller.image is before
    others = [NewPartitions(topic="u", count=-9_000), NewPartitions(topic="none", count=9_000)]
    (first, *refused) = asked.create_partitions([few, *others], validate_only=True)
    assert first is None
    assert [said(each)[0] for each in refused] == [37, 3]


def test_deleting_by_name_and_by_id(controller: Controller) -> None:
    first, second = requests_to(controller).create_topics(
        [NewTopic(name="t", configs={"retention.ms": "5"}), NewTopic(name="u")]
    )
    assert isinstance(second, CreatedTopic)
    unknown = uuid.uuid4()
    results = requests_to(controller).delete_topics(["t", second.topic_id, "nope", unknown])
    assert results[:2] == [None, None]
    assert said(results[2]) == (3, "This server does not host this topic-partition.")
    assert said(results[3]) == (100, "This server does not host this topic ID.")
    assert not controller.image.topics
    assert not controller.image.topic_config("t")
    (again,) = requests_to(controller).create_topics([NewTopic(name="t")])
    assert isinstance(first, CreatedTopic)
    assert isinstance(again, CreatedTopic)
    assert again.topic_id != first.topic_id


def test_deleting_can_be_switched_off(tmp_path: Path) -> None:
    controller = ControllerUnderTest(tmp_path / "d", delete_topic_enable=False).serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    with pytest.raises(TopicDeletionDisabledError):
        requests_to(controller).delete_topics(["t"])
    assert "t" in controller.image.topics


def test_a_topic_gets_more_partitions(controller: Controller) -> None:
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=1)])
    results = requests_to(controller).create_partitions(
        [NewPartitions(topic="t", count=3, assignments=[[1], [1]])]
    )
    assert results == [None]
    topic = controller.image.topics["t"]
    assert {number: each.leader for number, each in topic.partitions.items()} == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        ({"topic": "nope", "count": 2}, 3, ""),
        ({"topic": "t", "count": 2}, 37, "Topic already has 2 partition(s)."),
        (
            {"topic": "t", "count": 1},
            37,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            {"topic": "t", "count": 4, "assignments": [[1]]},
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            {"topic": "t", "count": 3, "assignments": [[1, 1]]},
            39,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ],
)
def test_partitions_that_cannot_be_added(
    controller: Controller, wanted: dict[str, Any], code: int, text: str
) -> None:
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=2)])
    before = controller.image
    assert said(requests_to(controller).create_partitions([NewPartitions(**wanted)])[0]) == (
        code,
        text,
    )
    assert controller.image is before


def test_while_the_broker_is_fenced_no_topic_is_made(place: ControllerUnderTest) -> None:
    controller = place.open()
    (refused,) = requests_to(controller).create_topics([NewTopic(name="t")])
    assert said(refused) == (
        38,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have "
        "all their log directories cordoned.",
    )
    (by_hand,) = requests_to(controller).create_topics([NewTopic(name="t", assignments=[(0, [1])])])
    assert said(by_hand) == (
        39,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or "
        "in controlled shutdown.",
    )


def cordon(controller: Controller, directories: Sequence[uuid.UUID]) -> None:
    view = controller.view()
    controller.commit(registration.cordoning(view, view.image.brokers[1], directories))


def test_cordoned_directories_take_no_topic(
    place: ControllerUnderTest, controller: Controller
) -> None:
    cordon(controller, place.ids)
    (refused,) = requests_to(controller).create_topics([NewTopic(name="t")])
    assert said(refused)[0] == 38
    (by_hand,) = requests_to(controller).create_topics([NewTopic(name="t", assignments=[(0, [1])])])
    assert said(by_hand) == (
        39,
        "The manual partition assignment includes broker 1, but all its log directories are "
        "cordoned.",
    )
    cordon(controller, [])
    (made,) = requests_to(controller).create_topics([NewTopic(name="t")])
    assert isinstance(made, CreatedTopic)


def test_settings_of_a_topic_go_with_it(controller: Controller) -> None:
    requests_to(controller).create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
    assert (ConfigResource.TOPIC, "t") in controller.image.configs
    requests_to(controller).delete_topics(["t"])
    assert (ConfigResource.TOPIC, "t") not in controller.image.configs
