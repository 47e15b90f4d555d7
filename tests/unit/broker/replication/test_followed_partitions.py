"""Partitions that are followed: what is fetched, what can be read, and who is woken."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.replication.fetcher import Followed
from cordwood.broker.replication.followed_partitions import FollowedPartitions
from cordwood.broker.replication.replication import Replication
from cordwood.metadata.image import NO_LEADER, PartitionImage
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimers
from support.log_under_test import follow, new_log
from support.stored_log import batch_of

TOPIC_ID = UUID(int=7)
KEY = TopicIdPartition(TOPIC_ID, 0)


class Fetchers:
    """The partitions that are fetched."""

    backoff_ms = 1000

    def __init__(self) -> None:
        self.followed: dict[TopicIdPartition, Followed] = {}

    @property
    def partitions(self) -> list[TopicIdPartition]:
        return list(self.followed)

    def check_invariants(self) -> None:
        pass

    def follow(self, key: TopicIdPartition, followed: Followed) -> None:
        self.followed[key] = followed

    def unfollow(self, key: TopicIdPartition) -> None:
        self.followed.pop(key, None)


class Waiting:
    """A fetch that waits, and counts how often it is looked at."""

    looks = 0

    def try_complete(self, grown_bytes: int | None) -> bool:
        self.looks += grown_bytes is not None
        return False

    def on_complete(self) -> None:
        pass

    def on_expiration(self) -> None:
        pass


class Place:
    def __init__(self, directory: Path) -> None:
        self.log: PartitionLog = new_log(directory)
        self.delayed = DelayedOperations(ManualTimers(ManualClock()).call_later_ms)
        self.fetchers = Fetchers()
        self.followed = FollowedPartitions(
            cast("LogManager", {self.log.topic_partition: self.log}),
            self.delayed,
            truncate=lambda *_: None,
            start_at=lambda *_: None,
        )
        self.waiting = Waiting()
        name = self.log.topic_partition.topic, self.log.topic_partition.partition
        self.delayed.fetch.try_complete_else_watch(self.waiting, [name], 1000)

    def begin(self) -> None:
        self.followed.replication = cast("Replication", self.fetchers)

    def follow(self, *, is_full: bool = False, **changes: Any) -> None:
        fields = {"leader": 2, "leader_epoch": 3, "partition_epoch": 0, **changes}
        image = PartitionImage(replicas=(1, 2), isr=(2,), **fields)
        self.followed.follow(self.log, TOPIC_ID, image, is_full=is_full)
        self.followed.check_invariants()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_is_followed_where_no_other_broker_is(place: Place) -> None:
    place.follow()
    assert KEY not in place.followed


def test_a_partition_is_fetched_from_its_leader_and_can_be_read(place: Place) -> None:
    place.begin()
    place.follow()
    found = place.followed.get(KEY)
    assert found is not None
    assert found.log is place.log
    following = place.fetchers.followed[KEY].following
    assert (following.leader_id, following.leader_epoch) == (2, 3)


@pytest.mark.parametrize("changes", [{"leader": NO_LEADER}, {"is_full": True}])
def test_without_a_leader_or_space_it_is_only_read(place: Place, changes: dict[str, Any]) -> None:
    place.begin()
    place.follow()
    place.follow(**changes)
    assert KEY in place.followed
    assert not place.fetchers.followed


def test_readers_are_woken_when_more_is_committed(place: Place) -> None:
    place.begin()
    place.follow()
    place.followed.fetched(KEY)
    assert place.waiting.looks == 1, "the first answer"
    follow(place.log, batch_of(b"a"))
    place.followed.fetched(KEY)
    assert place.waiting.looks == 1
    place.log.maybe_update_high_watermark(1)
    place.followed.fetched(KEY)
    assert place.waiting.looks == 2


def test_readers_of_a_replica_that_is_removed_are_woken(place: Place) -> None:
    place.begin()
    place.follow()
    place.followed.remove(KEY)
    assert KEY not in place.followed
    assert not place.fetchers.followed
    assert place.waiting.looks == 1
    place.followed.fetched(KEY)
    assert place.waiting.looks == 1
    place.followed.check_invariants()
