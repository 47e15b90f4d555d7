"""Topics that the broker creates by itself: those asked for by name, and the coordinators' own.

Source: kafka.server.DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from cordwood.broker.configs.values import BrokerValues
from cordwood.metadata.controller_requests import NewTopic
from cordwood.model.internal_topics import INTERNAL_TOPIC_CREATION


def auto_created_topic(name: str, settings: BrokerValues) -> NewTopic:
    """What is created for a name: an internal topic as its coordinator needs it, others by default.

    Whether the name is allowed is for the controller to decide.
    """
    internal = INTERNAL_TOPIC_CREATION.get(name)
    if internal is None:
        return NewTopic(name=name)
    return NewTopic(
        name=name,
        num_partitions=settings.integer(internal.num_partitions),
        replication_factor=settings.integer(internal.replication_factor),
        configs=internal.configs_with(lambda key: str(settings.integer(key))),
    )
