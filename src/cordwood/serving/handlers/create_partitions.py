"""CreatePartitions (37), versions 0 to 3: adds partitions to topics.

Versions: 2 flexible; 3 throttling by quota (there is none).

Source: kafka.server.ControllerApis.createPartitions, ReplicationControlManager; KIP-195.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cordwood.metadata.controller_requests import NewPartitions
from cordwood.model.kafka_errors import InvalidRequestError, KafkaError, TopicAuthorizationError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import CreatePartitionsRequest, CreatePartitionsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: CreatePartitionsRequest) -> Response:
    """Makes what can be made, and answers for each topic."""
    times = Counter(topic.name for topic in in_steps(request.topics, every=64))
    duplicate = InvalidRequestError("Duplicate topic name.")
    results = [
        CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=name, error_code=error_code(duplicate), error_message=error_message(duplicate)
        )
        for name, count in in_steps(times.items(), every=16)
        if count > 1
    ]
    once = [name for name, count in times.items() if count == 1]
    allowed = context.authorized(AclOperation.ALTER, ResourceType.TOPIC, in_steps(once, every=64))
    denied = TopicAuthorizationError()
    results += [
        CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=name, error_code=error_code(denied), error_message=error_message(denied)
        )
        for name in in_steps(once, every=16)
        if name not in allowed
    ]
    wanted = [
        NewPartitions(
            topic=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [each.broker_ids for each in topic.assignments],
        )
        for topic in in_steps(request.topics, every=16)
        if topic.name in allowed
    ]

    def respond(errors: Sequence[KafkaError | None]) -> CreatePartitionsResponse:
        added = [
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=each.topic, error_code=error_code(error), error_message=error_message(error)
            )
            for each, error in in_steps(zip(wanted, errors, strict=True), every=16)
        ]
        return CreatePartitionsResponse(results=[*results, *added])

    asked = context.admin.create_partitions(wanted, validate_only=request.validate_only)
    return after_answer(context, all_or_error(asked, len(wanted)), respond)


API = Api(37, "CreatePartitions", 0, 3, handle, is_long=always)
