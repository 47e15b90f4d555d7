"""CreateTopics (19), versions 2 to 7: creates topics; with validate_only, only validates.

Versions: 5 number of partitions, replication factor and settings in the response, flexible; 6
throttling by quota (there is none); 7 topic ids. Policies of create.topic.policy.class.name are not
served.

Source: kafka.server.ControllerApis.createTopics, ReplicationControlManager; KIP-4, KIP-195,
KIP-464, KIP-525.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cordwood.configs.describe import describe_new_topic
from cordwood.metadata.controller_requests import CreatedTopic, NewTopic
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InvalidRequestError, KafkaError, TopicAuthorizationError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import is_reserved
from cordwood.protocol.data import CreateTopicsRequest, CreateTopicsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext

_SETTINGS_SINCE = 5
_Topic = CreateTopicsResponse.CreatableTopicResult


def handle(context: RequestContext, request: CreateTopicsRequest) -> Response:
    """Makes what can be made, and answers for each topic by its name."""
    times = Counter(topic.name for topic in in_steps(request.topics, every=64))
    once = [name for name, count in times.items() if count == 1]
    creatable = set(once)
    if not context.authorize_cluster(AclOperation.CREATE):
        creatable = context.authorized(AclOperation.CREATE, ResourceType.TOPIC, once)
    denied = [name for name in once if name not in creatable]
    wanted = [
        _new_topic(topic) for topic in in_steps(request.topics, every=16) if topic.name in creatable
    ]
    wanted.sort(key=lambda topic: is_reserved(topic.name))  # Kafka answers for these last

    def respond(results: Sequence[CreatedTopic | KafkaError | None]) -> CreateTopicsResponse:
        return _response(context, wanted, results, times, denied)

    asked = context.admin.create_topics(wanted, validate_only=request.validate_only)
    return after_answer(context, all_or_error(asked, len(wanted)), respond)


def _response(
    context: RequestContext,
    wanted: Sequence[NewTopic],
    results: Sequence[CreatedTopic | KafkaError | None],
    times: Mapping[str, int],
    denied: Sequence[str],
) -> CreateTopicsResponse:
    topics = [
        _result(context, topic, result)
        for topic, result in in_steps(zip(wanted, results, strict=True))
    ]
    duplicates = [
        _failed(name, InvalidRequestError("Duplicate topic name."))
        for name, count in in_steps(times.items(), every=16)
        if count > 1
    ]
    prohibited = [each for each in topics if is_reserved(each.name)]
    unauthorized = [
        _failed(name, TopicAuthorizationError("Authorization failed.")) for name in denied
    ]
    others = topics[: len(topics) - len(prohibited)]
    return CreateTopicsResponse(topics=[*others, *duplicates, *prohibited, *unauthorized])


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={each.name: each.value for each in topic.configs},
    )


def _result(
    context: RequestContext,
    topic: NewTopic,
    result: CreatedTopic | KafkaError | None,
) -> _Topic:
    if not isinstance(result, CreatedTopic):
        return _failed(topic.name, result)
    if not context.authorize(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return _Topic(
            name=result.name,
            topic_id=result.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    created = _Topic(
        name=result.name,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=[],
    )
    if context.api_version >= _SETTINGS_SINCE:
        configs = {key: value for key, value in topic.configs.items() if value is not None}
        created.configs = [
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.level.code,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_new_topic(context.node.configs, configs)
        ]
    return created


def _failed(name: str, error: KafkaError | None) -> _Topic:
    return _Topic(
        name=name, configs=[], error_code=error_code(error), error_message=error_message(error)
    )


API = Api(19, "CreateTopics", 2, 7, handle, is_long=always)
