"""Authorization: what an API needs, and who decides.

Source: org.apache.kafka.server.authorizer.Authorizer, org.apache.kafka.common.acl.AclOperation,
org.apache.kafka.common.resource.ResourceType, kafka.server.AuthHelper, Kafka 4.3; KIP-11, KIP-504.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from cordwood.serving.principal import Principal

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER. Source: Resource.CLUSTER_NAME."""


class AclOperation(IntEnum):
    """The operation of a request, with the numbers of AclOperation."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The type of a resource, with the numbers of org.apache.kafka.common.resource."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
        *(AclOperation.ALTER, AclOperation.DESCRIBE, *_CONFIGS),
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        *(
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
        ),
        *(AclOperation.IDEMPOTENT_WRITE, *_CONFIGS),
    ),
}
"""The operations that each type of resource has. Source: AclEntry.supportedOperations."""


class Need(NamedTuple):
    """An operation that a client must be allowed on a resource, or its request fails as a whole.

    `field` is the field of the request that names the resource; the cluster has none.
    """

    operation: AclOperation
    resource_type: ResourceType
    field: str = ""


def on_cluster(operation: AclOperation) -> Need:
    """An operation on the cluster."""
    return Need(operation, ResourceType.CLUSTER)


def on_group(operation: AclOperation) -> Need:
    """An operation on the group of the request."""
    return Need(operation, ResourceType.GROUP, "group_id")


def on_transactional_id(operation: AclOperation) -> Need:
    """An operation on the transactional id of the request."""
    return Need(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")


class Authorizer(Protocol):
    """Decides on operations; belongs to the event loop's thread."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        /,
    ) -> bool:
        """Whether a client may perform an operation on a resource.

        Args:
            principal: the principal of the client.
            host: the client's address.
            operation: the operation to authorize.
            resource_type: the type of the resource.
            name: the name of the resource.
        """

    def authorize_by_resource_type(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        /,
    ) -> bool:
        """Whether a client may perform an operation on any resource of a type (KIP-679)."""


class AllowAll:
    """The `Authorizer` of a broker without one: everything is allowed, as in Kafka."""

    def authorize(
        self,
        _principal: Principal,
        _host: str,
        _operation: AclOperation,
        _resource_type: ResourceType,
        _name: str,
        /,
    ) -> bool:
        """Allows it."""
        return True

    def authorize_by_resource_type(
        self,
        _principal: Principal,
        _host: str,
        _operation: AclOperation,
        _resource_type: ResourceType,
        /,
    ) -> bool:
        """Allows it."""
        return True
