"""TxnOffsetCommit (28), versions 0 to 6: commits a group's offsets in a transaction.

Versions: 2 leader epochs, 3 flexible, and the member of the group, 4 the error
TRANSACTION_ABORTABLE, 5 adds the offsets to the transaction (KIP-890), 6 topic ids, and the errors
of a member of the consumer protocol (KIP-1319).

Source: kafka.server.KafkaApis.handleTxnOffsetCommitRequest,
TxnOffsetCommitResponse.Builder, GroupCoordinatorService.commitTransactionalOffsets (4.4.0).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.broker.coordinators.transaction_verification import Support, TransactionalWrite
from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.errors import CoordinatorRequestError, error_of_append
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitRequest, CommitTopic
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType

_LOADING_SINCE = 2
_TOPIC_IDS_SINCE = 6
_NO_SEQUENCE = -1


class _TopicKey(NamedTuple):
    """A topic as the request names it: by its name or by its id."""

    name: str
    topic_id: UUID


class _Answer:
    """The error of each partition of the response, in Kafka's order: refused ones come first.

    A partition that is named twice is answered twice; so is a topic, where nothing was refused
    before.
    """

    def __init__(self) -> None:
        self._topics: list[tuple[_TopicKey, list[tuple[int, int]]]] = []
        self._last: dict[_TopicKey, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def begin(self, topic: _TopicKey) -> None:
        """Gives the topic an entry of its own, to which its next partitions go."""
        partitions = self._last[topic] = []
        self._topics.append((topic, partitions))

    def put(self, topic: _TopicKey, partition: int, code: int) -> None:
        if topic not in self._last:
            self.begin(topic)
        self._last[topic].append((partition, int(code)))

    def response(self, version: int) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=index, error_code=_known_to(version, code)
                        )
                        for index, code in in_steps(partitions, every=16)
                    ],
                )
                for topic, partitions in self._topics
            ]
        )


def handle(context: BrokerContext, request: TxnOffsetCommitRequest) -> Response:
    """Answers when the offsets are in the log of the group; they count when the marker is there."""
    refusal = _refusal(context, request)
    answer = _Answer()
    if refusal is not None:
        _refuse(answer, request, refusal)
        return answer.response(context.api_version)
    topics = [
        (_key(topic), found)
        for topic in in_steps(request.topics)
        if (found := _to_commit(context, topic, answer)) is not None
    ]
    if not topics:
        return answer.response(context.api_version)
    return _commit(context, request, topics, answer)


def _key(topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic) -> _TopicKey:
    # Of a name and an id one is empty, by the version of the request.
    return _TopicKey(topic.name, topic.topic_id)


def _refusal(context: BrokerContext, request: TxnOffsetCommitRequest) -> ErrorCode | None:
    """The error for the whole request of a client that may not do this."""
    if not context.authorize(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _refuse(answer: _Answer, request: TxnOffsetCommitRequest, code: int) -> None:
    for topic in request.topics:
        for partition in in_steps(topic.partitions, every=64):
            answer.put(_key(topic), partition.partition_index, code)


def _to_commit(
    context: BrokerContext,
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
    answer: _Answer,
) -> CommitTopic | None:
    """The partitions of a topic that can be committed; puts errors of the others into `answer`."""
    image = context.broker.metadata.image
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    name = image.topic_names.get(topic.topic_id) if by_id else topic.name
    known, missing = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name is None:
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    elif not context.authorize(AclOperation.READ, ResourceType.TOPIC, name):
        missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        known = image.topics.get(name)
    partitions = []
    for each in in_steps(topic.partitions, every=16):
        if known is None or each.partition_index not in known.partitions:
            answer.put(_key(topic), each.partition_index, missing)
        else:
            partitions.append(
                CommitPartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                )
            )
    if name is None or known is None or not partitions:
        return None
    return CommitTopic(name, tuple(partitions), known.topic_id)


async def _commit(
    context: BrokerContext,
    request: TxnOffsetCommitRequest,
    topics: list[tuple[_TopicKey, CommitTopic]],
    answer: _Answer,
) -> TxnOffsetCommitResponse:
    broker = context.broker
    try:
        producer = await _verified(context, request)
    except CoordinatorRequestError as error:
        code = error_of_append(error)
    else:
        question = CommitRequest(
            group_id=request.group_id,
            topics=[topic for _, topic in topics],
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            api_version=context.api_version,
            producer=producer,
        )
        committed = CoordinatorAnswer[int](broker.thread)
        broker.groups.commit(question, committed)
        code = await committed.value()
    is_merged = bool(answer)
    for key, topic in topics:
        if not is_merged:
            answer.begin(key)
        for each in in_steps(topic.partitions, every=64):
            is_long = not code and broker.groups.is_metadata_too_long(each.metadata)
            answer.put(
                key,
                each.partition,
                ErrorCode.OFFSET_METADATA_TOO_LARGE if is_long else code,
            )
    return answer.response(context.api_version)


async def _verified(
    context: BrokerContext, request: TxnOffsetCommitRequest
) -> TransactionalProducer:
    """Requires that the transaction has the group's offsets; returns its producer.

    Raises:
        CoordinatorRequestError: it has not, or the group's id is empty.
    """
    broker = context.broker
    if not request.group_id:
        raise CoordinatorRequestError(ErrorCode.INVALID_GROUP_ID)
    partition = broker.groups.partition_for(request.group_id)
    write = TransactionalWrite(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        {partition: _NO_SEQUENCE},
        Support.of_txn_offset_commit(context.api_version),
    )
    verified = await broker.verification.begin(write)
    code = verified.errors.get(partition)
    if code:
        raise CoordinatorRequestError(code)
    return TransactionalProducer(
        request.producer_id, request.producer_epoch, verified.guards.get(partition)
    )


def _known_to(version: int, code: int) -> int:
    if version < _LOADING_SINCE and code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


API = Api(28, "TxnOffsetCommit", 0, 6, handle)
