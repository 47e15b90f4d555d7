"""The part of logs that is wanted of a table: topics, partitions, offsets, times.

Parts only become smaller: what is left out here is in no row that is asked for. What is left in may
still hold other rows, which the reader of the table filters out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from cordwood.model.topic_partition import TopicPartition

_LONG_MAX = (1 << 63) - 1


class Isolation(StrEnum):
    """The records that are read, as a consumer's `isolation.level`; `ALL` is what the files hold.

    Both levels of a consumer begin at the log start offset. READ_UNCOMMITTED ends at the high
    watermark, READ_COMMITTED at the last stable offset and without records of aborted transactions.
    `ALL` has control batches, and what lies beyond these offsets.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Topics and partitions, all if None; offsets from `first_offset` to before `end_offset`.

    Records with a timestamp (ms) below `first_ms` are not wanted; -1 for all.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = _LONG_MAX
    first_ms: int = -1

    def has(self, partition: TopicPartition) -> bool:
        """Whether rows of a partition are wanted."""
        if self.topics is not None and partition.topic not in self.topics:
            return False
        return self.partitions is None or partition.partition in self.partitions

    def of_topics(self, topics: frozenset[str]) -> Self:
        """Narrows to these topics."""
        return replace(self, topics=topics if self.topics is None else topics & self.topics)

    def of_partitions(self, partitions: frozenset[int]) -> Self:
        """Narrows to these partitions."""
        known = self.partitions
        return replace(self, partitions=partitions if known is None else partitions & known)

    def from_offset(self, offset: int) -> Self:
        """Narrows to offsets from this one on."""
        return replace(self, first_offset=max(offset, self.first_offset))

    def before_offset(self, offset: int) -> Self:
        """Narrows to offsets below this one."""
        return replace(self, end_offset=min(offset, self.end_offset))

    def from_ms(self, timestamp_ms: int) -> Self:
        """Narrows to records with this timestamp or a later one."""
        return replace(self, first_ms=max(timestamp_ms, self.first_ms))
