"""The context of a request for its handler: the client, and the parts of the broker.

Source: org.apache.kafka.common.requests.RequestContext, kafka.server.AuthHelper.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.broker.broker import Broker
from cordwood.broker.node_parts import NodeParts
from cordwood.metadata.controller_channel import AdminChannel
from cordwood.model.audit import Requester
from cordwood.model.kafka_errors import ClusterAuthorizationError, GroupAuthorizationError
from cordwood.protocol.headers import RequestHeader
from cordwood.serving.api import Peer, Principal
from cordwood.serving.authorizer import CLUSTER_NAME, OPERATIONS, Operation, ResourceType


class RequestContext:
    """The context of one request to a broker or a controller: client, version, and authorization.

    `node` has the parts that serve the request.
    """

    __slots__ = ("api_version", "client_id", "node", "peer")

    def __init__(self, node: NodeParts, header: RequestHeader, peer: Peer) -> None:
        self.node = node
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.peer = peer

    @property
    def listener(self) -> str:
        """The name of the listener that the client is connected to."""
        return self.peer.listener

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.peer.host

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.peer.principal

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

    def authorize(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may perform an operation on a resource."""
        peer = self.peer
        return self.node.authorizer.authorize(
            peer.principal, peer.host, operation, resource_type, name
        )

    def authorize_cluster(self, operation: Operation) -> bool:
        """Whether the client may perform an operation on the cluster."""
        return self.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def require_cluster(self, operation: Operation) -> None:
        """Checks that the client may perform an operation on the cluster.

        Raises:
            ClusterAuthorizationError: it may not; the dispatcher answers the whole request with it.

        Source: AuthHelper.authorizeClusterOperation.
        """
        if not self.authorize_cluster(operation):
            raise ClusterAuthorizationError("Cluster authorization failed.")

    def require_group(self, operation: Operation, group_id: str) -> None:
        """Checks that the client may perform an operation on a group.

        Raises:
            GroupAuthorizationError: it may not; the dispatcher answers the whole request so.
        """
        if not self.authorize(operation, ResourceType.GROUP, group_id):
            raise GroupAuthorizationError("Group authorization failed.")

    def authorize_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may perform an operation on at least one resource of a type."""
        peer = self.peer
        return self.node.authorizer.authorize_by_resource_type(
            peer.principal, peer.host, operation, resource_type
        )

    def authorized(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> set[str]:
        """Those of `names` that the client may perform the operation on.

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


class BrokerContext(RequestContext):
    """The context of one request to a broker; `broker` has the parts that serve it."""

    __slots__ = ("broker",)

    def __init__(self, broker: Broker, header: RequestHeader, peer: Peer) -> None:
        super().__init__(broker, header, peer)
        self.broker = broker
