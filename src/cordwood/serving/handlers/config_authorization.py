"""Authorization of reading and changing the settings of a resource.

Source: kafka.server.ConfigHelper.handleDescribeConfigsRequest,
kafka.server.ControllerApis.authorizeAlterResource, Kafka 4.3.
"""

from __future__ import annotations

from cordwood.configs.resource import ConfigResource
from cordwood.model.kafka_errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
)
from cordwood.serving.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from cordwood.serving.request_context import RequestContext


def config_authorization_error(
    context: RequestContext, operation: AclOperation, kind: int, name: str
) -> KafkaError | None:
    """The error if the client may not perform the operation on the settings of a resource.

    Args:
        context: of the request.
        operation: DESCRIBE_CONFIGS or ALTER_CONFIGS.
        kind: the type of the resource, as in `ConfigResource`.
        name: the name of the resource.
    """
    match kind:
        case ConfigResource.TOPIC:
            if not context.authorize(operation, ResourceType.TOPIC, name):
                return TopicAuthorizationError("Topic authorization failed.")
        case ConfigResource.GROUP:
            if not context.authorize(operation, ResourceType.GROUP, name):
                return GroupAuthorizationError("Group authorization failed.")
        case _:
            if not context.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME):
                return ClusterAuthorizationError("Cluster authorization failed.")
    return None
