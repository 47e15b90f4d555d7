"""The metadata that a broker reads: the newest image that its loader has published.

Source: org.apache.kafka.metadata.KRaftMetadataCache, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from cordwood.metadata.feature_levels import KRAFT_VERSION, SUPPORTED_FEATURES, served_level
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.model.kafka_errors import UnknownTopicIdError


class MetadataCache:
    """Holds the current image. It is a `MetadataPublisher`; install it before its readers."""

    def __init__(self, kraft_version: Callable[[], int]) -> None:
        """The image is empty until the loader has published the first.

        Args:
            kraft_version: returns the level of `kraft.version`, which is in no image.
        """
        self.image = MetadataImage()
        self._kraft_version = kraft_version

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Keeps the image of an update."""
        self.image = update.after

    def topic_name(self, topic_id: UUID) -> str:
        """The name of a topic.

        Raises:
            UnknownTopicIdError: no topic has that id.
        """
        name = self.image.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return name

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and highest supported level of each feature, both inclusive."""
        return SUPPORTED_FEATURES

    def finalized_features(self) -> Mapping[str, int]:
        """The finalized levels as ApiVersions shows them, `kraft.version` among them.

        The metadata log of a Kafka may hold levels that are not served here. They stay in the log,
        and clients see the highest level that is served.
        """
        served = {name: served_level(name, level) for name, level in self.image.features.items()}
        found = {name: level for name, level in served.items() if level}
        kraft_version = self._kraft_version()
        if kraft_version:
            found[KRAFT_VERSION] = kraft_version
        return found

    @property
    def has_consumer_groups(self) -> bool:
        """Whether the cluster serves groups of the consumer protocol (KIP-848).

        Source: org.apache.kafka.server.common.GroupVersion.
        """
        return self.image.features.get("group.version", 0) >= 1

    @property
    def transaction_version(self) -> int:
        """The level of transaction.version: how transactions are written, 0 to 2 (KIP-890).

        Source: org.apache.kafka.server.common.TransactionVersion.
        """
        return self.image.features.get("transaction.version", 0)
