"""ListGroups (16), versions 0 to 5: all groups, or those of given states and types.

Versions: 3 flexible, 4 states (KIP-518), 5 types (KIP-848). Waits until all groups are known.

Source: kafka.server.KafkaApis.handleListGroupsRequest, GroupCoordinatorService.listGroups.
"""

from __future__ import annotations

import asyncio

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import ListGroupsRequest, ListGroupsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType


def handle(context: BrokerContext, request: ListGroupsRequest) -> Response:
    """Answers from memory."""
    loaded: asyncio.Future[None] = context.broker.thread.loop.create_future()

    def go_on() -> None:
        if not loaded.done():
            loaded.set_result(None)

    context.broker.groups.runtime.partitions.load_all(go_on)
    return _list(context, request) if loaded.done() else _later(context, request, loaded)


async def _later(
    context: BrokerContext, request: ListGroupsRequest, loaded: asyncio.Future[None]
) -> ListGroupsResponse:
    await loaded
    return _list(context, request)


def _list(context: BrokerContext, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = context.broker.groups.list_groups(request.states_filter, request.types_filter)
    sees_all = context.authorize_cluster(AclOperation.DESCRIBE)
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in in_steps(groups, every=64)
            if sees_all
            or context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )


API = Api(16, "ListGroups", 0, 5, handle, is_long=always)
