"""`__consumer_offsets` as the log of the group coordinator.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorPartitionWriter.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from cordwood.broker.coordinators.coordinator_log import (
    CoordinatorTopic,
    LogLoader,
    Metadata,
    Partitions,
)
from cordwood.broker.coordinators.group_loader import REMEDY, GroupReplay
from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.errors import CoordinatorRequestError, error_of_append
from cordwood.coordinator.group import records
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.log import Appended, EncodedRecord
from cordwood.format.compression import Codec
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import EncodingError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

_LOG = logging.getLogger(__name__)


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
        self._topic = CoordinatorTopic(GROUP_METADATA_TOPIC, replicas, metadata)
        self._metadata = metadata
        self._codec = codec

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""
        return self._topic.partitions()

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, UUID]:
        """The ids of those topics that exist."""
        topics = self._metadata.image.topics
        return {name: topic.topic_id for name in names if (topic := topics.get(name)) is not None}

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are committed; raises KafkaError."""
        return self._topic.log(partition).high_watermark

    # ---- writing

    def encode(self, new: Sequence[CoordinatorRecord]) -> list[EncodedRecord]:
        """The bytes of records.

        Raises:
            CoordinatorRequestError: a value does not fit.
        """
        try:
            return records.encode(new)
        except EncodingError as error:
            _LOG.error("Cannot write to %s: %s", GROUP_METADATA_TOPIC, error)
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def append(
        self,
        partition: int,
        made: Sequence[EncodedRecord],
        now_ms: int,
        producer: TransactionalProducer | None,
    ) -> Appended:
        """Appends a batch.

        Raises:
            CoordinatorRequestError: nothing was written; its code is what clients are answered.
        """
        batch = records.batch_of(made, now_ms=now_ms, codec=self._codec, producer=producer)
        guard = None if producer is None else producer.verification_guard
        try:
            return self._topic.append(partition, batch, verification_guard=guard)
        except KafkaError as error:
            _LOG.warning("Cannot write to %s-%d: %s", GROUP_METADATA_TOPIC, partition, error)
            raise CoordinatorRequestError(error_of_append(error), str(error)) from error

    def append_marker(self, partition: int, batch: bytes, transaction_version: int) -> Appended:
        """Appends a transaction marker; raises KafkaError."""
        return self._topic.append(partition, batch, transaction_version=transaction_version)

    # ---- reading

    def loader(self, partition: int) -> LogLoader[GroupShard]:
        """Reads a partition; raises KafkaError if it is not led here."""
        return LogLoader(
            self._topic.log(partition),
            GroupReplay,
            remedy=REMEDY,
            loaded=lambda state: (len(state.groups), "groups"),
        )
