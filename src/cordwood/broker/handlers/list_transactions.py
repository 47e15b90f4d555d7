"""ListTransactions (66) and DescribeTransactions (65): the transactions coordinated here.

Source: kafka.server.KafkaApis.handleListTransactionsRequest, handleDescribeTransactionsRequest;
KIP-664.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType

_Described = DescribeTransactionsResponse.TransactionState


def list_all(context: BrokerContext, request: ListTransactionsRequest) -> Response:
    """Lists those that the client may describe.

    Raises:
        InvalidRegularExpressionError: the pattern is not in RE2's syntax.
    """
    found = context.broker.transactions.list_transactions(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern,
    )
    return ListTransactionsResponse(
        error_code=found.error_code,
        unknown_state_filters=list(found.unknown_states),
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            for each in in_steps(found.transactions, every=16)
            if _may_describe(context, each.transactional_id)
        ],
    )


def describe(context: BrokerContext, request: DescribeTransactionsRequest) -> Response:
    """Describes transactions, with those of their topics that the client may describe."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(context, each) for each in in_steps(request.transactional_ids)
        ]
    )


def _described(context: BrokerContext, transactional_id: str) -> _Described:
    if not _may_describe(context, transactional_id):
        code: int = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _failed(transactional_id, code)
    found = context.broker.transactions.describe(transactional_id)
    if found.error_code:
        return _failed(transactional_id, found.error_code)
    return _Described(
        transactional_id=transactional_id,
        error_code=found.error_code,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=list(partitions))
            for topic, partitions in found.topics
            if context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


def _failed(transactional_id: str, code: int) -> _Described:
    return _Described(
        transactional_id=transactional_id,
        error_code=code,
        transaction_start_time_ms=0,
    )


def _may_describe(context: BrokerContext, transactional_id: str) -> bool:
    return context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)


APIS = (
    Api(65, "DescribeTransactions", 0, 0, describe, is_long=always),
    Api(66, "ListTransactions", 0, 2, list_all, is_long=always),
)
