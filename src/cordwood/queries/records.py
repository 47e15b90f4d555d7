"""Records of partitions, and their offsets.

These are the answers of `cordwood get-offsets`, `delete-records` and `console-producer`.
"""

from __future__ import annotations

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
