"""The topic that groups and offsets are kept in.

Source: kafka.server.DefaultAutoTopicCreationManager,
GroupCoordinatorService.groupMetadataTopicConfigs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from cordwood.broker.controller.model import CreatedTopic, NewTopic
from cordwood.broker.groups.settings import GroupSettings
from cordwood.model.kafka_errors import KafkaError

TOPIC = "__consumer_offsets"

_LOG = logging.getLogger(__name__)


class TopicCreator(Protocol):
    """What of a controller is needed."""

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Sequence[CreatedTopic | KafkaError]:
        """Makes topics; for each what came of it."""


def ensure_topic(controller: TopicCreator, settings: GroupSettings) -> bool:
    """Makes the topic, which is not there; whether it could.

    As in Kafka it cannot where there are fewer brokers than offsets.topic.replication.factor.
    """
    topic = NewTopic(
        name=TOPIC,
        num_partitions=settings.topic_partitions,
        replication_factor=settings.topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.topic_segment_bytes),
        },
    )
    try:
        (result,) = controller.create_topics([topic], validate_only=False)
    except KafkaError as error:
        result = error
    if isinstance(result, KafkaError):
        _LOG.warning("Auto topic creation of %s failed: %s", TOPIC, result)
        return False
    return True
