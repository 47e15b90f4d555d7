"""InitProducerId (22), versions 0 to 6: the id and epoch of a producer.

Versions: 2 flexible, 3 the id it had before (KIP-360), 4 the error PRODUCER_FENCED, 5 the error
TRANSACTION_ABORTABLE (KIP-890), 6 two-phase commit (KIP-939), which is unstable in Kafka 4.3.

Not served, as in Kafka 4.3: prepared transactions that are kept (UNSUPPORTED_VERSION).

Source: kafka.server.KafkaApis.handleInitProducerIdRequest.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.transaction import requests
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import InitProducerIdRequest, InitProducerIdResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType

_FENCED_SINCE = 4


def handle(context: BrokerContext, request: InitProducerIdRequest) -> Response:
    """Gives an idempotent producer the next id, a transactional one its own."""
    refusal = _refusal(context, request)
    if refusal is not None:
        return InitProducerIdResponse(error_code=refusal, producer_id=-1, producer_epoch=-1)
    question = requests.InitProducerIdRequest(
        transactional_id=request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        enables_two_phase_commit=request.enable2_pc,
        keeps_prepared=request.keep_prepared_txn,
    )
    answer = CoordinatorAnswer[requests.InitProducerIdAnswer](context.broker.thread)
    context.broker.transactions.init_producer_id(question, answer)
    return answer.response(lambda found: _fields(found, context.api_version))


def _refusal(context: BrokerContext, request: InitProducerIdRequest) -> ErrorCode | None:
    """The error of a client that may not do this."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        may_write = context.authorize_cluster(AclOperation.IDEMPOTENT_WRITE)
        may_write = may_write or context.authorize_any(AclOperation.WRITE, ResourceType.TOPIC)
        return None if may_write else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    needed = [AclOperation.WRITE]
    if request.enable2_pc:
        needed.append(AclOperation.TWO_PHASE_COMMIT)
    if all(
        context.authorize(each, ResourceType.TRANSACTIONAL_ID, transactional_id) for each in needed
    ):
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _fields(answer: requests.InitProducerIdAnswer, version: int) -> InitProducerIdResponse:
    code = answer.error_code
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


API = Api(22, "InitProducerId", 0, 6, handle, is_last_unstable=True)
