"""BrokerHeartbeat (63), versions 0 to 2: a broker lives, wants to serve, or wants to stop.

Versions: 1 directories that have failed (KIP-858); 2 cordoned directories (KIP-1066).

Source: kafka.server.ControllerApis.handleBrokerHeartBeatRequest,
QuorumController.processBrokerHeartbeat; KIP-631.
"""

from __future__ import annotations

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.quorum.lifecycle import BrokerHeartbeat, BrokerHeartbeatReply
from cordwood.protocol.data import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster


def handle(context: ControllerContext, request: BrokerHeartbeatRequest) -> Response:
    """Answers with what the controller makes of the broker."""
    # At once: a heartbeat that waits for a long change keeps its broker alive.
    context.controller.cluster.hear(request.broker_id, request.broker_epoch)
    cordoned = request.cordoned_log_dirs
    heartbeat = BrokerHeartbeat(
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        wants_fence=request.want_fence,
        wants_shutdown=request.want_shut_down,
        offline_dirs=tuple(request.offline_log_dirs),
        cordoned_dirs=None if cordoned is None else tuple(cordoned),
    )
    return _answered(context, request.broker_id, heartbeat)


async def _answered(
    context: ControllerContext, broker_id: int, heartbeat: BrokerHeartbeat
) -> BrokerHeartbeatResponse:
    controller = context.controller
    answer: BrokerHeartbeatReply = await controller.change(
        lambda: controller.cluster.heartbeat(broker_id, heartbeat)
    )
    return BrokerHeartbeatResponse(
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )


API = Api(63, "BrokerHeartbeat", 0, 2, handle, needs=(on_cluster(AclOperation.CLUSTER_ACTION),))
