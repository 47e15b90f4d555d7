"""FindCoordinator (10), versions 0 to 6: the coordinator of a group, or of a transactional id.

Versions: 1 kinds of keys, 3 flexible, 4 several keys at once (KIP-699), 6 share groups. The topic
that groups or transactions are kept in is made when somebody first asks; that client gets a
retriable error.

Not served: coordinators of share groups (INVALID_REQUEST, as of a Kafka without them).

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import FindCoordinatorRequest, FindCoordinatorResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType, on_cluster
from cordwood.serving.handlers.cluster_facts import endpoint_for

_log = logging.getLogger(__name__)

_SHARE = 2
_GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_ACCESS = {
    0: (ResourceType.GROUP, _GROUP_DENIED, "Group authorization failed."),
    1: (
        ResourceType.TRANSACTIONAL_ID,
        _TRANSACTIONAL_ID_DENIED,
        "Transactional Id authorization failed.",
    ),
}
"""The resource that a key of a type names, and the answer to clients that may not describe it."""
_BATCHED_SINCE = 4
_SHARE_SINCE = 6


class _Node(NamedTuple):
    node_id: int
    host: str
    port: int


_NO_NODE = _Node(-1, "", -1)


class _Found(NamedTuple):
    error_code: int
    node: _Node
    message: str


def handle(context: BrokerContext, request: FindCoordinatorRequest) -> Response:
    """Answers with this broker, or with the reason why there is no coordinator."""
    coordinator = context.broker.coordinators.of_key_type(request.key_type)
    topic = None if coordinator is None else coordinator.runtime.partitions.topic
    is_asked = context.api_version < _BATCHED_SINCE or bool(request.coordinator_keys)
    if topic is not None and is_asked and topic not in context.broker.metadata.image.topics:
        return _after_creation(context, request, topic)
    return _response(context, request)


async def _after_creation(
    context: BrokerContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    """Creates the topic; the response has no coordinator yet for any key."""
    (error,) = await context.broker.topic_creation.create([topic])
    if error is not None:
        _log.warning("Auto topic creation of %s failed: %s", topic, error)
    return await context.broker.thread.slices.run(lambda: _response(context, request, is_new=True))


def _response(
    context: BrokerContext, request: FindCoordinatorRequest, *, is_new: bool = False
) -> FindCoordinatorResponse:
    kind = request.key_type
    if context.api_version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(context, kind, key, is_new=is_new)
                for key in in_steps(request.coordinator_keys, every=16)
            ]
        )
    found = _find(context, kind, request.key, is_new=is_new)
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.message, **found.node._asdict()
    )


def _coordinator(
    context: BrokerContext, kind: int, key: str, *, is_new: bool
) -> FindCoordinatorResponse.Coordinator:
    found = _find(context, kind, key, is_new=is_new)
    is_failed = kind not in {*_ACCESS, _SHARE}  # as a whole, and only then with a text
    return FindCoordinatorResponse.Coordinator(
        key=key,
        error_code=found.error_code,
        error_message=found.message if is_failed else "",
        **found.node._asdict(),
    )


def _find(context: BrokerContext, kind: int, key: str, *, is_new: bool) -> _Found:
    if kind == _SHARE and context.api_version >= _SHARE_SINCE:
        context.require(on_cluster(AclOperation.CLUSTER_ACTION), None)
    if kind in _ACCESS:
        resource, code, message = _ACCESS[kind]
        if not context.authorize(AclOperation.DESCRIBE, resource, key):
            return _Found(code, _NO_NODE, message)
    coordinator = context.broker.coordinators.of_key_type(kind)
    if coordinator is None:
        return _no_coordinator(ErrorCode.INVALID_REQUEST)
    image = context.broker.metadata.image
    place = coordinator.runtime.partitions.partition_for(key)
    if is_new or place.topic not in image.topics:
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = image.partition(place.topic, place.partition)
    leader = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else endpoint_for(context, leader)
    if leader is None or endpoint is None:
        return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(
        ErrorCode.NONE,
        _Node(leader.broker_id, endpoint.host, endpoint.port),
        ErrorCode.NONE.name,
    )


def _no_coordinator(error: ErrorCode) -> _Found:
    return _Found(error, _NO_NODE, error.message)


API = Api(10, "FindCoordinator", 0, 6, handle)
