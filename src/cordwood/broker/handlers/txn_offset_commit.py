"""TxnOffsetCommit (28), versions 0 to 5: commits a group's offsets in a transaction.

Versions: 2 leader epochs, 3 flexible, and the member of the group, 4 the error
TRANSACTION_ABORTABLE, 5 adds the offsets to the transaction (KIP-890).

Source: kafka.server.KafkaApis.handleTxnOffsetCommitRequest,
GroupCoordinatorService.commitTransactionalOffsets.
"""

from __future__ import annotations

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
_NO_SEQUENCE = -1


class _Answer:
    """The error of each partition of the response, in Kafka's order: refused ones come first.

    A partition that is named twice is answered twice.
    """

    def __init__(self) -> None:
        self._topics: dict[str, list[tuple[int, int]]] = {}

    def put(self, topic: str, partition: int, code: int) -> None:
        self._topics.setdefault(topic, []).append((partition, int(code)))

    def response(self, version: int) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=index, error_code=_known_to(version, code)
                        )
                        for index, code in in_steps(partitions, every=16)
                    ],
                )
                for name, partitions in self._topics.items()
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
        found
        for topic in in_steps(request.topics)
        if (found := _to_commit(context, topic, answer)) is not None
    ]
    if not topics:
        return answer.response(context.api_version)
    return _commit(context, request, tuple(topics), answer)


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
            answer.put(topic.name, partition.partition_index, code)


def _to_commit(
    context: BrokerContext,
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
    answer: _Answer,
) -> CommitTopic | None:
    """The partitions of a topic that can be committed; puts errors of the others into `answer`."""
    name = topic.name
    known = context.broker.metadata.image.topics.get(name)
    is_allowed = context.authorize(AclOperation.READ, ResourceType.TOPIC, name)
    partitions = []
    for each in in_steps(topic.partitions, every=16):
        if not is_allowed:
            answer.put(name, each.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif known is None or each.partition_index not in known.partitions:
            answer.put(name, each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            partitions.append(
                CommitPartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                )
            )
    if known is None or not partitions:
        return None
    return CommitTopic(name, tuple(partitions), known.topic_id)


async def _commit(
    context: BrokerContext,
    request: TxnOffsetCommitRequest,
    topics: tuple[CommitTopic, ...],
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
            topics=topics,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            api_version=context.api_version,
            producer=producer,
        )
        committed = CoordinatorAnswer[int](broker.thread)
        broker.groups.commit(question, committed)
        code = await committed.value()
    for topic in topics:
        for each in in_steps(topic.partitions, every=64):
            is_long = not code and broker.groups.is_metadata_too_long(each.metadata)
            answer.put(
                topic.name,
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


API = Api(28, "TxnOffsetCommit", 0, 5, handle)
