"""ListConfigResources (74), versions 0 to 1: the resources that have settings.

Versions: 0 only names the subscriptions of client metrics, 1 resources of the kinds asked for, all
if none is. Topics and brokers are those there are; groups and subscriptions those with settings.

Source: kafka.server.KafkaApis.handleListConfigResources, Kafka 4.3; KIP-1000, KIP-1142.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.broker.broker_context import BrokerContext
from cordwood.configs.resource import ConfigResource
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import ListConfigResourcesRequest, ListConfigResourcesResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster


def handle(context: BrokerContext, request: ListConfigResourcesRequest) -> Response:
    """Answers from the image."""
    if context.api_version == 0:
        wanted = [int(ConfigResource.CLIENT_METRICS)]
    else:
        wanted = [int(kind) for kind in request.resource_types] or [
            int(kind) for kind in ConfigResource
        ]
    if not set(wanted).issubset(int(kind) for kind in ConfigResource):
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in in_steps(_names(context, kind), every=64)
        ],
    )


def _names(context: BrokerContext, kind: int) -> Iterable[str]:
    image = context.broker.metadata.image
    match kind:
        case ConfigResource.TOPIC:
            return list(image.topics)
        case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER:
            return [str(number) for number in image.brokers]
        case _:
            return [name for each, name in image.configs if each == kind]


API = Api(
    74,
    "ListConfigResources",
    0,
    1,
    handle,
    needs=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    is_long=always,
)
