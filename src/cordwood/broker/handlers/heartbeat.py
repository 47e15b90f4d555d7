"""Heartbeat (12), versions 0 to 4: keeps a session alive, says whether to rejoin.

Versions: 3 static members, 4 flexible.

Source: kafka.server.KafkaApis.handleHeartbeatRequest.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.protocol.data import HeartbeatRequest, HeartbeatResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_group


def handle(context: BrokerContext, request: HeartbeatRequest) -> Response:
    """Answers with an error code alone."""
    answer = CoordinatorAnswer[int](context.broker.thread)
    context.broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        answer,
    )
    return answer.response(lambda code: HeartbeatResponse(error_code=code))


API = Api(12, "Heartbeat", 0, 4, handle, needs=(on_group(AclOperation.READ),))
