"""Guarantee: in the end, all replicas of a partition are equal, with what they know of batches."""

from __future__ import annotations

from collections import defaultdict

from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import Elected, Ended, Event, Replica, ReplicaState
from support.simulation.history import ViolationError


class EqualReplicas:
    """Compares final replicas: batches, leader epochs, producers, transactions, first offsets.

    Two replicas need not begin at the same offset: the first offset of a log is on disk from time
    to time only, so that a leader may come back with a lower one. Then they are compared from the
    higher one on. No follower keeps what its leader has deleted.
    """

    name = "equal replicas"

    def __init__(self) -> None:
        self._final: dict[TopicPartition, list[Replica]] = defaultdict(list)
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Elected():
                known = self._leaders.get(event.partition, (-1, -1))
                self._leaders[event.partition] = max(known, (event.epoch, event.broker))
            case Replica() if event.state is not None:
                self._final[event.partition].append(event)
            case Ended():
                for partition, replicas in self._final.items():
                    leader = self._leaders[partition][1]
                    (led,) = [each for each in replicas if each.broker == leader]
                    for follower in replicas:
                        self._compare(partition, led, follower)

    def _compare(self, partition: TopicPartition, led: Replica, follower: Replica) -> None:
        one, other = led.state, follower.state
        assert one is not None, led
        assert other is not None, follower
        if other.start < one.start:
            raise ViolationError(
                self.name,
                f"{partition} begins at {one.start}, and at broker {follower.broker} at "
                f"{other.start}",
            )
        start = other.start
        for what, a, b in (
            ("batches", *(_batches(each, start) for each in (led, follower))),
            ("leader epochs", *(_epochs(each, start, led.end) for each in (one, other))),
            ("producers", *(_producers(each, start) for each in (one, other))),
            ("last stable offsets", [one.last_stable], [other.last_stable]),
            ("last stable offset and end", [one.last_stable], [led.end]),
            ("aborted transactions", *(_aborted(each, start) for each in (one, other))),
        ):
            if a != b:
                differing = [pair for pair in zip(a, b, strict=False) if pair[0] != pair[1]]
                found = differing[0] if differing else (f"{len(a)}", f"{len(b)}")
                raise ViolationError(
                    self.name,
                    f"{partition} of leader {led.broker} and of broker {follower.broker}: {what} "
                    f"are {found[0]} and {found[1]}",
                )


def _batches(replica: Replica, start: int) -> list[object]:
    return [each for each in replica.batches if each.last_offset >= start]


def _epochs(state: ReplicaState, start: int, end: int) -> list[object]:
    """Without those that have no batches: a leader notes its epoch before it appends."""
    entries = [each for each in state.epochs if each[1] < end]
    kept = [each for each in entries if each[1] > start]
    before = [epoch for epoch, first in entries if first <= start]
    return [*before[-1:], *kept]


def _producers(state: ReplicaState, start: int) -> list[ProducerEntry]:
    """Without those whose records may be gone, of whom a replica need not know anything."""
    return [each for each in state.producers if not start or each.last_offset >= start]


def _aborted(state: ReplicaState, start: int) -> list[object]:
    return [each for each in state.aborted if each[2] >= start]
