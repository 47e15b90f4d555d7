"""Log directories that fail, and partitions in them, record by record as Kafka 4.3 writes it."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.controller.controller import Controller
from cordwood.metadata.controller_requests import CreatedTopic, DirectoryAssignment, NewTopic
from cordwood.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)
from cordwood.model.kafka_errors import StorageError
from cordwood.model.uuids import uuid_text, uuid_texts
from cordwood.storage.disk_reserve import RESERVE
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.controller_under_test import ControllerUnderTest, requests_to


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(*(tmp_path / name for name in "abc"))


def with_topic(place: ControllerUnderTest) -> Controller:
    """A controller with a topic whose three partitions lie in one directory each."""
    controller = place.serve()
    (made,) = requests_to(controller).create_topics([NewTopic(name="t", num_partitions=3)])
    assert isinstance(made, CreatedTopic)
    topic_id = controller.image.topics["t"].topic_id
    controller.assign_directories(
        1, (DirectoryAssignment(topic_id, n, each) for n, each in enumerate(place.ids))
    )
    return controller


def partition(controller: Controller, number: int) -> PartitionImage:
    return controller.image.topics["t"].partitions[number]


def test_a_dead_directory_takes_leaders_away_and_leaves_the_registration(
    place: ControllerUnderTest,
) -> None:
    controller = with_topic(place)
    dead = place.ids[1]
    requests_to(controller).directories_failed({dead})
    changed, registration = place.batches()[-1]
    assert changed == (
        "PartitionChangeRecord",
        {
            "partitionId": 1,
            "topicId": uuid_text(controller.image.topics["t"].topic_id),
            "isr": [],
            "leader": -1,
            "eligibleLeaderReplicas": [1],
            "lastKnownElr": [1],
        },
    )
    left = sorted(
        (each for each in place.ids if each != dead),
        key=lambda each: struct.unpack(">qq", each.bytes),
    )
    epoch = controller.broker_epoch
    assert registration == (
        "BrokerRegistrationChangeRecord",
        {"brokerId": 1, "brokerEpoch": epoch, "logDirs": uuid_texts(left)},
    )
    assert partition(controller, 1).directories == (dead,)
    assert [partition(controller, n).leader for n in range(3)] == [1, NO_LEADER, 1]


def test_what_is_known_to_have_failed_is_not_written_again(place: ControllerUnderTest) -> None:
    controller = with_topic(place)
    requests_to(controller).directories_failed({place.ids[1]})
    count = len(place.batches())
    requests_to(controller).directories_failed({place.ids[1]})
    assert len(place.batches()) == count


def test_partitions_lead_again_when_their_directory_is_registered_again(
    place: ControllerUnderTest,
) -> None:
    controller = with_topic(place)
    dead = place.ids[2]
    requests_to(controller).directories_failed({dead})
    controller.close()
    epoch = controller.broker_epoch
    controller = place.open(
        previous_broker_epoch=epoch, online=[each for each in place.ids if each != dead]
    )
    controller.unfence()
    assert [partition(controller, n).leader for n in range(3)] == [1, 1, NO_LEADER]
    assert dead not in controller.image.brokers[1].log_dirs
    controller.close()
    controller = place.serve(previous_broker_epoch=controller.broker_epoch)
    assert [partition(controller, n).leader for n in range(3)] == [1, 1, 1]


def test_a_replica_that_is_found_again_in_a_directory_that_works_leads(
    place: ControllerUnderTest,
) -> None:
    """A replica on a full disk is reported lost, and where it is when there is space again."""
    controller = with_topic(place)
    topic_id = controller.image.topics["t"].topic_id
    controller.assign_directories(1, [DirectoryAssignment(topic_id, 0, LOST_DIRECTORY)])
    assert partition(controller, 0).leader == NO_LEADER
    controller.assign_directories(1, [DirectoryAssignment(topic_id, 0, place.ids[2])])
    assert partition(controller, 0).leader == 1
    assert partition(controller, 0).isr == (1,)


def test_the_last_directory_that_is_left_is_where_new_partitions_are(
    place: ControllerUnderTest,
) -> None:
    controller = with_topic(place)
    requests_to(controller).directories_failed(set(place.ids[1:]))
    requests_to(controller).create_topics([NewTopic(name="u")])
    assert controller.image.topics["u"].partitions[0].directories == (place.ids[0],)


@pytest.mark.parametrize(
    ("directory", "is_online"),
    [
        (None, True),
        (UNASSIGNED_DIRECTORY, True),
        (MIGRATING_DIRECTORY, True),
        (LOST_DIRECTORY, False),
        (UUID(int=99), False),
    ],
)
def test_a_directory_is_online_that_nobody_has_named(
    place: ControllerUnderTest, directory: UUID | None, *, is_online: bool
) -> None:
    broker = place.serve().image.brokers[1]
    assert broker.has_online_directory(directory) is is_online
    assert broker.has_online_directory(place.ids[0])


# ---- room that is kept


def on_a_small_disk() -> tuple[ControllerUnderTest, SimulatedFileSystem]:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock)
    directories = [Path("/data/a"), Path("/data/b")]
    for each in directories:
        fs.make_directory(each)
    return ControllerUnderTest(*directories, fs=fs, clock=clock, reserve_bytes=100_000), fs


def test_without_room_topics_are_deleted_in_the_room_that_is_kept() -> None:
    place, fs = on_a_small_disk()
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    reserve = place.log_dirs[0] / RESERVE
    assert fs.facts_of(reserve).size_bytes == 100_000
    fs.capacity_bytes = 1 << 30
    fs.capacity_bytes -= fs.free_bytes(place.log_dirs[0])
    with pytest.raises(StorageError, match="full"):
        requests_to(controller).create_topics([NewTopic(name="u")])
    assert fs.exists(reserve)
    assert requests_to(controller).delete_topics(["t"]) == [None]
    assert not controller.image.topics
    assert 0 < fs.facts_of(reserve).size_bytes < 100_000
    fs.capacity_bytes = None
    controller._reserve.take()
    assert fs.facts_of(reserve).size_bytes == 100_000


def test_a_stop_leaves_no_reserve_and_a_start_finds_what_a_kill_left() -> None:
    place, fs = on_a_small_disk()
    controller = place.serve()
    reserve = place.log_dirs[0] / RESERVE
    controller.abandon()
    assert fs.exists(reserve)
    controller = place.open(fs=fs)
    assert not fs.exists(reserve)
    controller.unfence()
    assert fs.exists(reserve)
    controller.close()
    assert not fs.exists(reserve)
