"""The context of a request for its handler: the client, and the services of the node.

Source: org.apache.kafka.common.requests.RequestContext, kafka.server.AuthHelper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cordwood.metadata.controller_channel import AdminChannel
from cordwood.model.audit import Requester
from cordwood.model.kafka_errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TransactionalIdAuthorizationError,
)
from cordwood.protocol.headers import RequestHeader
from cordwood.serving.authorizer import CLUSTER_NAME, OPERATIONS, AclOperation, Need, ResourceType
from cordwood.serving.node_services import NodeServices
from cordwood.serving.principal import Principal
from cordwood.serving.session import Session

_REFUSALS: Final[Mapping[ResourceType, tuple[type[KafkaError], str]]] = {
    ResourceType.CLUSTER: (ClusterAuthorizationError, "Cluster authorization failed."),
    ResourceType.GROUP: (GroupAuthorizationError, "Group authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        TransactionalIdAuthorizationError,
        "Transactional Id authorization failed.",
    ),
}


class RequestContext:
    """The context of one request to a broker or a controller: client, version, and authorization.

    `node` has the services that handlers use.
    """

    __slots__ = ("api_version", "client_id", "node", "session")

    def __init__(self, node: NodeServices, header: RequestHeader, session: Session) -> None:
        self.node = node
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.session = session

    @property
    def listener(self) -> str:
        """The name of the listener that the client is connected to."""
        return self.session.listener

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.session.host

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.session.principal

    @property
    def requester(self) -> Requester:
        """The client, for the audit log."""
        return Requester(":".join(self.principal), self.client_id, self.client_host)

    @property
    def admin(self) -> AdminChannel:
        """The controller in this process; where it is on another node, requests are forwarded."""
        admin = self.node.admin
        assert admin is not None, "the request is forwarded"
        return admin

    # ---- authorization

    def authorize(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may perform an operation on a resource."""
        session = self.session
        return self.node.authorizer.authorize(
            session.principal, session.host, operation, resource_type, name
        )

    def authorize_cluster(self, operation: AclOperation) -> bool:
        """Whether the client may perform an operation on the cluster."""
        return self.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def require(self, need: Need, request: Any) -> None:
        """Checks that the client may do what a request needs.

        Raises:
            KafkaError: it may not; the dispatcher answers the whole request with it.

        Source: AuthHelper.authorizeClusterOperation.
        """
        name = getattr(request, need.field) if need.field else CLUSTER_NAME
        if not self.authorize(need.operation, need.resource_type, name):
            refused, text = _REFUSALS[need.resource_type]
            raise refused(text)

    def authorize_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may perform an operation on at least one resource of a type."""
        session = self.session
        return self.node.authorizer.authorize_by_resource_type(
            session.principal, session.host, operation, resource_type
        )

    def authorized(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str]
    ) -> set[str]:
        """The names of the resources on which the client may perform the operation.

        Source: AuthHelper.filterByAuthorized.
        """
        return {name for name in names if self.authorize(operation, resource_type, name)}

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may perform on a resource, as bits by their numbers.

        Source: AuthHelper.authorizedOperations; KIP-430.
        """
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.authorize(operation, resource_type, name)
        )
