"""The partitions of a broker: which it leads, what it says of the others, and who hears of appends.

A `ReplicaManager` of its own works over the logs, the thread and the controller of a running
broker; the test decides which image it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import Partition
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.format.record_batch import Record, build_batch
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.broker import RunningBroker
from support.another_replica import has_another_replica
from support.log_under_test import new_log
from support.no_engine import NoEngine
from support.wire import Wire

TOPIC, OTHER = "t", "u"
OWN, REMOTE = 1, 2
TOPIC_ID = UUID(int=1)
ONLINE, OFFLINE = UUID(int=8), UUID(int=9)
BATCH = build_batch([Record(0, 1, b"k", b"v")], base_offset=0)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker:
        with Wire(broker.port) as wire:
            asked = [
                {"name": name, "num_partitions": 8, "replication_factor": 1}
                for name in (TOPIC, OTHER)
            ]
            wire.ask("create_topics", 5, {"timeout_ms": 5_000, "topics": asked})
        yield broker


def no_move(_partition: TopicPartition, _target: Path) -> NoReturn:
    raise AssertionError("no test moves a log")


def no_truncation(_partition: TopicPartition, _offset: int, _: object) -> NoReturn:
    raise AssertionError("no test cuts a log off")


def no_controller() -> NoReturn:
    raise AssertionError("the broker is its own controller")


class Place:
    """The manager under test, and what it works with; belongs to the broker's thread."""

    def __init__(self, broker: Broker) -> None:
        self.metadata = MetadataCache(lambda: 1)
        self.metrics = BrokerMetrics()
        self.logs = broker.replicas.logs
        self.replicas = ReplicaManager(
            node_id=OWN,
            logs=self.logs,
            metadata=self.metadata,
            controller=broker.admin or no_controller(),
            thread=broker.thread,
            settings=broker.settings,
            metrics=self.metrics,
            begin_move=no_move,
            truncate=no_truncation,
            start_at=no_truncation,
        )

    def show(self, *partitions: PartitionImage, topic_id: UUID = TOPIC_ID) -> None:
        """Publishes an image in which each topic has these partitions."""
        numbered = dict(enumerate(partitions))
        topics = {
            name: TopicImage(name=name, topic_id=topic_id, partitions=numbered)
            for name in (TOPIC, OTHER)
        }
        self.metadata.image = replace(
            self.metadata.image,
            topics=PersistentMap(topics),
            brokers=PersistentMap({OWN: registration()}),
        )

    def lead(self, topic: str, index: int) -> Partition:
        self.show(*[replica(OWN)] * 8)
        partition = Partition(
            self.logs.require(TopicPartition(topic, index)),
            topic_id=TOPIC_ID,
            leader_epoch=0,
            find=self.logs.get,
            on_change=self.replicas.partition_changed,
        )
        self.replicas.partitions.setdefault(topic, {})[index] = partition
        return partition


def on_thread(running: RunningBroker, test: Callable[[Place], Any]) -> Any:
    return running.call(lambda broker: test(Place(broker)))


def registration() -> BrokerImage:
    return BrokerImage(
        broker_id=OWN,
        epoch=1,
        incarnation_id=UUID(int=7),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(ONLINE,),
        endpoints=(),
    )


def replica(leader: int, directory: UUID = ONLINE) -> PartitionImage:
    return PartitionImage(
        replicas=(OWN,),
        isr=(OWN,),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory,),
    )


@pytest.mark.parametrize(
    ("image", "has_no_log", "error"),
    [
        (None, False, UnknownTopicOrPartitionError),
        (replica(OWN), False, NotLeaderOrFollowerError),
        (replica(REMOTE), False, NotLeaderOrFollowerError),
        (replica(OWN), True, StorageError),
        (replica(NO_LEADER, OFFLINE), False, StorageError),
    ],
    ids=["not there", "log not created yet", "led elsewhere", "no log", "directory offline"],
)
def test_a_partition_that_is_not_led_here_has_an_error(
    running: RunningBroker,
    image: PartitionImage | None,
    has_no_log: bool,  # a column of the table
    error: type[KafkaError],
) -> None:
    def look(place: Place) -> None:
        place.show(*([image] if image is not None else []))
        if has_no_log:
            place.replicas.full.has_no_log(TopicIdPartition(TOPIC_ID, 0))
        with pytest.raises(error):
            place.replicas.partition(TOPIC, 0)
        with pytest.raises(UnknownTopicOrPartitionError):
            place.replicas.partition("missing", 0)
        assert place.replicas.led_count == 0

    on_thread(running, look)


def test_an_append_is_counted_committed_and_reported_to_the_listener_of_its_topic(
    running: RunningBroker,
) -> None:
    heard: list[tuple[int, int]] = []

    def append(place: Place) -> None:
        led = place.lead(TOPIC, 1), place.lead(OTHER, 1)
        place.replicas.listen(TOPIC, lambda index, end: heard.append((index, end)))
        for _ in range(2):
            place.replicas.append(TOPIC, 1, BATCH)
        place.replicas.append(OTHER, 1, BATCH, origin=AppendOrigin.CLIENT)
        assert [each.log.high_watermark for each in led] == [2, 1]
        assert place.metrics.topic(TOPIC).messages_in == 2
        assert place.metrics.all_topics.bytes_in == 3 * len(BATCH)
        assert place.replicas.led_partitions() == list(led)

    on_thread(running, append)
    assert heard == [(1, 1), (1, 2)]


def test_a_refused_append_is_counted_and_changes_nothing(running: RunningBroker) -> None:
    def append(place: Place) -> None:
        log = place.lead(TOPIC, 2).log
        damaged = bytearray(BATCH)
        damaged[-1] ^= 1
        with pytest.raises(CorruptMessageError):
            place.replicas.append(TOPIC, 2, bytes(damaged))
        assert log.log_end_offset == 0
        found = place.metrics.topic(TOPIC)
        assert (found.total_produce_requests, found.messages_in) == (1, 0)

    on_thread(running, append)


def test_an_append_is_not_committed_while_another_replica_is_in_sync(
    running: RunningBroker,
) -> None:
    heard: list[int] = []

    def append(place: Place) -> None:
        partition = place.lead(TOPIC, 3)
        has_another_replica(partition, value=True)
        place.replicas.listen(TOPIC, lambda _index, end: heard.append(end))
        place.replicas.append(TOPIC, 3, BATCH)
        assert heard == []
        assert partition.low_watermark < 0
        has_another_replica(partition, value=False)
        assert partition.low_watermark == 0

    on_thread(running, append)
    assert heard == [1]


def test_what_is_led_of_a_deleted_topic_is_not_served_for_a_new_one_of_its_name(
    running: RunningBroker,
) -> None:
    def look(place: Place) -> None:
        led = place.lead(TOPIC, 6)
        assert place.replicas.partition(TOPIC, 6) is led
        place.show(*[replica(OWN)] * 7, topic_id=UUID(int=2))
        with pytest.raises(NotLeaderOrFollowerError):
            place.replicas.partition(TOPIC, 6)
        with pytest.raises(NotLeaderOrFollowerError):
            place.replicas.readable(TOPIC, 6)

    on_thread(running, look)


def test_a_partition_whose_log_was_closed_is_served_from_the_log_in_its_place(
    running: RunningBroker, tmp_path: Path
) -> None:
    logs = {
        name: new_log(tmp_path / name, name=f"{TOPIC}-4", topic_id=topic_id)
        for name, topic_id in (("old", TOPIC_ID), ("of another", UUID(int=2)), ("new", TOPIC_ID))
    }

    def serve(place: Place) -> None:
        place.show(*[replica(OWN)] * 5)
        found: list[PartitionLog] = []
        led = Partition(
            logs["old"],
            topic_id=TOPIC_ID,
            leader_epoch=0,
            find=lambda _: next(iter(found), None),
        )
        place.replicas.partitions[TOPIC] = {4: led}
        led.log.close()
        for each in ([], [logs["of another"]]):
            found[:] = each
            with pytest.raises(NotLeaderOrFollowerError):
                place.replicas.partition(TOPIC, 4)
        found[:] = [logs["new"]]
        assert place.replicas.partition(TOPIC, 4).log is logs["new"]
        assert place.replicas.append(TOPIC, 4, BATCH).last_offset == 0

    on_thread(running, serve)


def test_a_log_in_another_directory_than_the_image_says_is_reported(
    running: RunningBroker,
) -> None:
    def report(place: Place) -> None:
        log = place.lead(TOPIC, 5).log
        (directory,) = place.logs.directories
        assert place.replicas.log_dirs == [directory.path]
        assert (log, False) in list(place.replicas.logs_with_futures())
        reports = place.replicas.directory_reports
        reports.close()  # what is reported is looked at here, not sent
        place.replicas.report_place(log, TOPIC_ID, None)
        assert reports._assigned == {}
        place.replicas.report_place(log, TOPIC_ID, OFFLINE)
        assert list(reports._assigned) == [(TOPIC_ID, 5)]

    on_thread(running, report)
