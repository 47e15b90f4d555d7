"""OffsetFetch (9), versions 1 to 10: the committed offsets of groups.

Versions: 2 null for all partitions and an error for the whole, 5 leader epochs, 6 flexible, 7 those
that a transaction may change can be waited for (KIP-447), 8 several groups (KIP-709), 9 members of
the consumer protocol, 10 topic ids.

Source: kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from cordwood.broker.authorizer import Operation, ResourceType
from cordwood.broker.request_context import RequestContext
from cordwood.coordinator.group.offset_requests import FetchedOffset, FetchedTopic, FetchTopic
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID
from cordwood.network.api import Api, Response
from cordwood.protocol.apis.offset_fetch import OffsetFetchRequest

_TOP_LEVEL_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def handle(context: RequestContext, request: OffsetFetchRequest) -> Response:
    """Answers from memory."""
    require_stable = bool(request.require_stable)
    version = context.api_version
    if version >= _GROUPS_SINCE:
        return {
            "groups": [
                _group(context, each, version, require_stable=require_stable)
                for each in in_steps(request.groups)
            ]
        }
    return _group(context, request, version, require_stable=require_stable)


def _group(
    context: RequestContext, asked: Any, version: int, *, require_stable: bool
) -> dict[str, Any]:
    by_id = version >= _TOPIC_IDS_SINCE
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _failed(asked, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    known: list[FetchTopic] | None = None
    unknown: list[dict[str, Any]] = []
    denied: list[dict[str, Any]] = []
    if asked.topics is not None:
        known = []
        for topic in in_steps(asked.topics, every=16):
            topic_id: UUID = topic.topic_id if by_id else ZERO_UUID
            name = context.broker.metadata.image.topic_names.get(topic_id) if by_id else topic.name
            if name is None:
                unknown.append(_unknown(topic_id, topic.partition_indexes))
            elif not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                failed = _all_failed(topic.partition_indexes, code)
                denied.append({"name": name, "topic_id": topic_id, "partitions": failed})
            else:
                known.append(FetchTopic(name, tuple(topic.partition_indexes), topic_id))
    try:
        found = context.broker.groups.fetch(asked.group_id, known, require_stable=require_stable)
    except KafkaError as error:
        return _failed(asked, error.code, version)
    answered = [
        _topic(context, topic, by_id=by_id)
        for topic in in_steps(found)
        if asked.topics is not None
        or context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]
    return {
        "group_id": asked.group_id,
        "topics": [topic for topic in answered if topic is not None] + unknown + denied,
    }


def _failed(asked: Any, code: int, version: int) -> dict[str, Any]:
    answer = {"group_id": asked.group_id, "error_code": code, "topics": []}
    if version < _TOP_LEVEL_ERROR_SINCE:
        # There is no other place for the error.
        answer["topics"] = [
            {
                "name": topic.name,
                "partitions": _all_failed(topic.partition_indexes, code),
            }
            for topic in in_steps(asked.topics)
        ]
    return answer


def _all_failed(partitions: Iterable[int], code: int) -> list[dict[str, Any]]:
    return [
        _partition(FetchedOffset(index, error_code=code))
        for index in in_steps(partitions, every=16)
    ]


def _topic(context: RequestContext, topic: FetchedTopic, *, by_id: bool) -> dict[str, Any] | None:
    """A topic of the response; None for one that has no id to name it by."""
    topic_id = ZERO_UUID
    if by_id:
        known = context.broker.metadata.image.topics.get(topic.name)
        if known is None:
            return None
        topic_id = known.topic_id
    return {
        "name": topic.name,
        "topic_id": topic_id,
        "partitions": [_partition(each) for each in in_steps(topic.partitions, every=16)],
    }


def _partition(found: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": found.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": found.error_code,
    }


def _unknown(topic_id: UUID, partitions: tuple[int, ...]) -> dict[str, Any]:
    return {
        "topic_id": topic_id,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "metadata": "",
                "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
            }
            for index in in_steps(partitions, every=16)
        ],
    }


def _is_long(_context: RequestContext, request: OffsetFetchRequest) -> bool:
    """Whether all offsets of a group are asked for."""
    return any(each.topics is None for each in (request.groups or (request,)))


API = Api(9, "OffsetFetch", 1, 10, handle, is_long=_is_long)
