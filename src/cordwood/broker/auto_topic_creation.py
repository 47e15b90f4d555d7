"""Automatic creation of topics: requested ones, and the coordinators' internal topics.

Source: kafka.server.DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cordwood.configs.internal_topics import INTERNAL_TOPIC_CREATION
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.metadata.controller_requests import NewTopic
from cordwood.model.kafka_errors import KafkaError

_NUM_PARTITIONS: Final = "num.partitions"
_REPLICATION_FACTOR: Final = "default.replication.factor"
_OF_BROKER: Final = (_NUM_PARTITIONS, _REPLICATION_FACTOR)


class AutoTopicCreation:
    """Asks the controller to create topics."""

    def __init__(self, controller: ControllerChannel, settings: BrokerSettings) -> None:
        """`settings` has the number of partitions and replicas of the coordinators' topics."""
        self._controller = controller
        self._settings = settings

    async def create(self, names: Sequence[str]) -> list[KafkaError | None]:
        """Creates topics; returns for each name its error, or None.

        It is one change of the metadata log, unless that is too large or one topic is refused.
        """
        if not names:
            return []
        try:
            results = await self._controller.create_topics([self._topic(name) for name in names])
        except KafkaError as error:
            if len(names) == 1:
                return [error]
            return [result for name in names for result in await self.create([name])]
        return [result if isinstance(result, KafkaError) else None for result in results]

    def _topic(self, name: str) -> NewTopic:
        """An internal topic as its coordinator needs it, any other with this broker's defaults.

        The controller decides whether the name is allowed.
        """
        internal = INTERNAL_TOPIC_CREATION.get(name)
        settings = self._settings
        if internal is None:
            # As Kafka: what is not given to this broker is the controller's to decide.
            given = {key: settings.integer(key) for key in _OF_BROKER if key in settings.given}
            return NewTopic(
                name=name,
                num_partitions=given.get(_NUM_PARTITIONS, -1),
                replication_factor=given.get(_REPLICATION_FACTOR, -1),
            )
        return NewTopic(
            name=name,
            num_partitions=settings.integer(internal.num_partitions),
            replication_factor=settings.integer(internal.replication_factor),
            configs=internal.configs_with(lambda key: str(settings.integer(key))),
        )
