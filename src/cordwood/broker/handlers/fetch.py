"""Fetch (1), versions 4 to 18: batches from partitions; waits if there are too few bytes.

Versions: 5 log start offset, 7 sessions (KIP-227), 9 current leader epoch (KIP-320), 10 zstd, 11
racks, 12 flexible and last fetched epoch (KIP-595), 13 topic ids (KIP-516), 15 replica state as a
tag, 16 where the leader is (KIP-951), 17 and 18 fields of replicas.

A fetch that finds fewer than min_bytes waits for appends to the partitions it names, at most
max_wait_ms of real time, and then reads again. Bytes of segments are sent from their files.

A fetch of a follower reads up to the log's end, and says where the follower's log ends. It reads
only those partitions of its session in which something may have changed (`fetch_sessions`). Since
version 11, consumers may read from followers, too; with a `replica.selector.class` the leader sends
a consumer to one in its rack (KIP-392).

Not served: tiered storage.

Source: kafka.server.KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cordwood.broker.delayed_operations import WaitKey
from cordwood.broker.fetch_sessions import (
    NO_SESSION,
    FetchContext,
    FetchPartition,
    FetchSession,
    Follower,
    PartitionKey,
)
from cordwood.broker.handlers.cluster_facts import current_leader, endpoints_of
from cordwood.broker.handlers.fetch_response import PartitionAnswer, build_response
from cordwood.broker.partition import Partition
from cordwood.broker.request_context import BrokerContext
from cordwood.configs.settings import RACK_AWARE_SELECTOR
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    TopicAuthorizationError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.pauses import in_steps
from cordwood.protocol.apis.fetch import FetchRequest
from cordwood.purgatory.purgatory import Purgatory
from cordwood.serving.api import Api, Encoded, Response
from cordwood.serving.authorizer import Operation, ResourceType
from cordwood.serving.fetch_kinds import fetch_kind
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11
_REPLICA_STATE_SINCE = 15
_LEADERS_SINCE = 16
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
# Looked up once: members of an enum are slow to look up.
_READ, _TOPIC = Operation.READ, ResourceType.TOPIC
_READ_COMMITTED = 1
_NO_EPOCH = -1
_NONE: frozenset[int] = frozenset()
_INLINE_PARTITIONS_MAX = 256

# A client's or the cluster's doing: Kafka counts as failed what a broker should have been able to.
_NOT_FAILED = (
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    FencedLeaderEpochError,
    StorageError,
    OffsetOutOfRangeError,
    InconsistentTopicIdError,
    TopicAuthorizationError,
)


_NOT_THERE = (UnknownTopicOrPartitionError, UnknownTopicIdError, TopicAuthorizationError)


class _Fetch(NamedTuple):
    """One request, as every attempt at it needs it.

    `follower` is None for a consumer; `neighbours` are the brokers in its rack that it may be sent
    to, none if this one is in it.
    """

    context: BrokerContext
    fetch_context: FetchContext
    isolation: Isolation
    max_bytes: int
    follower: Follower | None
    neighbours: frozenset[int]

    @property
    def followers_session(self) -> FetchSession | None:
        """The session, if it is one of a follower."""
        session = self.fetch_context.session
        if session is None or session.follower is None or self.follower is None:
            return None
        return session


class _Read(NamedTuple):
    answers: list[PartitionAnswer]
    size_bytes: int
    is_final: bool
    """An error, or a log that has diverged: there is no use in waiting."""


def handle(context: BrokerContext, request: FetchRequest) -> Response:
    """Answers at once if there is enough, or nothing to wait for."""
    follower = _follower_of(context, request)
    try:
        fetch_context = _fetch_context(context, request, follower)
    except (
        FetchSessionIdNotFoundError,
        FetchSessionTopicIdError,
        InvalidFetchSessionEpochError,
    ) as error:
        return build_response(
            context.api_version, error_code=error.code, session_id=NO_SESSION, answers=[]
        )
    isolation = Isolation.HIGH_WATERMARK
    if follower is not None:
        isolation = Isolation.LOG_END
    elif request.isolation_level == _READ_COMMITTED:
        isolation = Isolation.TXN_COMMITTED
    max_bytes = min(request.max_bytes, context.broker.settings.fetch_max_bytes)
    neighbours = frozenset() if follower is not None else _neighbours(context, request.rack_id)
    fetch = _Fetch(context, fetch_context, isolation, max_bytes, follower, neighbours)
    session = fetch.followers_session
    if session is not None:
        session.fetches.last_ms = context.broker.replicas.now_ms()
    wait_ms = request.max_wait_ms
    min_bytes = min(request.min_bytes, fetch.max_bytes)  # what is full is not waited for
    read = _read_all(fetch, is_first=True)
    if (
        wait_ms <= 0
        or not (fetch_context.due_count or session)
        or read.is_final
        or read.size_bytes >= min_bytes
    ):
        return _respond(fetch, read)
    return _delay(fetch, read, wait_ms, min_bytes - read.size_bytes)


def _follower_of(context: BrokerContext, request: FetchRequest) -> Follower | None:
    if context.api_version >= _REPLICA_STATE_SINCE:
        state = request.replica_state
        found = Follower(state.replica_id, state.replica_epoch)
    else:
        found = Follower(request.replica_id, _NO_EPOCH)
    return found if found.broker_id >= 0 else None


def _neighbours(context: BrokerContext, rack: str) -> frozenset[int]:
    """The brokers in a consumer's rack that are alive, if it is to read from the nearest."""
    broker = context.broker
    if not rack or context.api_version < _RACKS_SINCE or broker.settings.rack == rack:
        return _NONE
    if broker.settings.text("replica.selector.class") != RACK_AWARE_SELECTOR:
        return _NONE
    return frozenset(
        each.broker_id
        for each in broker.metadata.image.brokers.values()
        if each.rack == rack and not each.fenced and each.endpoint(context.listener) is not None
    )


def _fetch_context(
    context: BrokerContext, request: FetchRequest, follower: Follower | None
) -> FetchContext:
    names: Mapping[Any, str] = context.broker.metadata.image.topic_names
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    asked = []
    for topic in in_steps(request.topics):
        topic_id = topic.topic_id if by_id else None
        name = names.get(topic_id, "") if by_id else topic.topic
        for each in in_steps(topic.partitions, every=64):
            asked.append(
                FetchPartition(
                    PartitionKey(topic_id, name, each.partition),
                    fetch_offset=each.fetch_offset,
                    max_bytes=each.partition_max_bytes,
                    current_leader_epoch=each.current_leader_epoch,
                    last_fetched_epoch=each.last_fetched_epoch,
                    own_start_offset=each.log_start_offset,
                )
            )
    forgotten = [
        PartitionKey(
            topic.topic_id if by_id else None,
            names.get(topic.topic_id, "") if by_id else topic.topic,
            index,
        )
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    found = context.broker.replicas.fetch_sessions.context(
        session_id=request.session_id,
        epoch=request.session_epoch,
        asked=asked,
        forgotten=forgotten,
        uses_topic_ids=by_id,
        follower=follower,
    )
    if follower is not None and found.session is not None:
        _take_back(context, follower, found.session, forgotten)
    if by_id and found.is_incremental:
        for partition in in_steps(found.partitions, every=64):
            # The topic may have been unknown here when the session began.
            if not partition.key.topic:
                name = names.get(partition.key.topic_id, "")
                partition.key = partition.key._replace(topic=name)
    return found


def _take_back(
    context: BrokerContext,
    follower: Follower,
    session: FetchSession,
    forgotten: Sequence[PartitionKey],
) -> None:
    """The fetches of a session are no more those of the partitions that it has forgotten."""
    for key in in_steps(forgotten, every=64):
        partition = context.broker.replicas.led(key.topic, key.partition)
        if partition is not None:
            partition.take_back(follower.broker_id, session.fetches)


# ---- reading


def _read_all(fetch: _Fetch, *, is_first: bool = False) -> _Read:
    """Reads every partition, in order, until the response is full.

    Only the first time, what a follower says of its log is noted.
    """
    left = fetch.max_bytes
    total = 0
    is_final = False
    answers = []
    for wanted in in_steps(fetch.fetch_context.partitions, every=8):
        answer = _read_one(fetch, wanted, left, min_one=total == 0, is_first=is_first)
        answers.append(answer)
        if answer.error_code or answer.diverging is not None or answer.preferred_replica >= 0:
            is_final = True
        elif answer.size_bytes:
            total += answer.size_bytes
            left = max(0, left - answer.size_bytes)
    return _Read(answers, total, is_final)


def _read_one(
    fetch: _Fetch, wanted: FetchPartition, left: int, *, min_one: bool, is_first: bool
) -> PartitionAnswer:
    context, key, follower = fetch.context, wanted.key, fetch.follower
    try:
        partition = _partition(fetch, key)
        partition.check_epoch(wanted.current_leader_epoch)
        if follower is not None:
            partition.require_follower(follower.broker_id, wanted.current_leader_epoch)
        return _read_log(fetch, wanted, partition, left, min_one=min_one, is_first=is_first)
    except KafkaError as error:
        if not isinstance(error, _NOT_FAILED):
            context.broker.metrics.fetch_failed(key.topic)
        # Kafka says this before it reads, and then leaves no null.
        aborted = () if isinstance(error, _NOT_THERE) else None
        leader = None
        if context.api_version >= _LEADERS_SINCE and error.code in _MOVED:
            leader = current_leader(context.broker.metadata.image, key.topic, key.partition)
        return PartitionAnswer(
            wanted, error_code=error.code, aborted=aborted, current_leader=leader
        )
    except Exception:
        context.broker.metrics.fetch_failed(key.topic)
        _log.exception(
            "Error processing fetch with max size %s of %s-%s", left, key.topic, key.partition
        )
        return PartitionAnswer(wanted, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _read_log(
    fetch: _Fetch,
    wanted: FetchPartition,
    partition: Partition,
    left: int,
    *,
    min_one: bool,
    is_first: bool,
) -> PartitionAnswer:
    """The records of a partition, or where else to read them, or where the logs have parted."""
    follower = fetch.follower
    log = partition.log
    if fetch.neighbours:
        preferred = partition.nearest_reader(fetch.neighbours, wanted.fetch_offset)
        if preferred is not None:
            return PartitionAnswer(
                wanted,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                preferred_replica=preferred,
            )
    diverging = _diverging_epoch(log, wanted)
    if diverging is not None:
        return PartitionAnswer(
            wanted,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging=diverging,
        )
    high_watermark = log.high_watermark
    fetched = log.read(
        wanted.fetch_offset,
        min(wanted.max_bytes, left),
        isolation=fetch.isolation,
        min_one=min_one,
    )
    if follower is not None and is_first:
        partition.fetched_by(
            follower.broker_id,
            wanted.fetch_offset,
            start=wanted.own_start_offset,
            broker_epoch=follower.broker_epoch,
        )
    # Clients of version 3 and later are never given a part of a batch alone.
    is_left_out = fetched.first_entry_incomplete or _is_held_back(fetch, partition)
    return PartitionAnswer(
        wanted,
        high_watermark=high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        records=None if is_left_out else fetched.range,
        aborted=None if is_left_out else fetched.aborted,
    )


def _is_held_back(fetch: _Fetch, partition: Partition) -> bool:
    """Whether a follower gets no records now: it is not in sync, and the throttle is used up.

    Source: ReplicaManager.shouldLeaderThrottle.
    """
    return (
        fetch.follower is not None
        and fetch.context.broker.replicas.throttles.leader.holds_back(
            partition.topic, partition.index
        )
        and not partition.is_in_sync(fetch.follower.broker_id)
    )


def _diverging_epoch(log: PartitionLog, wanted: FetchPartition) -> tuple[int, int] | None:
    """The newest epoch that both may have, and its end here, if the client's log is another one.

    Raises:
        OffsetOutOfRangeError: the epoch is not known, or the offset lies before the log.

    Source: Partition.readRecords; KIP-595.
    """
    if wanted.last_fetched_epoch == _NO_EPOCH:
        return None
    epoch, end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == _NO_EPOCH or end < 0:
        raise OffsetOutOfRangeError(
            "Could not determine the end offset of the last fetched epoch "
            f"{wanted.last_fetched_epoch} from the request"
        )
    if wanted.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRangeError(
            f"Received request for offset {wanted.fetch_offset} for partition "
            f"{log.topic_partition}, but we only have log segments in the range "
            f"{log.log_start_offset} to {log.log_end_offset}."
        )
    if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
        return epoch, end
    return None


def _partition(fetch: _Fetch, key: PartitionKey) -> Partition:
    context = fetch.context
    if key.topic_id is not None and not key.topic:
        raise UnknownTopicIdError("This server does not host this topic ID.")
    if fetch.follower is None:
        is_allowed = context.authorize(_READ, _TOPIC, key.topic)
    else:
        is_allowed = context.authorize_cluster(Operation.CLUSTER_ACTION)
    if not is_allowed:
        raise TopicAuthorizationError
    replicas = context.broker.replicas
    if fetch.follower is None and context.api_version >= _RACKS_SINCE:
        partition = replicas.readable(key.topic, key.partition)
    else:
        partition = replicas.partition(key.topic, key.partition)
    if key.topic_id is None:
        return partition
    if partition.topic_id != key.topic_id:
        raise InconsistentTopicIdError("The topic has another ID than the one in the request.")
    return partition


# ---- waiting


class DelayedFetch:
    """A fetch that has too little yet; `answer` is done when it has enough, or time is up.

    Source: kafka.server.DelayedFetch.
    """

    def __init__(self, fetch: _Fetch, read: _Read, missing_bytes: int) -> None:
        self._fetch = fetch
        self._read = read
        self._missing = missing_bytes
        self.answer: asyncio.Future[Encoded] = fetch.context.broker.thread.loop.create_future()

    @property
    def keys(self) -> Iterator[WaitKey]:
        """The partitions whose growth may end the wait, or the session that watches them."""
        session = self._fetch.followers_session
        if session is not None:
            yield session.id
            return
        for answer in in_steps(self._read.answers, every=64):
            if self._fetch.follower is None or not self._is_held_back(answer):
                yield answer.wanted.key.topic, answer.wanted.key.partition

    def _is_held_back(self, read: PartitionAnswer) -> bool:
        try:
            return _is_held_back(self._fetch, _partition(self._fetch, read.wanted.key))
        except KafkaError:
            return False

    def try_complete(self, grown_bytes: int | None) -> bool:
        """As `cordwood.purgatory.purgatory.Operation`: by what its partitions have grown."""
        if grown_bytes is None:
            return self._has_unread or any(
                self._has_changed(answer) for answer in in_steps(self._read.answers, every=64)
            )
        self._missing -= grown_bytes
        return self._missing <= 0 or grown_bytes == 0

    @property
    def _has_unread(self) -> bool:
        """Whether a follower's session has to read a partition that has not been read."""
        session = self._fetch.followers_session
        return session is not None and len(session.due) > len(self._read.answers)

    def _has_changed(self, read: PartitionAnswer) -> bool:
        """Whether a partition is not as it was when it was read."""
        try:
            partition = _partition(self._fetch, read.wanted.key)
        except KafkaError:
            return True
        if self._fetch.follower is not None:
            if _is_held_back(self._fetch, partition):
                return False
            return partition.log.log_end_offset > read.wanted.fetch_offset
        return partition.log.high_watermark != read.high_watermark

    def on_expiration(self) -> None:
        """As `cordwood.purgatory.purgatory.Operation`: the purgatory counts it."""

    def on_complete(self) -> None:
        """As `cordwood.purgatory.purgatory.Operation`: reads again, in a later turn.

        Not in this one: what has appended has its own answer to give first.
        """
        self._fetch.context.broker.thread.loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self.answer.done():
            return
        if self._fetch.fetch_context.due_count > _INLINE_PARTITIONS_MAX:
            self._fetch.context.broker.thread.slices.run(self._read_again).add_done_callback(
                self._finished
            )
            return
        try:
            self.answer.set_result(self._read_again())
        except Exception as error:  # the connection waits for an answer
            self.answer.set_exception(error)

    def _read_again(self) -> Encoded:
        return _respond(self._fetch, _read_all(self._fetch))

    def _finished(self, work: asyncio.Future[Encoded]) -> None:
        if self.answer.done():
            return
        error = work.exception()
        if error is None:
            self.answer.set_result(work.result())
        else:
            self.answer.set_exception(error)


def _delay(fetch: _Fetch, read: _Read, wait_ms: int, missing_bytes: int) -> Response:
    """Waits until the partitions have grown by so many bytes, or the client has gone."""
    operation = DelayedFetch(fetch, read, missing_bytes)
    delayed_operations = fetch.context.broker.replicas.delayed
    purgatory: Purgatory[WaitKey] = delayed_operations.fetch
    if fetch.follower is not None:
        purgatory = delayed_operations.replica_fetch
    delayed = purgatory.try_complete_else_watch(operation, operation.keys, wait_ms)
    operation.answer.add_done_callback(lambda _: delayed.cancel())
    return operation.answer


# ---- answering


def _respond(fetch: _Fetch, read: _Read) -> Encoded:
    context = fetch.fetch_context
    session = context.session
    answers = read.answers
    _count(fetch.context, answers)
    if fetch.follower is not None:
        _count_replication(fetch.context, answers)
    if session is not None:
        if context.is_incremental:
            answers = [answer for answer in in_steps(answers, every=64) if _is_news(answer)]
        for answer in in_steps(answers, every=64):
            # A follower cuts its log off, and takes no high watermark from that answer.
            # Differs: in Kafka it stays behind until the leader's moves again.
            told = answer.high_watermark if answer.diverging is None else -1
            answer.wanted.high_watermark = told
            answer.wanted.log_start_offset = answer.log_start_offset
        if context.is_incremental:
            session.served_last([a.wanted.key for a in answers if a.size_bytes])
        if fetch.followers_session is not None:
            _leave_out(fetch, session, read.answers)
    return build_response(
        fetch.context.api_version,
        error_code=0,
        session_id=NO_SESSION if session is None else session.id,
        answers=answers,
        endpoints=_endpoints(fetch.context, answers),
    )


def _leave_out(fetch: _Fetch, session: FetchSession, answers: list[PartitionAnswer]) -> None:
    """The next fetches of a follower's session read only what is not as it was answered now."""
    assert fetch.follower is not None, "a follower's session"
    if not fetch.context.broker.replicas.fetch_sessions.has(session):
        return  # it has ended meanwhile, and a later one may have taken its place
    for answer in in_steps(answers, every=16):
        wanted = answer.wanted
        if answer.size_bytes or answer.error_code or answer.diverging is not None:
            continue
        partition = fetch.context.broker.replicas.led(wanted.key.topic, wanted.key.partition)
        if (
            partition is not None
            and partition.topic_id == wanted.key.topic_id
            and wanted.current_leader_epoch == partition.leader_epoch
            and partition.leave_out(
                fetch.follower.broker_id,
                session.fetches,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
            )
        ):
            session.leave_out(wanted.key.identity)


def _endpoints(
    context: BrokerContext, answers: list[PartitionAnswer]
) -> Sequence[Mapping[str, Any]]:
    leaders = [each.current_leader[0] for each in answers if each.current_leader is not None]
    if not leaders:
        return ()
    return endpoints_of(context, leaders)


def _is_news(answer: PartitionAnswer) -> bool:
    """Source: FetchSession.CachedPartition.maybeUpdateResponseData."""
    wanted = answer.wanted
    return bool(
        answer.size_bytes
        or answer.error_code
        or answer.diverging is not None
        or answer.preferred_replica >= 0
        or wanted.high_watermark != answer.high_watermark
        or wanted.log_start_offset != answer.log_start_offset
    )


def _count(context: BrokerContext, answers: list[PartitionAnswer]) -> None:
    metrics = context.broker.metrics
    for answer in in_steps(answers, every=16):
        topic = answer.wanted.key.topic
        if answer.error_code and (
            answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            or topic not in context.broker.metadata.image.topics
        ):
            continue
        for each in (metrics.topic(topic), metrics.all_topics):
            each.total_fetch_requests += 1
            each.bytes_out += answer.size_bytes


def _count_replication(context: BrokerContext, answers: list[PartitionAnswer]) -> None:
    """Source: KafkaApis.sizeOfThrottledPartitions; without what is around the records."""
    throttle = context.broker.replicas.throttles.leader
    for answer in in_steps(answers, every=64):
        key = answer.wanted.key
        if answer.size_bytes and throttle.counts(key.topic, key.partition):
            throttle.record(answer.size_bytes)


def _is_long(context: BrokerContext, request: FetchRequest) -> bool:
    """Whether it reads many partitions of its session."""
    session_id = request.session_id
    return (
        session_id != NO_SESSION
        and context.broker.replicas.fetch_sessions.due_count(session_id) > _INLINE_PARTITIONS_MAX
    )


API = Api(1, "Fetch", 4, 18, handle, parks=True, is_long=_is_long, counted_as=fetch_kind)
