"""The log of a coordinator's topic: the format of its records, and how a state is loaded.

It is loaded in a thread beside the event loop, which gets its turns between the records.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.log import EncodedRecord
from cordwood.coordinator.timeline import Timeline
from cordwood.format.file_names import LOG_SUFFIX, segment_file_name
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.model.kafka_errors import CorruptMessageError, KafkaError
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_READ_BYTES = 5 * 1024 * 1024

_LOG = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")


class Replay(ABC, Generic[R]):
    """Replays batches into a state. `offset` is that of the batch or record that is being read."""

    topic: ClassVar[str]
    #: Raised for a record that is ignored, since this release does not know it.
    unknown: ClassVar[type[UnsupportedVersionError]]

    def __init__(self, partition: int) -> None:
        self.offset = 0
        self._partition = partition

    @abstractmethod
    def batch(self, batch: RecordBatch | LegacyBatch, /) -> None:
        """Replays a batch, now or at the latest at the next `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Replays the records that wait."""

    @staticmethod
    @abstractmethod
    def decode(key: bytes | None, value: bytes | None, /) -> R | None:
        """The record of a key and a value; None for one of a type that is not used here.

        Raises:
            CorruptError: it is malformed, or of an unknown version.
        """

    @staticmethod
    @abstractmethod
    def describe(key: bytes | None, /) -> str:
        """Names a record that cannot be read."""

    def decoded(self, offset: int, key: bytes | None, value: bytes | None) -> R | None:
        """Decodes a record; an unknown one is logged and ignored.

        Raises:
            CorruptError: it is malformed, or of an unknown version.
        """
        self.offset = offset
        try:
            return self.decode(key, value)
        except self.unknown as error:
            _LOG.warning(
                "The record at offset %d of %s-%d is ignored: %s. It may be left over from an "
                "aborted upgrade.",
                offset,
                self.topic,
                self._partition,
                error,
            )
            return None
        except CorruptError as error:
            raise type(error)(
                f"{self.describe(key)} at offset {offset} cannot be read: {error.reason}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat(Generic[S, R]):
    """The records of a coordinator's topic, and the state that they make.

    Attributes:
        topic: its name.
        contents: what a state has, for log lines, such as "groups".
        encode: gives the bytes of records; raises EncodingError for a value that does not fit.
        batch_of: gives the batch of records, of a time in ms, perhaps of a transaction.
        error_of_append: the error code for a client whose records could not be written.
        replay: begins a replay into a state.
        count: how many of its contents a state has.
        remedy: what to do if a record cannot be read.
    """

    topic: str
    contents: str
    encode: Callable[[Sequence[R]], list[EncodedRecord]]
    batch_of: Callable[[Sequence[EncodedRecord], int, TransactionalProducer | None], bytes]
    error_of_append: Callable[[KafkaError], int]
    replay: Callable[[S], Replay[R]]
    count: Callable[[S], int]
    remedy: str


class LogLoader(Generic[S, R]):
    """Reads the state of a partition from its log."""

    def __init__(self, log: PartitionLog, log_format: LogFormat[S, R]) -> None:
        """`log` is not appended to while it is read."""
        self._log = log
        self._format = log_format

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
        replay = self._format.replay(state)
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
                raise error.__cause__.with_remedy(self._format.remedy) from error
            raise
        except CorruptError as error:
            segment = log.segments.floor(replay.offset)
            base_offset = log.log_start_offset if segment is None else segment.base_offset
            path = log.directory / segment_file_name(base_offset, LOG_SUFFIX)
            raise type(error)(error.reason, path=str(path), remedy=self._format.remedy) from error
        count = self._format.count(state)
        level = logging.INFO if count else logging.DEBUG
        _LOG.log(level, "Loaded %d %s of %s", count, self._format.contents, log.topic_partition)
        return end
