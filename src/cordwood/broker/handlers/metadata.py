"""Metadata (3), versions 0 to 13: brokers and topics; may create missing topics.

Versions: 1 null for all topics, 4 auto-creation may be declined, 5 offline replicas, 7 leader
epochs, 8 authorized operations, 9 flexible, 10 topic ids, 12 topics asked for by id, 13 an error
for the whole response.

A topic that is not there is made where auto.create.topics.enable allows it and the client wants it;
this answer still says that it is unknown, and the client asks again.

Source: kafka.server.KafkaApis.handleTopicMetadataRequest, DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.metadata.image import TopicImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import require_topic_name
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import MetadataRequest, MetadataResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import (
    NOT_ASKED,
    PartitionPlaces,
    brokers_of,
    cluster_operations,
    is_internal,
)

_log = logging.getLogger(__name__)

_Asked = tuple[UUID, str | None]
_INLINE_PARTITIONS_MAX = 64
_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition


def handle(context: BrokerContext, request: MetadataRequest) -> Response:
    """Answers from the image, once topics that are missing have been created."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        places = PartitionPlaces(context.broker.metadata.image, context.listener)
        topics = [
            _known(places, topic)
            for topic in in_steps(places.image.topics.values())
            if context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        return _response(context, request, topics, [])
    asked, denied = _describable(context, _distinct(request.topics))
    missing: list[str] = []
    if context.broker.settings.auto_create_topics_enable and request.allow_auto_topic_creation:
        known = context.broker.metadata.image.topics
        missing = [
            name
            for topic_id, name in in_steps(asked, every=64)
            if topic_id == ZERO_UUID and name is not None and name not in known
        ]
    if missing and not context.authorize_cluster(AclOperation.CREATE):
        creatable = context.authorized(AclOperation.CREATE, ResourceType.TOPIC, missing)
        refused = {name for name in missing if name not in creatable}
        missing = [name for name in missing if name in creatable]
        asked = [each for each in asked if each[1] not in refused]
        denied = [_unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused] + denied
    if missing:
        return _after_creation(context, request, asked, missing, denied)
    return _response(context, request, _all_asked(context, asked, {}), denied)


def _describable(
    context: BrokerContext, asked: Sequence[_Asked]
) -> tuple[list[_Asked], list[_Topic]]:
    """The topics that the client may describe, and the answers for the others.

    Such an answer does not tell whether there is a topic of that name, nor the name of an id.
    """
    names = context.broker.metadata.image.topic_names
    allowed, denied = [], []
    for each in in_steps(asked, every=64):
        topic_id, name = each
        found = names.get(topic_id) if topic_id != ZERO_UUID else name
        if found is None or context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, found):
            allowed.append(each)
        else:
            answer = _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id)
            answer.is_internal = False
            denied.append(answer)
    return allowed, denied


async def _after_creation(
    context: BrokerContext,
    request: MetadataRequest,
    asked: Sequence[_Asked],
    missing: Sequence[str],
    denied: list[_Topic],
) -> MetadataResponse:
    """Creates the missing topics in one change, and then responds."""
    errors = await context.broker.topic_creation.create(missing)

    def respond() -> MetadataResponse:
        made = _codes_of(missing, errors)
        return _response(context, request, _all_asked(context, asked, made), denied)

    return await context.broker.thread.slices.run(respond)


def _codes_of(missing: Sequence[str], errors: Sequence[KafkaError | None]) -> dict[str, int]:
    """The error code of each topic that is created only now."""
    codes: dict[str, int] = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for name, error in in_steps(zip(missing, errors, strict=True), every=16):
        if error is not None and error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif error is not None:
            _log.info("Auto topic creation of %s failed: %s", name, error)
    return codes


def _all_asked(
    context: BrokerContext, asked: Sequence[_Asked], made: Mapping[str, int]
) -> list[_Topic]:
    places = PartitionPlaces(context.broker.metadata.image, context.listener)
    return [_asked(places, topic_id, name, made) for topic_id, name in in_steps(asked, every=16)]


def _response(
    context: BrokerContext,
    request: MetadataRequest,
    topics: list[_Topic],
    denied: list[_Topic],
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in in_steps(topics, every=64):
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = context.authorized_operations(
                    ResourceType.TOPIC, topic.name or ""
                )
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in brokers_of(context)
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=context.broker.node_id,
        topics=topics + denied,
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    )


def _distinct(topics: Iterable[Any]) -> list[_Asked]:
    """Each topic once, by its id or its name; where one has an id, names alone do not count."""
    pairs = dict.fromkeys((each.topic_id, each.name) for each in in_steps(topics, every=64))
    ids = dict.fromkeys(
        topic_id for topic_id, _ in in_steps(pairs, every=64) if topic_id != ZERO_UUID
    )
    return [(topic_id, None) for topic_id in ids] or list(pairs)


def _asked(
    places: PartitionPlaces, topic_id: UUID, name: str | None, made: Mapping[str, int]
) -> _Topic:
    image = places.image
    if topic_id != ZERO_UUID:
        known = image.topic_names.get(topic_id)
        if known is None:
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
        name = known
    if name is None:
        return _unknown(None, ErrorCode.INVALID_REQUEST)
    if name in made:
        return _unknown(name, made[name])
    topic = image.topics.get(name)
    if topic is not None:
        return _known(places, topic)
    try:
        require_topic_name(name)
    except KafkaError:
        return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _known(places: PartitionPlaces, topic: TopicImage) -> _Topic:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            places.described(_Partition, index, topic.partitions[index])
            for index in in_steps(sorted(topic.partitions), every=32)
        ],
        topic_authorized_operations=NOT_ASKED,
    )


def _unknown(name: str | None, code: int, topic_id: UUID = ZERO_UUID) -> _Topic:
    return _Topic(
        name=name,
        topic_id=topic_id,
        error_code=code,
        is_internal=name is not None and is_internal(name),
        topic_authorized_operations=NOT_ASKED,
    )


def _is_long(context: BrokerContext, request: MetadataRequest) -> bool:
    """Whether many partitions are described."""
    image = context.broker.metadata.image
    if not request.topics:
        few = len(image.topics) <= _INLINE_PARTITIONS_MAX
        return not few or context.broker.replicas.led_count > _INLINE_PARTITIONS_MAX
    partitions = 0
    for each in request.topics:
        name = image.topic_names.get(each.topic_id) if each.name is None else each.name
        topic = None if name is None else image.topics.get(name)
        partitions += 1 if topic is None else len(topic.partitions)
    return partitions > _INLINE_PARTITIONS_MAX


API = Api(3, "Metadata", 0, 13, handle, is_long=_is_long, distinct="topics")
