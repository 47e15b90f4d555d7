"""UnregisterBroker (64), version 0: removes the registration of a broker.

Source: org.apache.kafka.controller.QuorumController.unregisterBroker; KIP-631.
"""

from __future__ import annotations

from collections.abc import Awaitable

from cordwood.protocol.data import UnregisterBrokerRequest, UnregisterBrokerResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import result_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Response:
    """Unregisters a broker, this one too, which then has to be started again, as in Kafka."""
    return _response(context.admin.unregister_broker(request.broker_id))


async def _response(asked: Awaitable[None]) -> UnregisterBrokerResponse:
    error = await result_or_error(asked)
    # Kafka's text is empty, not null.
    text = "" if error is None else error_message(error)
    return UnregisterBrokerResponse(error_code=error_code(error), error_message=text)


API = Api(64, "UnregisterBroker", 0, 0, handle, needs=(on_cluster(AclOperation.ALTER),))
