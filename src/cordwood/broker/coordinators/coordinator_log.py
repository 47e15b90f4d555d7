"""The partitions of a coordinator's topic as its log: what the coordinators have in common.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl,
CoordinatorPartitionWriter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from cordwood.coordinator.log import Appended
from cordwood.coordinator.timeline import Timeline
from cordwood.format.file_names import LOG_SUFFIX, segment_file_name
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.metadata.image import MetadataImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import CorruptMessageError
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_READ_BYTES = 5 * 1024 * 1024

_LOG = logging.getLogger(__name__)

S = TypeVar("S")


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
        self,
        topic: str,
        index: int,
        records: bytes,
        /,
        *,
        origin: AppendOrigin,
        verification_guard: object | None,
        transaction_version: int,
    ) -> AppendResult:
        """Appends a batch; raises KafkaError."""


class CoordinatorTopic:
    """The partitions of a coordinator's topic that are led here."""

    def __init__(self, topic: str, replicas: Partitions, metadata: Metadata) -> None:
        """Reads and writes nothing yet.

        Args:
            topic: its name.
            replicas: the partitions that this broker leads.
            metadata: the topics of the cluster.
        """
        self._topic = topic
        self._replicas = replicas
        self._metadata = metadata

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""
        topic = self._metadata.image.topics.get(self._topic)
        return () if topic is None else topic.partitions

    def log(self, partition: int) -> PartitionLog:
        """A partition's log; raises KafkaError if it is not led here."""
        return self._replicas.log(self._topic, partition)

    def append(
        self,
        partition: int,
        batch: bytes,
        *,
        verification_guard: object | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Appends a batch; raises KafkaError. As `PartitionLog.append_as_leader`."""
        result = self._replicas.append(
            self._topic,
            partition,
            batch,
            origin=AppendOrigin.COORDINATOR,
            verification_guard=verification_guard,
            transaction_version=transaction_version,
        )
        high_watermark = self.log(partition).high_watermark
        return Appended(result.first_offset, result.last_offset + 1, high_watermark)


class Replay(Protocol):
    """Replays batches into a state. `offset` is that of the batch or record that is being read."""

    offset: int

    def batch(self, batch: RecordBatch | LegacyBatch, /) -> None:
        """Replays a batch, now or at the latest at the next `flush`."""

    def flush(self) -> None:
        """Replays the records that wait."""


class LogLoader(Generic[S]):
    """Reads the state of a partition from its log."""

    def __init__(
        self,
        log: PartitionLog,
        replay_into: Callable[[S], Replay],
        *,
        remedy: str,
        loaded: Callable[[S], tuple[int, str]],
    ) -> None:
        """`log` is not appended to while it is read.

        Args:
            log: the partition's log.
            replay_into: begins a replay into a state.
            remedy: what to do if a record cannot be read.
            loaded: how many of what a state has, for the log.
        """
        self._log = log
        self._replay_into = replay_into
        self._remedy = remedy
        self._loaded = loaded

    @property
    def size_bytes(self) -> int:
        """The size of the log that has to be read."""
        return self._log.size_bytes

    def load(self, state: S, timeline: Timeline) -> int:
        """Replays all records, from the log's start to its end; returns the log end offset.

        Raises:
            CorruptError: a record is malformed; the error names the segment's file, the offset,
                and the type of the record.
            KafkaError: the log cannot be read.
        """
        log = self._log
        offset, end, high_watermark = log.log_start_offset, log.log_end_offset, log.high_watermark
        replay = self._replay_into(state)
        try:
            while offset < end:
                next_offset = replay.offset = offset
                data = log.reader.read(offset, _READ_BYTES, isolation=Isolation.LOG_END).read()
                for _, batch in iter_batches(data):
                    replay.offset = batch.base_offset
                    if batch.next_offset <= high_watermark:
                        replay.batch(batch)
                    else:
                        replay.flush()
                        timeline.begin()
                        replay.batch(batch)
                        replay.flush()
                        timeline.end(batch.next_offset)
                    next_offset = batch.next_offset
                if next_offset == offset:
                    break
                offset = next_offset
            replay.flush()
        except CorruptMessageError as error:
            if isinstance(error.__cause__, CorruptError):
                raise error.__cause__.with_remedy(self._remedy) from error
            raise
        except CorruptError as error:
            segment = log.segments.floor(replay.offset)
            base_offset = log.log_start_offset if segment is None else segment.base_offset
            path = log.directory / segment_file_name(base_offset, LOG_SUFFIX)
            raise type(error)(error.reason, path=str(path), remedy=self._remedy) from error
        count, what = self._loaded(state)
        level = logging.INFO if count else logging.DEBUG
        _LOG.log(level, "Loaded %d %s of %s", count, what, log.topic_partition)
        return end
