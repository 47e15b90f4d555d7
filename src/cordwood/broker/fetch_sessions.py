"""Fetch sessions: the broker remembers a client's partitions; the client only sends changes.

Source: KIP-227; kafka.server.FetchSession, FetchSessionCacheShard.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from cordwood.model.clock import Clock
from cordwood.model.kafka_errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.rng import Rng

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EVICTION_MS = 120_000
_INT_MAX = 2**31 - 1


Identity = tuple[UUID | str, int]


class PartitionKey(NamedTuple):
    """A partition as in the client's request: by topic id, or by name without an id.

    `topic` is the id's name at that time; `identity` stays the same if the topic is deleted.

    Source: FetchSession.CachedPartition.equals.
    """

    topic_id: UUID | None
    topic: str
    partition: int

    @property
    def identity(self) -> Identity:
        """The key of a partition in a session."""
        return self.topic_id or self.topic, self.partition


class FetchPartition:
    """The requested state of a partition, and the state last returned to the client.

    `own_start_offset` is where a follower's log starts; -1 for a consumer.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "own_start_offset",
    )

    def __init__(
        self,
        key: PartitionKey,
        *,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        own_start_offset: int = -1,
    ) -> None:
        self.key = key
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.own_start_offset = own_start_offset
        self.high_watermark = -1
        self.log_start_offset = -1

    def take(self, asked: FetchPartition) -> None:
        """Continues with the fields of a later request."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.own_start_offset = asked.own_start_offset


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[Identity, FetchPartition],
        *,
        now_ms: int,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids

    def served_last(self, keys: Iterable[PartitionKey]) -> None:
        """Moves partitions that gave data behind the others: their turn is over."""
        for key in keys:
            found = self.partitions.pop(key.identity, None)
            if found is not None:
                self.partitions[key.identity] = found


class FetchContext(NamedTuple):
    """How a fetch is answered; `session` is None for a fetch without a session.

    `is_incremental` leaves out partitions without changes.
    """

    session: FetchSession | None
    partitions: list[FetchPartition]
    is_incremental: bool


class FetchSessionCache:
    """The cached sessions, at most `slots` (max.incremental.fetch.session.cache.slots).

    `evictions` counts sessions that were evicted for others.
    """

    def __init__(self, slots: int, clock: Clock, rng: Rng) -> None:
        self._rng = rng
        self._slots = slots
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def size_of(self, session_id: int) -> int:
        """The number of partitions in a session; 0 if it is not cached."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def context(
        self,
        *,
        session_id: int,
        epoch: int,
        asked: list[FetchPartition],
        forgotten: list[PartitionKey],
        uses_topic_ids: bool,
    ) -> FetchContext:
        """The context of a request.

        Raises:
            FetchSessionIdNotFoundError: the session is no longer cached.
            InvalidFetchSessionEpochError: it is not the session's next request.
            FetchSessionTopicIdError: the session began with names, and continues with ids, or the
                other way round.
        """
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchContext(None, asked, is_incremental=False)
            return FetchContext(self._create(asked, uses_topic_ids), asked, is_incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError("The fetch session ID was not found.")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError("The fetch session epoch is invalid.")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(
                "The fetch session encountered inconsistent topic ID usage"
            )
        session.epoch = 1 if epoch == _INT_MAX else epoch + 1
        for partition in in_steps(asked, every=64):
            known = session.partitions.get(partition.key.identity)
            if known is None:
                session.partitions[partition.key.identity] = partition
            else:
                known.take(partition)
        for key in in_steps(forgotten, every=64):
            session.partitions.pop(key.identity, None)
        if not session.partitions:
            self._sessions.pop(session_id, None)
            return FetchContext(None, [], is_incremental=False)
        session.last_used_ms = self._clock.now_ms()
        if session_id in self._sessions:  # else it was evicted during a pause
            self._sessions.move_to_end(session_id)
        return FetchContext(session, list(session.partitions.values()), is_incremental=True)

    def _create(self, asked: list[FetchPartition], uses_topic_ids: bool) -> FetchSession | None:
        """A new session if there is space, or after evicting one unused for two minutes."""
        now_ms = self._clock.now_ms()
        if not self._make_room(len(asked), now_ms):
            return None
        partitions = dict(in_steps(((each.key.identity, each) for each in asked), every=64))
        if not self._make_room(len(asked), now_ms):  # others may have come during a pause
            return None
        session_id = 1 + self._rng.below(_INT_MAX)
        while session_id in self._sessions:
            session_id = 1 + self._rng.below(_INT_MAX)
        session = FetchSession(
            session_id,
            partitions,
            now_ms=now_ms,
            uses_topic_ids=uses_topic_ids,
        )
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > _EVICTION_MS:
            del self._sessions[oldest.id]
            self.evictions += 1
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < size and now_ms - smallest.created_ms > _EVICTION_MS:
            del self._sessions[smallest.id]
            self.evictions += 1
            return True
        return False
