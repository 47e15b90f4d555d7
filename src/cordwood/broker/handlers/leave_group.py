"""LeaveGroup (13), versions 0 to 5: members leave, or an administrator removes them.

Versions: 3 several members, static ones too (KIP-345), 4 flexible, 5 a reason.

Source: kafka.server.KafkaApis.handleLeaveGroupRequest, LeaveGroupResponse.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.classic.member import LeaveReply, LeavingMember
from cordwood.protocol.data import LeaveGroupRequest, LeaveGroupResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_group

_SEVERAL_SINCE = 3


def handle(context: BrokerContext, request: LeaveGroupRequest) -> Response:
    """Answers for each member; for one alone, in old versions, as for all."""
    is_single = context.api_version < _SEVERAL_SINCE
    leaving = (
        [LeavingMember(request.member_id)]
        if is_single
        else [
            LeavingMember(each.member_id, each.group_instance_id, each.reason)
            for each in request.members
        ]
    )
    answer = CoordinatorAnswer[LeaveReply](context.broker.thread)
    context.broker.groups.leave(request.group_id, leaving, answer)
    return answer.response(lambda reply: _fields(reply, is_single=is_single))


def _fields(reply: LeaveReply, *, is_single: bool) -> LeaveGroupResponse:
    if reply.error_code:
        return LeaveGroupResponse(error_code=reply.error_code)
    return LeaveGroupResponse(
        error_code=reply.members[0].error_code if is_single else 0,
        members=[LeaveGroupResponse.MemberResponse(**member._asdict()) for member in reply.members],
    )


API = Api(13, "LeaveGroup", 0, 5, handle, needs=(on_group(AclOperation.READ),))
