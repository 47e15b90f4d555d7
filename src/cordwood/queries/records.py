"""Records of partitions, and their offsets.

These are the answers of `cordwood get-offsets`, `delete-records`, `console-producer` and
`console-consumer`, which has one for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cordwood.model.documents import ABSENT, CamelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffset:
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRecords(CamelCase):
    """A partition whose records before an offset were deleted; `error` is why they were not."""

    topic: str
    partition: int
    error: str | None = field(default=None, metadata=ABSENT)
    low_watermark: int | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedRecords:
    """The number of records that were delivered, and of those that were lost."""

    delivered: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeader:
    """A header of a record."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord(CamelCase):
    """A record that a consumer has read; `timestamp_type` is Kafka's word for it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[ReadHeader]
