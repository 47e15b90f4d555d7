"""JoinGroup (11), versions 0 to 9: a member joins its group, and waits for the others.

Versions: 1 rebalance timeout, 4 a member id is given first (KIP-394), 5 static members (KIP-345),
6 flexible, 7 the protocol's type, 8 a reason, 9 skipped assignments (KIP-814).

Source: kafka.server.KafkaApis.handleJoinGroupRequest, JoinGroupRequest, JoinGroupResponse.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.classic.member import Client, JoinAnswer, JoinRequest, Protocol
from cordwood.protocol.data import JoinGroupRequest, JoinGroupResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_group

_MEMBER_ID_REQUIRED_SINCE = 4
_NULLABLE_PROTOCOL_SINCE = 7
_SKIPS_ASSIGNMENT_SINCE = 9
_REBALANCE_TIMEOUT_SINCE = 1


def handle(context: BrokerContext, request: JoinGroupRequest) -> Response:
    """Answers when the group's next generation begins."""
    answer = CoordinatorAnswer[JoinAnswer](context.broker.thread)
    context.broker.groups.join(_question(context, request), answer)
    return answer.response(lambda found: _fields(found, context.api_version))


def _question(context: BrokerContext, request: JoinGroupRequest) -> JoinRequest:
    has_rebalance_timeout = context.api_version >= _REBALANCE_TIMEOUT_SINCE
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client=Client(context.client_id or "", f"/{context.client_host}"),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in request.protocols),
        needs_member_id=context.api_version >= _MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=context.api_version >= _SKIPS_ASSIGNMENT_SINCE,
        reason=request.reason,
    )


def _fields(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _NULLABLE_PROTOCOL_SINCE:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(**member._asdict())
            for member in answer.members
        ],
    )


API = Api(11, "JoinGroup", 0, 9, handle, needs=(on_group(AclOperation.READ),), parks=True)
