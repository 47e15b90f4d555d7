"""`__consumer_offsets` as the log of the group coordinator.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorPartitionWriter.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from cordwood.broker.group_loader import GroupLoader
from cordwood.coordinator.group import records
from cordwood.coordinator.group.errors import GroupRequestError, error_of_append
from cordwood.coordinator.group.records import CoordinatorRecord
from cordwood.coordinator.runtime import Appended, EncodedRecord
from cordwood.format.compression import Codec
from cordwood.metadata.image import MetadataImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import EncodingError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog

_LOG = logging.getLogger(__name__)


class Metadata(Protocol):
    """Has the cluster's metadata."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""


class Partitions(Protocol):
    """The methods of `ReplicaManager` that are used here."""

    def log(self, topic: str, index: int, /) -> PartitionLog:
        """A partition's log; raises KafkaError if it is not led here."""

    def append(
        self, topic: str, index: int, records: bytes, /, *, origin: AppendOrigin
    ) -> AppendResult:
        """Appends a batch; raises KafkaError."""


class GroupMetadataLog:
    """The partitions of `__consumer_offsets` that are led here."""

    def __init__(self, replicas: Partitions, metadata: Metadata, codec: Codec) -> None:
        """Reads and writes nothing yet.

        Args:
            replicas: the partitions that this broker leads.
            metadata: the topics of the cluster.
            codec: compresses the records.
        """
        self.topic = GROUP_METADATA_TOPIC
        self.contents = "groups"
        self._replicas = replicas
        self._metadata = metadata
        self._codec = codec

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""
        topic = self._metadata.image.topics.get(GROUP_METADATA_TOPIC)
        return () if topic is None else topic.partitions

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, UUID]:
        """The ids of those topics that exist."""
        topics = self._metadata.image.topics
        return {name: topic.topic_id for name in names if (topic := topics.get(name)) is not None}

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are committed; raises KafkaError."""
        return self._replicas.log(GROUP_METADATA_TOPIC, partition).high_watermark

    # ---- writing

    def encode(self, new: Sequence[CoordinatorRecord]) -> list[EncodedRecord]:
        """The bytes of records.

        Raises:
            GroupRequestError: a value does not fit.
        """
        try:
            return records.encode(new)
        except EncodingError as error:
            _LOG.error("Cannot write to %s: %s", GROUP_METADATA_TOPIC, error)
            raise GroupRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def append(self, partition: int, made: Sequence[EncodedRecord], now_ms: int) -> Appended:
        """Appends a batch.

        Raises:
            GroupRequestError: nothing was written; the code is the one that clients are answered.
        """
        batch = records.batch_of(made, now_ms=now_ms, codec=self._codec)
        try:
            return self._append(partition, batch)
        except KafkaError as error:
            _LOG.warning("Cannot write to %s-%d: %s", GROUP_METADATA_TOPIC, partition, error)
            raise GroupRequestError(error_of_append(error), str(error)) from error

    def append_marker(self, partition: int, batch: bytes) -> Appended:
        """Appends a transaction marker; raises KafkaError."""
        return self._append(partition, batch)

    def _append(self, partition: int, batch: bytes) -> Appended:
        result = self._replicas.append(
            GROUP_METADATA_TOPIC, partition, batch, origin=AppendOrigin.COORDINATOR
        )
        log = self._replicas.log(GROUP_METADATA_TOPIC, partition)
        return Appended(result.first_offset, result.last_offset + 1, log.high_watermark)

    # ---- reading

    def loader(self, partition: int) -> GroupLoader:
        """Reads a partition; raises KafkaError if it is not led here."""
        return GroupLoader(self._replicas.log(GROUP_METADATA_TOPIC, partition))
