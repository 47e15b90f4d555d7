"""A client of the consumer protocol (KIP-848), and the partitions that it has by its own view.

It gives up and takes partitions as it was assigned, and reports what it has when that has changed,
or when it does not know whether its last request was answered. A slow client takes its time: it
sends heartbeats that do not say what it has.

Source: org.apache.kafka.clients.consumer.internals.ConsumerHeartbeatRequestManager,
AbstractMembershipManager (4.3.0).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatAnswer,
    Owned,
)
from cordwood.model.error_codes import ErrorCode

Partitions = frozenset[tuple[UUID, int]]
"""Partitions by topic id and number."""
NOTHING: Partitions = frozenset()
#: It is not a member any more, or its group is a classic one now.
_REMOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_FATAL: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


def partitions_of(topics: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    """The partitions of an assignment, or of a member."""
    return frozenset((topic_id, number) for topic_id, numbers in topics for number in numbers)


class Subscription(NamedTuple):
    """The topics that a client names, and the regular expression of others; "" is none."""

    names: frozenset[str] = frozenset()
    regex: str = ""


NO_TOPICS: Final = Subscription()


class Life(enum.Enum):
    """Whether a client sends heartbeats."""

    ACTIVE = "active"
    CRASHED = "crashed"
    GONE = "gone"


class Beat(NamedTuple):
    """A heartbeat; None stands for what it does not say."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    subscription: Subscription | None = None
    timeout_ms: int | None = None
    owned: Partitions | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of `GroupRun.beat`."""
        subscription = self.subscription
        return {
            "member_id": self.member_id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "topics": None if subscription is None else tuple(sorted(subscription.names)),
            "regex": None if subscription is None else subscription.regex,
            "rebalance_timeout_ms": -1 if self.timeout_ms is None else self.timeout_ms,
            "owned": None if self.owned is None else _by_topic(self.owned),
        }


def _by_topic(partitions: Partitions) -> Owned:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return tuple((topic_id, tuple(numbers)) for topic_id, numbers in topics.items())


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A client: what it subscribes to, its epoch, and its partitions.

    `assigned` are those that it was last assigned. It has them when it has given up the others, and
    then it has to report it, even if it had the same before. `is_uncertain` is true if its last
    request may not have been answered.
    """

    member_id: str
    subscription: Subscription
    timeout_ms: int
    instance_id: str | None = None
    life: Life = Life.ACTIVE
    epoch: int = JOIN_EPOCH
    owned: Partitions = NOTHING
    assigned: Partitions = NOTHING
    has_to_report: bool = False
    has_subscribed: bool = False
    is_uncertain: bool = False

    @property
    def name(self) -> str:
        """Its member id, for traces."""
        return self.member_id

    def subscribe(self, subscription: Subscription) -> None:
        """Has the next heartbeat bring another subscription."""
        self.has_subscribed |= subscription != self.subscription
        self.subscription = subscription

    def beat(self, *, is_slow: bool = False) -> Beat:
        """The next heartbeat.

        A client that is not certain of the last answer is not slow: with partitions that it is
        still to take, it would report fewer than it is about to have.
        """
        is_full = self.epoch == JOIN_EPOCH or self.is_uncertain
        is_reported = is_full or (self.has_to_report and not is_slow)
        if is_reported:
            self.owned, self.has_to_report = self.assigned, False
        return Beat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            subscription=self.subscription if is_full or self.has_subscribed else None,
            timeout_ms=self.timeout_ms if is_full else None,
            owned=self.owned if is_reported else None,
        )

    def leave(self, *, for_a_while: bool = False) -> Beat:
        """The last heartbeat."""
        epoch = LEAVE_STATIC_EPOCH if for_a_while else LEAVE_EPOCH
        self.life, self.owned = Life.GONE, NOTHING
        return Beat(member_id=self.member_id, epoch=epoch, instance_id=self.instance_id)

    def take(self, answer: HeartbeatAnswer) -> None:
        """Does what an answer says."""
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.has_subscribed = self.is_uncertain = False
            if answer.assignment is not None:
                before, self.assigned = self.assigned, partitions_of(answer.assignment)
                self.has_to_report |= self.assigned != before
        elif answer.error_code in _REMOVED:
            self._abandon()
        elif answer.error_code in _FATAL:
            self.life = Life.GONE
            self._abandon()
        else:
            self.is_uncertain = True

    def miss(self) -> None:
        """The answer was lost."""
        self.is_uncertain = True

    def _abandon(self) -> None:
        self.epoch = JOIN_EPOCH
        self.owned = self.assigned = NOTHING
        self.has_to_report = self.has_subscribed = self.is_uncertain = False
