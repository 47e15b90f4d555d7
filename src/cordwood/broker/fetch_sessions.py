"""Fetch sessions: the broker remembers a client's partitions; the client only sends changes.

A follower's session also leaves out of its fetches the partitions of which the follower has all,
until something changes in them: so a fetch costs what has changed, not what there is.

Source: KIP-227; kafka.server.FetchSession, FetchSessionCacheShard.
Differs: Kafka reads all partitions of a session for each fetch, of followers too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from cordwood.broker.replication.follower_state import SessionFetches
from cordwood.model.clock import Clock
from cordwood.model.kafka_errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.rng import Rng

SESSION_ERRORS = (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
"""A request that is of no session."""

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


class Follower(NamedTuple):
    """The broker that fetches; -1 for the epoch of its registration if it does not say it."""

    broker_id: int
    broker_epoch: int


class FetchSession:
    """The partitions of one client.

    `due` are those that a fetch reads, in the order in which they are served: all of a consumer's,
    of a follower's only those that are not left out. `follower` is None for a consumer.
    """

    __slots__ = (
        "created_ms",
        "due",
        "epoch",
        "fetches",
        "follower",
        "id",
        "last_used_ms",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[Identity, FetchPartition],
        *,
        now_ms: int,
        uses_topic_ids: bool,
        follower: Follower | None = None,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self.partitions = partitions
        self.due = partitions if follower is None else dict(partitions)
        self.uses_topic_ids = uses_topic_ids
        self.follower = follower
        self.fetches = SessionFetches(0.0)

    def check_invariants(self) -> None:
        """Checks that each partition that is due is one of the session."""
        assert self.partitions, (self.id, "a session without partitions")
        for identity, due in self.due.items():
            assert self.partitions.get(identity) is due, (self.id, identity)
        if self.follower is None:
            assert self.due is self.partitions, self.id

    def served_last(self, keys: Iterable[PartitionKey]) -> None:
        """Moves partitions that gave data behind the others: their turn is over."""
        for key in keys:
            found = self.due.pop(key.identity, None)
            if found is not None:
                self.due[key.identity] = found

    def end_omission(self, identity: Identity) -> None:
        """Has the next fetches read a partition again."""
        self.due.setdefault(identity, self.partitions[identity])

    def omit(self, identity: Identity) -> None:
        """Leaves a partition out of fetches until `end_omission`."""
        self.due.pop(identity, None)

    def fetched_by(self, follower: Follower | None) -> None:
        """Notes a request; if it is not the same follower's as before, all partitions are read."""
        if self.follower is not None and follower != self.follower:
            self.due.update(self.partitions)
            self.follower = follower or self.follower
            self.fetches = SessionFetches(self.fetches.last_ms)


class FetchContext(NamedTuple):
    """Kind of answer to a fetch; `session` is None for a fetch without a session.

    `asked` are the partitions of the request. `is_incremental` leaves out of the answer the
    partitions without changes.
    """

    session: FetchSession | None
    asked: list[FetchPartition]
    is_incremental: bool

    @property
    def partitions(self) -> list[FetchPartition]:
        """The partitions to read now; a later attempt of the same fetch may have more."""
        if self.session is None or not self.is_incremental:
            return self.asked
        return list(self.session.due.values())

    @property
    def due_count(self) -> int:
        """The number of partitions to read now."""
        if self.session is None or not self.is_incremental:
            return len(self.asked)
        return len(self.session.due)

    def session_of(self, follower: Follower | None) -> FetchSession | None:
        """The session, if it is one of a follower, and a follower fetches."""
        session = self.session
        if session is None or session.follower is None or follower is None:
            return None
        return session


class FetchSessionCache:
    """The cached sessions, at most `slots` (max.incremental.fetch.session.cache.slots).

    `evictions` counts sessions that were evicted for others.
    """

    def __init__(self, slots: int, clock: Clock, rng: Rng) -> None:
        self._rng = rng
        self._slots = slots
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: The sessions of followers that have a partition.
        self._of_followers: dict[Identity, list[FetchSession]] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def check_invariants(self) -> None:
        """Checks the sessions, and that those of followers are found by their partitions."""
        assert len(self._sessions) <= self._slots, (len(self._sessions), self._slots)
        found: dict[Identity, set[int]] = {}
        for session_id, session in self._sessions.items():
            assert session.id == session_id, (session.id, session_id)
            session.check_invariants()
            if session.follower is not None:
                for identity in session.partitions:
                    found.setdefault(identity, set()).add(session_id)
        known = {key: {each.id for each in of} for key, of in self._of_followers.items()}
        assert found == known, (found, known)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def due_count(self, session_id: int) -> int:
        """The number of partitions that a session's next fetch reads; 0 if it is not cached."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.due)

    def has(self, session: FetchSession) -> bool:
        """Whether a session is cached still."""
        return self._sessions.get(session.id) is session

    def changed(self, topic_id: UUID, index: int) -> list[FetchSession]:
        """The sessions of followers that have a partition; their next fetches read it."""
        found = self._of_followers.get((topic_id, index))
        if found is None:
            return []
        for session in found:
            session.end_omission((topic_id, index))
        return list(found)

    def context(
        self,
        *,
        session_id: int,
        epoch: int,
        asked: list[FetchPartition],
        forgotten: list[PartitionKey],
        uses_topic_ids: bool,
        follower: Follower | None = None,
    ) -> FetchContext:
        """The context of a request; `follower` is None for a consumer.

        Raises:
            FetchSessionIdNotFoundError: the session is no longer cached.
            InvalidFetchSessionEpochError: it is not the session's next request.
            FetchSessionTopicIdError: the session began with names, and continues with ids, or the
                other way round.
        """
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._end(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(None, asked, is_incremental=False)
            session = self._create(asked, uses_topic_ids, follower)
            return FetchContext(session, asked, is_incremental=False)
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
        session.last_used_ms = self._clock.now_ms()
        session.fetched_by(follower)
        for partition in in_steps(asked, every=64):
            self._ask(session, partition)
        for key in in_steps(forgotten, every=64):
            self._forget(session, key.identity)
        if not session.partitions:
            self._end(session_id)
            return FetchContext(None, [], is_incremental=False)
        if session_id in self._sessions:  # else it was evicted during a pause
            self._sessions.move_to_end(session_id)
        return FetchContext(session, asked, is_incremental=True)

    def _ask(self, session: FetchSession, partition: FetchPartition) -> None:
        identity = partition.key.identity
        known = session.partitions.get(identity)
        if known is None:
            known = session.partitions[identity] = partition
            if session.follower is not None and self.has(session):
                self._of_followers.setdefault(identity, []).append(session)
        else:
            known.take(partition)
        session.due[identity] = known

    def _forget(self, session: FetchSession, identity: Identity) -> None:
        if session.partitions.pop(identity, None) is not None:
            session.due.pop(identity, None)
            self._notify_no_more(session, identity)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            for identity in session.partitions:
                self._notify_no_more(session, identity)

    def _notify_no_more(self, session: FetchSession, identity: Identity) -> None:
        sessions = self._of_followers.get(identity, [])
        if session in sessions:
            sessions.remove(session)
            if not sessions:
                del self._of_followers[identity]

    def _create(
        self, asked: list[FetchPartition], uses_topic_ids: bool, follower: Follower | None
    ) -> FetchSession | None:
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
            # What is not known by its id is read by each fetch.
            follower=follower if uses_topic_ids else None,
        )
        self._sessions[session_id] = session
        if session.follower is not None:
            self._end_earlier_lives(session.follower)
            for identity in partitions:
                self._of_followers.setdefault(identity, []).append(session)
        return session

    def _end_earlier_lives(self, follower: Follower) -> None:
        """Ends the sessions of a broker from before it was registered again."""
        for session in list(self._sessions.values()):
            known = session.follower
            if (
                known is not None
                and known.broker_id == follower.broker_id
                and known.broker_epoch < follower.broker_epoch
            ):
                self._end(session.id)

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > _EVICTION_MS:
            self._end(oldest.id)
            self.evictions += 1
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < size and now_ms - smallest.created_ms > _EVICTION_MS:
            self._end(smallest.id)
            self.evictions += 1
            return True
        return False
