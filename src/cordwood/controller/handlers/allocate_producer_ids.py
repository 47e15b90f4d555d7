"""AllocateProducerIds (67), version 0: a block of producer ids for a broker (KIP-730).

Source: kafka.server.ControllerApis.handleAllocateProducerIdsRequest, ProducerIdControlManager.
"""

from __future__ import annotations

from cordwood.controller.controller_context import ControllerContext
from cordwood.protocol.data import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster


def handle(context: ControllerContext, request: AllocateProducerIdsRequest) -> Response:
    """Answers when the block is recorded."""
    return _allocated(context, request.broker_id, request.broker_epoch)


async def _allocated(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> AllocateProducerIdsResponse:
    controller = context.controller
    first, count = await controller.change(
        lambda: controller.cluster.change_for(
            broker_id, broker_epoch, lambda it: it.allocate_producer_ids(broker_id, broker_epoch)
        )
    )
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)


API = Api(67, "AllocateProducerIds", 0, 0, handle, needs=(on_cluster(AclOperation.CLUSTER_ACTION),))
