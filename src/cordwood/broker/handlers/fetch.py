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

Source: kafka.server.KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.delayed_fetch import INLINE_PARTITIONS_MAX, DelayedFetch, when_grown
from cordwood.broker.fetch_sessions import (
    NO_SESSION,
    SESSION_ERRORS,
    FetchContext,
    FetchPartition,
    Follower,
    PartitionKey,
)
from cordwood.broker.handlers.fetch_response import build_response
from cordwood.broker.partition import NO_EPOCH
from cordwood.broker.reading import PartitionRead, PartitionReading, Reader, ReadResult
from cordwood.configs.server_properties import RACK_AWARE_SELECTOR
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import FetchRequest, FetchResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.fetch_kinds import fetch_kind
from cordwood.storage.log.log_reader import Isolation

_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11
_REPLICA_STATE_SINCE = 15
# Looked up once: members of an enum are slow to look up.
_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
_READ_COMMITTED = 1


def handle(context: BrokerContext, request: FetchRequest) -> Response:
    """Answers at once if there is enough, or nothing to wait for."""
    follower = _follower_of(context, request)
    reading = _reading(context, request, follower)
    try:
        session = _session(context, request, reading)
    except SESSION_ERRORS as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION)
    followers_session = session.session_of(follower)
    if followers_session is not None:
        followers_session.fetches.last_ms = context.broker.replicas.now_ms()
    min_bytes = min(request.min_bytes, reading.max_bytes)  # what is full is not waited for
    read = reading.read(session.partitions, is_first=True)
    if (
        request.max_wait_ms <= 0
        or not (session.due_count or followers_session)
        or read.is_final
        or read.size_bytes >= min_bytes
    ):
        return _respond(context, session, reading, read)

    def read_again() -> FetchResponse:
        read = reading.read(session.partitions, is_first=False)
        return _respond(context, session, reading, read)

    delayed = DelayedFetch(
        context.broker.thread,
        reading,
        session,
        read,
        missing_bytes=min_bytes - read.size_bytes,
        respond=read_again,
    )
    return when_grown(delayed, request.max_wait_ms)


# ---- parsing


def _follower_of(context: BrokerContext, request: FetchRequest) -> Follower | None:
    if context.api_version >= _REPLICA_STATE_SINCE:
        state = request.replica_state
        found = Follower(state.replica_id, state.replica_epoch)
    else:
        found = Follower(request.replica_id, NO_EPOCH)
    return found if found.broker_id >= 0 else None


def _neighbours(context: BrokerContext, rack: str) -> frozenset[int]:
    """The brokers in a consumer's rack that are alive, if it is to read from the nearest."""
    broker = context.broker
    if not rack or context.api_version < _RACKS_SINCE or broker.settings.rack == rack:
        return frozenset()
    if broker.settings.text("replica.selector.class") != RACK_AWARE_SELECTOR:
        return frozenset()
    return frozenset(
        each.broker_id
        for each in broker.metadata.image.brokers.values()
        if each.rack == rack and not each.fenced and each.endpoint(context.listener) is not None
    )


def _reading(
    context: BrokerContext, request: FetchRequest, follower: Follower | None
) -> PartitionReading:
    isolation = Isolation.HIGH_WATERMARK
    if follower is not None:
        isolation = Isolation.LOG_END
        reader = Reader(lambda _: context.authorize_cluster(AclOperation.CLUSTER_ACTION), follower)
    else:
        if request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.TXN_COMMITTED
        reader = Reader(
            lambda topic: context.authorize(_READ, _TOPIC, topic),
            neighbours=_neighbours(context, request.rack_id),
            reads_followed=context.api_version >= _RACKS_SINCE,
        )
    broker = context.broker
    return PartitionReading(
        broker.replicas,
        broker.metrics,
        isolation=isolation,
        max_bytes=min(request.max_bytes, broker.settings.fetch_max_bytes),
        reader=reader,
    )


# ---- the session


def _session(
    context: BrokerContext, request: FetchRequest, reading: PartitionReading
) -> FetchContext:
    follower = reading.reader.follower
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
    forgotten = []
    for left in request.forgotten_topics_data:
        topic_id = left.topic_id if by_id else None
        name = names.get(topic_id, "") if by_id else left.topic
        forgotten += [PartitionKey(topic_id, name, index) for index in left.partitions]
    found = context.broker.replicas.fetch_sessions.context(
        session_id=request.session_id,
        epoch=request.session_epoch,
        asked=asked,
        forgotten=forgotten,
        uses_topic_ids=by_id,
        follower=follower,
    )
    if follower is not None and found.session is not None:
        reading.end_omission(found.session, forgotten)
    if by_id and found.is_incremental:
        for partition in in_steps(found.partitions, every=64):
            # The topic may have been unknown here when the session began.
            if not partition.key.topic:
                name = names.get(partition.key.topic_id, "")
                partition.key = partition.key._replace(topic=name)
    return found


# ---- responding


def _respond(
    context: BrokerContext, fetch: FetchContext, reading: PartitionReading, read: ReadResult
) -> FetchResponse:
    session = fetch.session
    partitions = read.partitions
    _count(context, partitions, is_replication=reading.reader.follower is not None)
    if session is not None:
        if fetch.is_incremental:
            partitions = [each for each in in_steps(partitions, every=64) if each.is_news]
        for each in in_steps(partitions, every=64):
            each.note_in_session()
        if fetch.is_incremental:
            session.served_last([each.wanted.key for each in partitions if each.size_bytes])
        if fetch.session_of(reading.reader.follower) is not None:
            reading.omit(session, read.partitions)
    session_id = NO_SESSION if session is None else session.id
    return build_response(context, partitions, session_id=session_id)


def _count(
    context: BrokerContext, partitions: Sequence[PartitionRead], *, is_replication: bool
) -> None:
    """Counts the bytes that are sent; the followers' quota counts those of records alone.

    Source: KafkaApis.sizeOfThrottledPartitions.
    """
    broker = context.broker
    throttle = broker.replicas.throttles.leader
    for each in in_steps(partitions, every=16):
        topic, index = each.wanted.key.topic, each.wanted.key.partition
        if is_replication and each.size_bytes and throttle.counts(topic, index):
            throttle.record(each.size_bytes)
        if each.error_code and (
            each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            or topic not in broker.metadata.image.topics
        ):
            continue
        for counters in (broker.metrics.topic(topic), broker.metrics.all_topics):
            counters.total_fetch_requests += 1
            counters.bytes_out += each.size_bytes


def _is_long(context: BrokerContext, request: FetchRequest) -> bool:
    """Whether it reads many partitions of its session."""
    session_id = request.session_id
    return (
        session_id != NO_SESSION
        and context.broker.replicas.fetch_sessions.due_count(session_id) > INLINE_PARTITIONS_MAX
    )


API = Api(1, "Fetch", 4, 18, handle, parks=True, is_long=_is_long, counted_as=fetch_kind)
