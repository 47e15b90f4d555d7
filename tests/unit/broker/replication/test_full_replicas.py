"""Replicas whose disk is full: what the controller is told of them, and when they come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cordwood.broker.directory_reports import DirectoryReports
from cordwood.broker.replication.full_replicas import FullReplicas
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition

OWN, OTHER, THIRD = 1, 2, 3
TOPIC, TOPIC_ID, INDEX = "t", UUID(int=77), 0
KEY = TopicIdPartition(TOPIC_ID, INDEX)
DIRECTORY = Path("/data")
PLENTY = 1 << 30


def directory_of(broker_id: int) -> UUID:
    return UUID(int=100 + broker_id)


def broker(broker_id: int, **changes: Any) -> BrokerImage:
    found = BrokerImage(
        broker_id=broker_id,
        epoch=1,
        incarnation_id=UUID(int=broker_id),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(directory_of(broker_id),),
        endpoints=(),
    )
    return replace(found, **changes)


class Place:
    """Replicas under test, and what they report; `wanted` is what would be sent now."""

    def __init__(self) -> None:
        self.partition = PartitionImage(
            replicas=(OWN, OTHER, THIRD),
            isr=(OWN, OTHER),
            leader=OWN,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(map(directory_of, (OWN, OTHER, THIRD))),
        )
        self.brokers = [broker(OWN), broker(OTHER), broker(THIRD)]
        self.others: frozenset[int] | None = frozenset({OTHER})
        self.free_bytes = 0
        self.now_ms = 0.0
        self.back: list[TopicPartition] = []
        self.looks: list[tuple[float, Callable[[], None]]] = []
        self._sent: dict[tuple[UUID, int], tuple[UUID, Callable[[], bool]]] = {}
        self.replicas = FullReplicas(
            node_id=OWN,
            metadata=cast("MetadataCache", self),
            reports=cast("DirectoryReports", SimpleNamespace(assign=self._assign)),
            others_in_sync=lambda _topic, _index: self.others,
            free_bytes=lambda _: self.free_bytes,
            now_ms=lambda: self.now_ms,
            call_later_ms=lambda delay, run: self.looks.append((delay, run)),
            back=self.back.append,
        )

    @property
    def image(self) -> MetadataImage:
        topic = TopicImage(name=TOPIC, topic_id=TOPIC_ID, partitions={INDEX: self.partition})
        return replace(
            MetadataImage(),
            topics=PersistentMap({TOPIC: topic}),
            brokers=PersistentMap({each.broker_id: each for each in self.brokers}),
        )

    def change(self, **changes: Any) -> None:
        self.partition = replace(self.partition, **changes)

    def _assign(
        self, topic_id: UUID, index: int, directory: UUID, *, is_wanted: Callable[[], bool]
    ) -> None:
        self._sent[topic_id, index] = directory, is_wanted

    @property
    def wanted(self) -> dict[tuple[UUID, int], UUID]:
        return {key: sent for key, (sent, is_wanted) in self._sent.items() if is_wanted()}

    def give_up(self, log_dir: Path | None = DIRECTORY) -> bool:
        self.replicas.give_up(TOPIC, INDEX, log_dir)
        return KEY in self.replicas

    def look(self) -> None:
        _, look = self.looks.pop()
        look()


LOST = {(TOPIC_ID, INDEX): LOST_DIRECTORY}


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("leader", [OWN, OTHER], ids=["leader", "follower"])
def test_another_replica_takes_the_place_of_a_full_one(place: Place, leader: int) -> None:
    place.change(leader=leader)
    place.others = frozenset({OTHER}) if leader == OWN else None
    assert place.give_up()
    assert place.wanted == LOST


@pytest.mark.parametrize(
    ("changes", "brokers", "others"),
    [
        ({"isr": (OWN,)}, {}, frozenset()),
        ({}, {}, frozenset()),
        ({}, {"fenced": True}, frozenset({OTHER})),
        ({}, {"in_controlled_shutdown": True}, frozenset({OTHER})),
        ({}, {"log_dirs": (UUID(int=9),)}, frozenset({OTHER})),
        ({"directories": (directory_of(OWN), LOST_DIRECTORY, directory_of(THIRD))}, {}, {OTHER}),
        ({"leader": NO_LEADER}, {}, None),
        ({"directories": ()}, {}, frozenset({OTHER})),
        ({"replicas": (OTHER, THIRD), "isr": (OTHER,), "leader": OTHER}, {}, None),
    ],
    ids=[
        "alone in the ISR",
        "alone if a proposal is taken",
        "fenced",
        "shutting down",
        "directory offline",
        "lost, too",
        "no leader",
        "before KIP-858",
        "no replica here",
    ],
)
def test_a_replica_that_no_other_can_stand_in_for_stays(
    place: Place, changes: dict[str, Any], brokers: dict[str, Any], others: frozenset[int] | None
) -> None:
    place.change(**changes)
    place.brokers[1] = broker(OTHER, **brokers)
    place.others = others
    assert not place.give_up()
    assert place.wanted == {}
    assert place.looks == []


def test_what_is_not_sent_yet_is_looked_at_again(place: Place) -> None:
    assert place.give_up()
    place.change(isr=(OWN,))
    assert place.wanted == {}
    place.change(isr=(OWN, OTHER))
    assert place.wanted == LOST
    place.replicas.forget(KEY)
    assert place.wanted == {}


def test_it_comes_back_when_there_is_space_and_later_each_time(place: Place) -> None:
    waits = []
    for _ in range(6):
        place.free_bytes = 0
        assert place.give_up()
        place.look()
        assert KEY in place.replicas
        place.free_bytes = PLENTY
        waits.append(place.looks[-1][0])
        place.look()
        assert place.back.pop() == TopicPartition(TOPIC, INDEX)
        assert KEY not in place.replicas
        assert place.looks == []
    assert waits == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    place.now_ms += 3_600_000
    assert place.give_up()
    assert place.looks[-1][0] == 5_000


def test_a_replica_without_a_log_comes_back_when_it_has_one(place: Place) -> None:
    assert place.give_up(None)
    place.free_bytes = PLENTY
    place.look()
    assert KEY in place.replicas
    place.replicas.has_log(KEY)
    assert KEY not in place.replicas
    assert place.give_up()
    place.replicas.has_log(KEY)
    assert KEY in place.replicas, "its log is there, and full"
