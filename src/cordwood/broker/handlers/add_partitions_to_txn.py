"""AddPartitionsToTxn (24), versions 0 to 5: adds partitions to a transaction, or verifies them.

Versions: 3 flexible, 4 several transactions, for brokers that verify a write (KIP-890), 5
transactions of version 2.

Source: kafka.server.KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.broker.coordinators.transaction_partitions import TransactionRequest
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType, on_cluster
from cordwood.serving.handlers.cluster_facts import is_internal

_BATCHED_SINCE = 4
_FENCED_SINCE = 2
_TV_0, _TV_2 = 0, 2

_Errors = Mapping[TopicPartition, int]


def handle(context: BrokerContext, request: AddPartitionsToTxnRequest) -> Response:
    """Answers when the changes of all transactions are committed."""
    if context.api_version >= _BATCHED_SINCE:
        context.require(on_cluster(AclOperation.CLUSTER_ACTION), request)
        answers = {
            each.transactional_id: _answer_of_broker(context, each) for each in request.transactions
        }
        if all(answer.is_there for answer in answers.values()):
            return _batched({key: answer.now() for key, answer in answers.items()})
        return _batched_later(answers)
    answer = _answer_of_client(context, request)
    return answer.response(
        lambda errors: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_topics(errors, context.api_version)
        )
    )


def _answer_of_broker(
    context: BrokerContext, asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> CoordinatorAnswer[_Errors]:
    answer = CoordinatorAnswer[_Errors](context.broker.thread)
    context.broker.transaction_partitions.handle(
        TransactionRequest(
            asked.transactional_id,
            asked.producer_id,
            asked.producer_epoch,
            _partitions(asked.topics),
            verify_only=asked.verify_only,
            client_version=_TV_2,
        ),
        answer,
    )
    return answer


def _answer_of_client(
    context: BrokerContext, request: AddPartitionsToTxnRequest
) -> CoordinatorAnswer[_Errors]:
    answer = CoordinatorAnswer[_Errors](context.broker.thread)
    transactional_id = request.v3_and_below_transactional_id
    partitions = _partitions(request.v3_and_below_topics)
    if not context.authorize(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answer(dict.fromkeys(partitions, int(code)))
        return answer
    names = {each.topic for each in partitions if not is_internal(each.topic)}
    allowed = context.authorized(AclOperation.WRITE, ResourceType.TOPIC, names)
    refused = {
        each: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for each in partitions
        if each.topic not in allowed
    }
    context.broker.transaction_partitions.handle(
        TransactionRequest(
            transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            verify_only=False,
            client_version=_TV_0,
        ),
        answer,
        refused=refused,
    )
    return answer


def _partitions(
    topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic],
) -> tuple[TopicPartition, ...]:
    """Each partition once, in the order of the request."""
    found = dict.fromkeys(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
    )
    return tuple(found)


async def _batched_later(
    answers: Mapping[str, CoordinatorAnswer[_Errors]],
) -> AddPartitionsToTxnResponse:
    return _batched({key: await answer.value() for key, answer in answers.items()})


def _batched(answers: Mapping[str, _Errors]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=key, topic_results=_topics(errors, _BATCHED_SINCE)
            )
            for key, errors in answers.items()
        ]
    )


def _topics(
    errors: _Errors, version: int
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]] = {}
    for partition, code in errors.items():
        is_fenced = code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE
        topics.setdefault(partition.topic, []).append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=partition.partition,
                partition_error_code=ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else code,
            )
        )
    return [
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=name, results_by_partition=partitions
        )
        for name, partitions in topics.items()
    ]


API = Api(24, "AddPartitionsToTxn", 0, 5, handle)
