"""AddOffsetsToTxn (25), versions 0 to 4: adds the offsets of a group to a transaction.

Versions: 2 the error PRODUCER_FENCED, 3 flexible, 4 the error TRANSACTION_ABORTABLE.

Source: kafka.server.KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_group, on_transactional_id

_FENCED_SINCE = 2
#: Clients of transaction version 2 do not send this request.
_TV_0 = 0


def handle(context: BrokerContext, request: AddOffsetsToTxnRequest) -> Response:
    """Answers when the change is committed."""
    broker = context.broker
    answer = CoordinatorAnswer[int](broker.thread)
    broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [broker.groups.partition_for(request.group_id)],
        _TV_0,
        answer,
    )
    return answer.response(lambda code: _fields(code, context.api_version))


def _fields(code: int, version: int) -> AddOffsetsToTxnResponse:
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


API = Api(
    25,
    "AddOffsetsToTxn",
    0,
    4,
    handle,
    needs=(on_transactional_id(AclOperation.WRITE), on_group(AclOperation.READ)),
)
