"""DeleteTopics (20), versions 1 to 6: deletes topics by name or id.

Versions: 4 flexible; 5 texts of errors, throttling by quota (there is none); 6 topic ids.

Source: kafka.server.ControllerApis.deleteTopics; KIP-4, KIP-516.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from cordwood.model.kafka_errors import (
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationError,
    TopicDeletionDisabledError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import DeleteTopicsRequest, DeleteTopicsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext

_Asked = tuple[str | None, UUID]
_Result = DeleteTopicsResponse.DeletableTopicResult


def handle(context: RequestContext, request: DeleteTopicsRequest) -> Response:
    """Deletes what is there, and answers for each topic as it was asked for."""
    asked = _asked(request)
    if not context.node.settings.delete_topic_enable:
        disabled: KafkaError = TopicDeletionDisabledError("Topic deletion is disabled.")
        if context.api_version < 3:
            disabled = InvalidRequestError("Topic deletion is disabled.")
        return DeleteTopicsResponse(
            responses=[_answer(name, topic_id, disabled) for name, topic_id in asked]
        )
    answers: list[_Result] = []
    wanted = _without_faults(context, asked, answers)
    named = [_both(context, name, topic_id) for name, topic_id in in_steps(wanted, every=64)]

    def respond(errors: Sequence[KafkaError | None]) -> DeleteTopicsResponse:
        deleted = [
            _answer(*each, error)
            for each, error in in_steps(zip(named, errors, strict=True), every=16)
        ]
        return DeleteTopicsResponse(responses=[*answers, *deleted])

    asked_ids = [topic_id if name is None else name for name, topic_id in wanted]
    deleting = all_or_error(context.admin.delete_topics(asked_ids), len(wanted))
    return after_answer(context, deleting, respond)


def _both(context: RequestContext, name: str | None, topic_id: UUID) -> _Asked:
    """The name and the id of a topic of which one is given, as far as it is there."""
    image = context.node.metadata.image
    if name is None:
        return image.topic_names.get(topic_id), topic_id
    topic = image.topics.get(name)
    return name, topic_id if topic is None else topic.topic_id


def _asked(request: DeleteTopicsRequest) -> list[_Asked]:
    if not request.topics:  # versions before 6 have names
        return [(name, ZERO_UUID) for name in in_steps(request.topic_names, every=64)]
    return [(each.name, each.topic_id) for each in in_steps(request.topics, every=64)]


def _without_faults(
    context: RequestContext, asked: list[_Asked], answers: list[_Result]
) -> list[_Asked]:
    """The topics that are asked for once, by name or id; `answers` gets the others."""
    times = Counter(in_steps(asked, every=64))
    found: dict[UUID, _Asked] = {}
    wanted: dict[_Asked, None] = {}
    for each, count in in_steps(times.items(), every=16):
        name, topic_id = each
        fault = _fault(name, topic_id, count)
        if fault is not None:
            answers.append(_answer(name, topic_id, InvalidRequestError(fault)))
            continue
        denied = _denied(context, name, topic_id)
        if denied is not None:
            answers.append(denied)
            continue
        wanted[each] = None
        found.setdefault(topic_id, each)
    for name, _ in in_steps([each for each in wanted if each[0] is not None], every=16):
        topic = context.node.metadata.image.topics.get(name or "")
        if topic is not None and topic.topic_id in found:
            said = "The provided topic name maps to an ID that was already supplied."
            answers.append(_answer(name, topic.topic_id, InvalidRequestError(said)))
            wanted.pop((name, ZERO_UUID), None)
            wanted.pop(found[topic.topic_id], None)
    return list(wanted)


def _denied(context: RequestContext, name: str | None, topic_id: UUID) -> _Result | None:
    """The answer for a topic that the client may not delete; None if it may, or there is none.

    Source: ControllerApis.deleteTopics.
    """
    if context.authorize_cluster(AclOperation.DELETE):
        return None
    found = context.node.metadata.image.topic_names.get(topic_id) if name is None else name
    if found is None:
        return None
    error = TopicAuthorizationError("Topic authorization failed.")
    describable = context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, found)
    if name is not None and not describable:
        return _answer(name, ZERO_UUID, error)
    if found not in context.node.metadata.image.topics:
        return None
    if describable and context.authorize(AclOperation.DELETE, ResourceType.TOPIC, found):
        return None
    return _answer(found if describable else None, topic_id, error)


def _fault(name: str | None, topic_id: UUID, count: int) -> str | None:
    if name is None and topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic id." if name is None else "Duplicate topic name."
    return None


def _answer(name: str | None, topic_id: UUID, error: KafkaError | None) -> _Result:
    return _Result(
        name=name,
        topic_id=topic_id,
        error_code=error_code(error),
        error_message=error_message(error),
    )


API = Api(20, "DeleteTopics", 1, 6, handle, is_long=always)
