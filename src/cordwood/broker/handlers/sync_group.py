"""SyncGroup (14), versions 0 to 5: a member gets its assignment; the leader sends all.

Versions: 3 static members, 4 flexible, 5 the protocol's type and name.

Source: kafka.server.KafkaApis.handleSyncGroupRequest.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.classic.member import SyncAnswer, SyncRequest
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import SyncGroupRequest, SyncGroupResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_group

_PROTOCOL_REQUIRED_SINCE = 5


def handle(context: BrokerContext, request: SyncGroupRequest) -> Response:
    """Answers when the leader has brought the assignments."""
    protocol_type, protocol_name = request.protocol_type, request.protocol_name
    if context.api_version >= _PROTOCOL_REQUIRED_SINCE and None in {protocol_type, protocol_name}:
        return _fields(SyncAnswer(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    answer = CoordinatorAnswer[SyncAnswer](context.broker.thread)
    question = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
    )
    context.broker.groups.sync(question, answer)
    return answer.response(_fields)


def _fields(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(**answer._asdict())


API = Api(14, "SyncGroup", 0, 5, handle, needs=(on_group(AclOperation.READ),), parks=True)
