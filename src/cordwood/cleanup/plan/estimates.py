"""Estimates as values, which need no compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cleanup.plan.log_compaction import LogCompaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEstimate:
    """The bytes and records that one compaction would free.

    Bytes are those of logs, without indexes; `bytes_freed` is less than 0 if the log would grow.
    `bytes_freed_low` and `bytes_freed_high` are the ends of an interval that has the result in 95
    of 100 cases. `records_before` counts the records of the segments that are rewritten,
    `records_discarded` all of them that would go, `tombstones_discarded` those that are past their
    delete horizon. `keys` is how many keys the dirty section has.
    `bytes_read` is what was read, `bytes_before` the size of the segments of the compaction. With
    `is_exact` every batch was looked at, and nothing is estimated.
    """

    bytes_before: int
    bytes_freed: int
    bytes_freed_low: int
    bytes_freed_high: int
    records_before: int
    records_discarded: int
    tombstones_discarded: int
    keys: int
    bytes_read: int
    is_exact: bool

    @property
    def error(self) -> int:
        """Half of the interval, in bytes."""
        return (self.bytes_freed_high - self.bytes_freed_low + 1) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickEstimate:
    """About what a compaction would free, from a small part of the log.

    Bytes are those of logs, without indexes. `bytes_read` is what was read for it.
    """

    bytes_before: int
    bytes_freed: int
    bytes_read: int

    @property
    def share(self) -> float:
        """The share of the log's bytes that is freed, 0 to 1, for each byte that is read."""
        return self.bytes_freed / self.bytes_before if self.bytes_before else 0.0


#: Estimates what a compaction would free.
#:
#: Raises:
#:     CorruptError: a segment is damaged, or was changed while it was read.
#:     OSError: a segment cannot be read.
Estimator = Callable[[LogCompaction], CompactionEstimate]
