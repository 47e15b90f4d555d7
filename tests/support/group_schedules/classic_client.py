"""A client of the classic protocol with the eager range assignor, and the partitions it has.

It gives up all its partitions before it joins again. When the topics that it subscribes to have
changed, it joins again with other metadata. A request that waits for others is answered later, and
the client does its next step only when it is asked to.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator, ConsumerCoordinator
(4.3.0).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from cordwood.coordinator.group.classic.member import JoinAnswer, JoinedMember, Protocol, SyncAnswer
from cordwood.format.group_metadata import (
    CONSUMER_PROTOCOL_SCHEMAS,
    build_consumer_assignment,
    parse_consumer_assignment,
    parse_consumer_subscription,
)
from cordwood.format.message_schema import encode_message
from cordwood.metadata.image import TopicImage
from cordwood.model.error_codes import ErrorCode
from support.group_schedules.client import NOTHING, Life, Partitions

_VERSION: Final = 3
Topics = Mapping[str, TopicImage]


class Phase(enum.Enum):
    """Next step of a client."""

    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicClient:
    """A client: what it subscribes to, its generation, and its partitions.

    `answers` gets the answer of the request that it waits for; None if it waits for none. `change`
    is part of its metadata: a group with other metadata of a member rebalances.
    """

    name: str
    topics: frozenset[str]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    life: Life = Life.ACTIVE
    phase: Phase = Phase.JOIN
    member_id: str = ""
    generation_id: int = -1
    owned: Partitions = NOTHING
    joined_topics: object = None
    change: int = 0
    followers: Sequence[JoinedMember] = ()
    answers: list[Any] | None = field(default=None)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it has not been answered."""
        return self.answers is not None and not self.answers

    def notice(self, topics: Topics) -> None:
        """Joins again if the topics that it subscribes to have changed."""
        if self.phase is not Phase.JOIN and self.joined_topics != self._facts(topics):
            self.rejoin()

    def _facts(self, topics: Topics) -> object:
        return sorted(
            (name, str(topics[name].topic_id), len(topics[name].partitions))
            for name in self.topics
            if name in topics
        )

    def subscribe(self, topics: frozenset[str]) -> None:
        """Joins again with other topics."""
        if topics != self.topics:
            self.topics = topics
            self.rejoin()

    def rejoin(self) -> None:
        """Gives up everything, and joins with the next request."""
        self.phase, self.owned = Phase.JOIN, NOTHING
        self.answers = None

    # ---- requests

    def join(self, topics: Topics) -> dict[str, Any]:
        """The fields of a JoinGroup; the client has given up everything."""
        self.owned, self.joined_topics = NOTHING, self._facts(topics)
        schema = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolSubscription"]
        fields = {
            "topics": sorted(self.topics),
            "userData": repr((self.change, self.joined_topics)).encode(),
            "ownedPartitions": [],
            "generationId": -1,
            "rackId": None,
        }
        metadata = struct.pack(">h", _VERSION) + encode_message(schema, _VERSION, fields)
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocols": (Protocol("range", metadata),),
        }

    def sync(self, topics: Topics) -> dict[str, Any]:
        """The fields of a SyncGroup; a leader assigns ranges of each topic."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "generation_id": self.generation_id,
            "assignments": _ranges(self.followers, topics),
        }

    # ---- answers

    def take(self, topic_ids: Mapping[str, UUID]) -> int | None:
        """Does what the answer says that has come, if one has; its error code."""
        if not self.answers:
            return None
        (answer,) = self.answers
        self.answers = None
        code: int = answer.error_code
        if isinstance(answer, JoinAnswer):
            self._take_join(answer)
        elif code == ErrorCode.NONE:
            self._take_sync(answer, topic_ids)
        else:
            self.fail(code)
        return code

    def _take_join(self, answer: JoinAnswer) -> None:
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
            self.phase, self.followers = Phase.SYNC, answer.members
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        else:
            self.fail(answer.error_code)

    def _take_sync(self, answer: SyncAnswer, topic_ids: Mapping[str, UUID]) -> None:
        self.phase = Phase.HEARTBEAT
        if answer.assignment:
            assigned = parse_consumer_assignment(answer.assignment).partitions
            self.owned = frozenset(
                (topic_ids[name], number)
                for name, numbers in assigned
                if name in topic_ids
                for number in numbers
            )

    def fail(self, code: int) -> None:
        """Does what an error says: joins again, perhaps as a new member, or ends."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.life = Life.GONE
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_id, self.generation_id = "", -1
        self.rejoin()


def _ranges(members: Sequence[JoinedMember], topics: Topics) -> dict[str, bytes]:
    """Each topic's partitions in ranges, for the members that subscribe to it."""
    subscribed = {
        each.member_id: frozenset(parse_consumer_subscription(each.metadata).topics)
        for each in members
    }
    found: dict[str, list[tuple[str, list[int]]]] = {each: [] for each in subscribed}
    for name, topic in topics.items():
        takers = sorted(each for each, names in subscribed.items() if name in names)
        for index, member_id in enumerate(takers):
            numbers = range(len(topic.partitions))
            size, more = divmod(len(numbers), len(takers))
            first = index * size + min(index, more)
            found[member_id].append((name, list(numbers[first : first + size + (index < more)])))
    return {
        member_id: build_consumer_assignment(assigned, _VERSION)
        for member_id, assigned in found.items()
    }
