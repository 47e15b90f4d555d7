"""ListTransactions (66) and DescribeTransactions (65): there are none.

There is no transaction coordinator; the answers are those of a Kafka that has the topic
__transaction_state and no transaction, so that kafka-transactions and other searches for hanging
transactions continue.

Source: kafka.coordinator.transaction.TransactionCoordinator; KIP-664.
"""

from __future__ import annotations

from cordwood.broker.authorizer import Operation, ResourceType
from cordwood.broker.request_context import RequestContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.regular_expressions import compile_regular_expression
from cordwood.network.api import Api, Response, always
from cordwood.protocol.apis.describe_transactions import DescribeTransactionsRequest
from cordwood.protocol.apis.list_transactions import ListTransactionsRequest

_STATES = frozenset(
    {
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Empty",
        "PrepareEpochFence",
        "Dead",
    }
)


def list_all(_context: RequestContext, request: ListTransactionsRequest) -> Response:
    """Lists nothing, and says which states it does not know.

    Raises:
        InvalidRegularExpressionError: the pattern is not in RE2's syntax.
    """
    if request.transactional_id_pattern:
        compile_regular_expression(request.transactional_id_pattern)
    unknown = [state for state in request.state_filters if state not in _STATES]
    return {"unknown_state_filters": unknown}


def describe(context: RequestContext, request: DescribeTransactionsRequest) -> Response:
    """Knows none."""
    return {
        "transaction_states": [
            {
                "transactional_id": each,
                "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                if context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each)
                else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transaction_start_time_ms": 0,
            }
            for each in request.transactional_ids
        ]
    }


APIS = (
    Api(65, "DescribeTransactions", 0, 0, describe, is_long=always),
    Api(66, "ListTransactions", 0, 2, list_all, is_long=always),
)
