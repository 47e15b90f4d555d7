"""The cluster's topics and the settings of groups, as the group coordinator sees them.

Source: org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage,
GroupMetadataManager.onMetadataUpdate, GroupConfigManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar
from uuid import UUID

from cordwood.broker.coordinators.topic_log import Metadata
from cordwood.coordinator.group.consumer.topics import TopicFacts
from cordwood.metadata.image import MetadataImage, TopicImage

T = TypeVar("T")


class CoordinatorMetadataImage:
    """The newest image of the metadata, as topics with their racks."""

    def __init__(
        self, metadata: Metadata, setting_of_group: Callable[[str, str], int | None]
    ) -> None:
        """`metadata` holds the newest image; `setting_of_group` takes a group and a name."""
        self._metadata = metadata
        self._setting_of_group = setting_of_group
        self._last = MetadataImage()
        self._newest_topics_version = -1

    @property
    def topics(self) -> CoordinatorMetadataImage:
        """The topics, at present."""
        return self

    @property
    def version(self) -> int:
        """The offset of the image in the metadata log."""
        return self._metadata.image.offset

    @property
    def newest_topics_version(self) -> int:
        """A version at or after that of the last image that had a new topic."""
        image = self._metadata.image
        if image.topic_names is not self._last.topic_names:
            changed = image.topic_names.differing(self._last.topic_names)
            if self._newest_topics_version < 0 or any(
                each in image.topic_names for each in changed
            ):
                self._newest_topics_version = image.offset
        self._last = image
        return self._newest_topics_version

    def names(self) -> Collection[str]:
        """The names of all topics."""
        return self._metadata.image.topics.keys()

    def by_name(self, name: str) -> TopicFacts | None:
        """The topic of a name."""
        return self._facts(self._metadata.image.topics.get(name))

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        """The topic of an id."""
        return self._facts(self._metadata.image.topic_by_id(topic_id))

    def group_setting(self, group_id: str, name: str, default: T) -> int | T:
        """A whole number that a group has of its own for a setting, or `default`."""
        own = self._setting_of_group(group_id, name)
        return default if own is None else own

    def _facts(self, topic: TopicImage | None) -> TopicFacts | None:
        if topic is None:
            return None
        brokers = self._metadata.image.brokers
        racks = {broker_id: broker.rack for broker_id, broker in brokers.items()}
        return TopicFacts(
            topic.name,
            topic.topic_id,
            tuple(
                tuple(
                    rack
                    for replica in topic.partitions[partition].replicas
                    if (rack := racks.get(replica)) is not None
                )
                for partition in sorted(topic.partitions)
            ),
        )
