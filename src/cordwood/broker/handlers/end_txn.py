"""EndTxn (26), versions 0 to 5: commits or aborts a transaction.

Versions: 2 the error PRODUCER_FENCED, 3 flexible, 4 the error TRANSACTION_ABORTABLE, 5 a new epoch
for each transaction (KIP-890).

Source: kafka.server.KafkaApis.handleEndTxnRequest.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.transaction.requests import EndAnswer, EndRequest
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import EndTxnRequest, EndTxnResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_transactional_id

_FENCED_SINCE = 2
_NEW_EPOCHS_SINCE = 5
_TV_0, _TV_2 = 0, 2


def handle(context: BrokerContext, request: EndTxnRequest) -> Response:
    """Answers when the outcome is committed; the markers are written afterwards."""
    question = EndRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
        client_version=_TV_2 if context.api_version >= _NEW_EPOCHS_SINCE else _TV_0,
    )
    answer = CoordinatorAnswer[EndAnswer](context.broker.thread)
    context.broker.transactions.end(question, answer)
    return answer.response(lambda found: _fields(found, context.api_version))


def _fields(answer: EndAnswer, version: int) -> EndTxnResponse:
    code = answer.error_code
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


API = Api(26, "EndTxn", 0, 5, handle, needs=(on_transactional_id(AclOperation.WRITE),))
