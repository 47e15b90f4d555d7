"""One owner for each partition of a group, and committed offsets that never go back."""

from __future__ import annotations

from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import (
    CommitAsked,
    Elected,
    Event,
    Heard,
    Occupied,
    OffsetCommitted,
    OffsetFetchAsked,
    OffsetFetched,
    OffsetSent,
    Owned,
)
from support.simulation.history import ViolationError


class OneOwner:
    """Two members of one coordinator never use a partition at the same time.

    Members keep the protocol's rule: one that was not heard for its session's timeout uses nothing.
    A broker that has been replaced as coordinator and does not know it still answers heartbeats, as
    in Kafka, where it has no lease that ends: a member that was heard there last may use what the
    next coordinator has given to another, until it learns of that one.
    """

    name = "one owner per group partition"

    def __init__(self) -> None:
        self._owners: dict[tuple[str, TopicPartition], str] = {}
        self._heard: dict[str, int] = {}
        #: The newest epoch of the coordinator, and the broker.
        self._coordinator = (-1, -1)

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Heard():
                self._heard[event.member] = event.coordinator
            case Elected() if event.partition.topic == GROUP_METADATA_TOPIC:
                self._coordinator = max(self._coordinator, (event.epoch, event.broker))
            case Owned():
                self._own(event)

    def _own(self, event: Owned) -> None:
        for key in [each for each, owner in self._owners.items() if owner == event.member]:
            if key[1] not in event.partitions:
                del self._owners[key]
        for partition in sorted(event.partitions):
            key = event.group, partition
            owner = self._owners.get(key, event.member)
            if owner != event.member and self._heard.get(owner) == self._coordinator[1]:
                raise ViolationError(
                    self.name, f"{partition} is used by {owner} and by {event.member}"
                )
            self._owners[key] = event.member


def key_of(event: OffsetSent | OffsetFetched) -> tuple[str, TopicPartition]:
    """The group and the partition of an offset."""
    return event.group, event.partition


class GroupOffsets:
    """An offset that was answered as committed is what the group has, or a later one.

    In a group without members it may expire, if its clock says so: then nothing is known of it.
    An offset that a transaction was to commit is the group's only if its commit was asked for.
    """

    name = "group offsets"

    def __init__(self) -> None:
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        self._transactions: dict[tuple[str, TopicPartition, int], str] = {}
        self._may_commit: set[str] = set()
        self._unoccupied: set[str] = set()

    def _occupy(self, event: Occupied) -> None:
        if event.is_certain:
            self._unoccupied.discard(event.group)
            return
        self._unoccupied.add(event.group)
        for key in [each for each in self._committed if each[0] == event.group]:
            del self._committed[key]
        for asked in self._asked:
            if asked[0] == event.group:
                self._asked[asked] = -1

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Occupied():
                self._occupy(event)
            case OffsetCommitted() if event.group not in self._unoccupied:
                key = event.group, event.partition
                self._committed[key] = max(self._committed.get(key, -1), event.offset)
            case OffsetSent():
                self._transactions[(*key_of(event), event.offset)] = event.transaction
            case CommitAsked():
                self._may_commit.add(event.transaction)
            case OffsetFetchAsked():
                self._asked[event.group, event.number] = self._committed.get(
                    (event.group, event.partition), -1
                )
            case OffsetFetched():
                least = self._asked.pop((event.group, event.number))
                transaction = self._transactions.get((*key_of(event), event.offset))
                if transaction is not None and transaction not in self._may_commit:
                    raise ViolationError(
                        self.name,
                        f"{event.group} is answered {event.offset} of {event.partition}, which "
                        f"{transaction} has not committed",
                    )
                if event.offset < least:
                    raise ViolationError(
                        self.name,
                        f"{event.group} has committed {least} of {event.partition}, and is "
                        f"answered {event.offset}",
                    )
