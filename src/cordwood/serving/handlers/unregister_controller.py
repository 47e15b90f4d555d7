"""UnregisterController (94), version 0: removes the registration of a controller.

Source: org.apache.kafka.controller.QuorumController.unregisterController,
kafka.server.ControllerApis.handleUnregisterController (4.4.0).
"""

from __future__ import annotations

from collections.abc import Awaitable

from cordwood.protocol.data import UnregisterControllerRequest, UnregisterControllerResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import result_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: UnregisterControllerRequest) -> Response:
    """Unregisters a controller that is not the active one."""
    return _response(context.admin.unregister_controller(request.controller_id))


async def _response(asked: Awaitable[None]) -> UnregisterControllerResponse:
    error = await result_or_error(asked)
    # Kafka's text is empty, not null.
    text = "" if error is None else error_message(error)
    return UnregisterControllerResponse(error_code=error_code(error), error_message=text)


API = Api(94, "UnregisterController", 0, 0, handle, needs=(on_cluster(AclOperation.ALTER),))
