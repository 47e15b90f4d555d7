"""InitProducerId (22), versions 0 to 5: an id for an idempotent producer.

Versions: 2 flexible, 3 the id it had before (KIP-360), 5 transactions of version 2.

Ids come in blocks of a thousand, each of which is in the metadata log before the first is given.

Not served: a transactional id is refused (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients take
for final), for there is no coordinator of transactions.

Source: kafka.server.KafkaApis.handleInitProducerIdRequest, RPCProducerIdManager.
"""

from __future__ import annotations

from cordwood.broker.authorizer import Operation, ResourceType
from cordwood.broker.request_context import RequestContext
from cordwood.model.error_codes import ErrorCode
from cordwood.network.api import Api, Fields, Response
from cordwood.protocol.apis.init_producer_id import InitProducerIdRequest

_NONE = {"producer_id": -1, "producer_epoch": -1}


def handle(context: RequestContext, request: InitProducerIdRequest) -> Response:
    """Gives the next id, with epoch 0."""
    if request.transactional_id is not None:
        if not context.authorize(
            Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        ):
            return _NONE | {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        if not request.transactional_id:
            return _NONE | {"error_code": ErrorCode.INVALID_REQUEST}
        refusal = context.broker.refused_transactions.refuse(
            request.transactional_id, client_id=context.client_id, client_host=context.client_host
        )
        return _NONE | {"error_code": refusal.code}
    if not context.authorize_cluster(Operation.IDEMPOTENT_WRITE) and not context.authorize_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return _NONE | {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _NONE | {"error_code": ErrorCode.INVALID_REQUEST}
    return _next(context)


async def _next(context: RequestContext) -> Fields:
    return {"producer_id": await context.broker.producer_ids.next_id(), "producer_epoch": 0}


API = Api(22, "InitProducerId", 0, 5, handle)
