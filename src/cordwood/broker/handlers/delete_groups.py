"""DeleteGroups (42), versions 0 to 3: deletes empty groups with all their offsets.

Versions: 2 flexible, 3 an error message, which is null: Kafka has one only where a plugin that
keeps the topologies of streams groups fails (KIP-1331). Not served: share groups and streams groups
(UNSUPPORTED_VERSION).

Source: kafka.server.KafkaApis.handleDeleteGroupsRequest, GroupCoordinatorShard.deleteGroups.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DeleteGroupsRequest, DeleteGroupsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType


def handle(context: BrokerContext, request: DeleteGroupsRequest) -> Response:
    """Answers for each group when its tombstones are committed."""
    answers: dict[str, CoordinatorAnswer[int]] = {}
    for group_id in in_steps(dict.fromkeys(request.groups_names)):
        answers[group_id] = CoordinatorAnswer(context.broker.thread)
        if not context.authorize(AclOperation.DELETE, ResourceType.GROUP, group_id):
            answers[group_id](ErrorCode.GROUP_AUTHORIZATION_FAILED)
            continue
        context.broker.groups.delete_group(group_id, answers[group_id], by=context.requester)
    if all(answer.is_there for answer in answers.values()):
        return _fields({group_id: answer.now() for group_id, answer in answers.items()})
    return _later(answers)


async def _later(answers: dict[str, CoordinatorAnswer[int]]) -> DeleteGroupsResponse:
    return _fields({group_id: await answer.value() for group_id, answer in answers.items()})


def _fields(codes: dict[str, int]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in codes.items()
        ]
    )


API = Api(42, "DeleteGroups", 0, 3, handle, is_long=always)
