"""The topic of a coordinator as its log.

Source: org.apache.kafka.coordinator.common.runtime.PartitionWriter, CoordinatorLoader.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.timeline import Timeline

S_contra = TypeVar("S_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)

EncodedRecord = tuple[bytes, bytes | None]
"""A record's key and value as the log has them; no value makes it a tombstone."""


class Appended(NamedTuple):
    """The offsets of an appended batch."""

    first_offset: int
    end_offset: int
    high_watermark: int


class PartitionLoader(Protocol[S_contra]):
    """Reads the records of one partition."""

    @property
    def size_bytes(self) -> int:
        """The size of the log that has to be read."""

    def load(self, state: S_contra, timeline: Timeline, /) -> int:
        """Replays all records and returns the log end offset.

        Raises:
            CordwoodError, OSError: the log cannot be read.
        """


class CoordinatorLog(Protocol[S_contra, R_contra]):
    """The topic that a coordinator's records are in."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def contents(self) -> str:
        """The kind of its records for log lines, such as "groups"."""

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""

    def loader(self, partition: int, /) -> PartitionLoader[S_contra]:
        """Reads a partition that is led here; raises KafkaError for another."""

    def encode(self, records: Sequence[R_contra], /) -> list[EncodedRecord]:
        """The bytes of records; raises KafkaError if a value does not fit."""

    def append(
        self,
        partition: int,
        records: Sequence[EncodedRecord],
        now_ms: int,
        producer: TransactionalProducer | None,
        /,
    ) -> Appended:
        """Appends a batch; raises KafkaError, with the code that clients of the API are given."""

    def append_marker(self, partition: int, batch: bytes, transaction_version: int, /) -> Appended:
        """Appends the batch of a transaction marker; raises KafkaError."""

    def high_watermark(self, partition: int, /) -> int:
        """The offset below which records are committed."""
