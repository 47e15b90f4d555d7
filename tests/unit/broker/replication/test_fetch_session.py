"""The fetch session of a follower, with the cache of sessions of a leader on the other side."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.replication.fetch_session import ReplicaFetchSession
from cordwood.broker.replication.following import NO_EPOCH, FetchPosition
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.protocol.data import FetchRequest, FetchResponse
from cordwood.storage.log.leader_epochs import EpochEndOffset

A, B = UUID(int=1 << 70), UUID(int=2 << 70)
A0, A1, B0 = TopicIdPartition(A, 0), TopicIdPartition(A, 1), TopicIdPartition(B, 0)


def at(offset: int) -> FetchPosition:
    return FetchPosition(leader_epoch=4, offset=offset, last_epoch=NO_EPOCH, log_start_offset=0)


def response(
    *keys: TopicIdPartition, session_id: int = 77, error: ErrorCode = ErrorCode.NONE, **fields: Any
) -> FetchResponse:
    given = {"high_watermark": 3, "log_start_offset": 0, **fields}
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic_id=key.topic_id,
            partitions=[FetchResponse.PartitionData(partition_index=key.partition, **given)],
        )
        for key in keys
    ]
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def asked(fields: FetchRequest) -> dict[TopicIdPartition, int]:
    return {
        TopicIdPartition(topic.topic_id, each.partition): each.fetch_offset
        for topic in fields.topics
        for each in topic.partitions
    }


def forgotten(fields: FetchRequest) -> set[TopicIdPartition]:
    return {
        TopicIdPartition(topic.topic_id, each)
        for topic in fields.forgotten_topics_data
        for each in topic.partitions
    }


def request(
    session: ReplicaFetchSession, positions: dict[TopicIdPartition, FetchPosition]
) -> FetchRequest:
    """A fetch of these partitions and no others."""
    for key in (A0, A1, B0):
        if key in positions:
            session.fetch_from(key, positions[key])
        else:
            session.omit(key)
    assert len(session) == len(positions)
    return session.request(200)


@pytest.fixture
def session() -> ReplicaFetchSession:
    """A session 77 with A0 at 5 and B0 at 6."""
    found = ReplicaFetchSession(2)
    fields = request(found, {A0: at(5), B0: at(6)})
    assert (fields.session_id, fields.session_epoch) == (0, 0)
    assert fields.replica_state == FetchRequest.ReplicaState(replica_id=2, replica_epoch=200)
    assert asked(fields) == {A0: 5, B0: 6}
    assert set(found.answered(response(A0, B0))) == {A0, B0}
    return found


def test_only_what_has_changed_is_sent(session: ReplicaFetchSession) -> None:
    fields = request(session, {A0: at(5), B0: at(9), A1: at(0)})
    assert (fields.session_id, fields.session_epoch) == (77, 1)
    assert asked(fields) == {B0: 9, A1: 0}
    assert not forgotten(fields)
    found = session.answered(response(A0, records=b"batches"))
    assert found[A0][0] == at(5)
    assert (found[A0][1].records, found[A0][1].high_watermark) == (b"batches", 3)
    fields = request(session, {A0: at(7), A1: at(0)})
    assert fields.session_epoch == 2
    assert (asked(fields), forgotten(fields)) == ({A0: 7}, {B0})


def test_what_changes_while_a_request_is_under_way_is_sent_with_the_next(
    session: ReplicaFetchSession,
) -> None:
    request(session, {A0: at(5), B0: at(6)})
    session.omit(A0)
    session.fetch_from(B0, at(8))
    found = session.answered(response(B0, records=b"batches"))
    assert found[B0][0] == at(6), "that was asked for"
    session.omit(B0)
    session.fetch_from(B0, at(9))
    fields = session.request(200)
    assert (asked(fields), forgotten(fields)) == ({B0: 9}, {A0})
    fields = session.request(200)
    assert (asked(fields), forgotten(fields)) == ({}, set())


def test_leader_without_room_for_a_session_gets_whole_requests() -> None:
    session = ReplicaFetchSession(2)
    for _ in range(2):
        fields = request(session, {A0: at(5)})
        assert (fields.session_id, fields.session_epoch) == (0, 0)
        assert asked(fields) == {A0: 5}
        session.answered(response(A0, session_id=0))


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
    ],
)
def test_session_that_the_leader_has_lost_begins_again(
    session: ReplicaFetchSession, error: ErrorCode, session_id: int
) -> None:
    request(session, {A0: at(5), B0: at(6)})
    assert session.answered(response(error=error)) == {}
    fields = request(session, {A0: at(5), B0: at(6)})
    assert (fields.session_id, fields.session_epoch) == (session_id, 0)
    assert asked(fields) == {A0: 5, B0: 6}


def test_request_without_an_answer_ends_the_session(session: ReplicaFetchSession) -> None:
    request(session, {A0: at(8), B0: at(6)})
    session.begin_again()
    fields = request(session, {A0: at(8), B0: at(6)})
    assert (fields.session_id, fields.session_epoch) == (77, 0)
    assert asked(fields) == {A0: 8, B0: 6}


@pytest.mark.parametrize("keys", [(A0,), (A0, B0, A1)])
def test_whole_answer_with_other_partitions_is_left_out(keys: tuple[TopicIdPartition, ...]) -> None:
    session = ReplicaFetchSession(2)
    request(session, {A0: at(5), B0: at(6)})
    assert session.answered(response(*keys)) == {}
    assert not session.is_incremental


def test_end_of_an_epoch_and_an_error_are_read(session: ReplicaFetchSession) -> None:
    request(session, {A0: at(5), B0: at(6)})
    diverging = FetchResponse.EpochEndOffset(epoch=3, end_offset=4)
    found = session.answered(response(A0, diverging_epoch=diverging))
    assert found[A0][1].diverging == EpochEndOffset(3, 4)
    request(session, {A0: at(5), B0: at(6)})
    found = session.answered(response(B0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert found[B0][1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
