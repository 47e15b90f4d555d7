"""DescribeGroups (15), versions 0 to 6: states and members of classic groups.

Versions: 3 authorized operations, 4 static members, 5 flexible, 6 GROUP_ID_NOT_FOUND (KIP-1043)
where older versions return a dead group.

Source: kafka.server.KafkaApis.handleDescribeGroupsRequest, GroupMetadataManager.describeGroups.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DescribeGroupsRequest, DescribeGroupsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import NOT_ASKED

_NOT_FOUND_SINCE = 6
_Group = DescribeGroupsResponse.DescribedGroup


def handle(context: BrokerContext, request: DescribeGroupsRequest) -> Response:
    """Answers from memory."""
    wants_operations = bool(request.include_authorized_operations)
    groups = []
    denied = []
    for group_id in in_steps(request.groups, every=8):
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(_Group(group_id=group_id, error_code=code, group_state=""))
            continue
        described = _describe(context, group_id, context.api_version)
        if not described.error_code:
            described.authorized_operations = (
                context.authorized_operations(ResourceType.GROUP, group_id)
                if wants_operations
                else NOT_ASKED
            )
        groups.append(described)
    return DescribeGroupsResponse(groups=denied + groups)


def _describe(context: BrokerContext, group_id: str, version: int) -> _Group:
    try:
        return _described(context.broker.groups.describe(group_id, ClassicGroup))
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            return _Group(group_id=group_id, error_code=error.code, group_state="")
        answer = _Group(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _NOT_FOUND_SINCE:
            answer.error_code = error.code
            answer.error_message = str(error)
        return answer


def _described(group: ClassicGroup) -> _Group:
    is_stable = group.state is GroupState.STABLE
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client.client_id,
                client_host=member.client.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in in_steps(group.members(), every=16)
        ],
    )


API = Api(15, "DescribeGroups", 0, 6, handle, is_long=always)
