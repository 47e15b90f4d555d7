"""BrokerRegistration (62), versions 0 to 4: a broker that has started.

Versions: 1 migration from ZooKeeper, which is refused; 2 directories (KIP-858); 3 the epoch of the
last registration (KIP-966); 4 features whose lowest level is 0 (KIP-1022).

Source: kafka.server.ControllerApis.handleBrokerRegistration, ClusterControlManager.registerBroker;
KIP-631.
"""

from __future__ import annotations

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.image import Endpoint
from cordwood.model.kafka_errors import BrokerIdNotRegisteredError, InconsistentClusterIdError
from cordwood.protocol.data import BrokerRegistrationRequest, BrokerRegistrationResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster


def handle(context: ControllerContext, request: BrokerRegistrationRequest) -> Response:
    """Answers with the broker's epoch."""
    cluster_id = context.controller.cluster_id
    if request.cluster_id != cluster_id:
        raise InconsistentClusterIdError(
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        )
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegisteredError("Controller does not support registering ZK brokers.")
    return _registered(context, _registration(request))


def _registration(request: BrokerRegistrationRequest) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ),
        log_dirs=tuple(request.log_dirs),
        rack=request.rack,
        previous_broker_epoch=request.previous_broker_epoch,
        features={
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
    )


async def _registered(
    context: ControllerContext, broker: BrokerRegistration
) -> BrokerRegistrationResponse:
    controller = context.controller
    epoch = await controller.change(lambda: controller.cluster.register(broker))
    return BrokerRegistrationResponse(broker_epoch=epoch)


API = Api(62, "BrokerRegistration", 0, 4, handle, needs=(on_cluster(AclOperation.CLUSTER_ACTION),))
