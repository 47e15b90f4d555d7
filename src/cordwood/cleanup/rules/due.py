"""Finds when something becomes removable in a log without writes: a pure function.

The *due moment* of a segment is the earliest moment at which a cleaning removes something of it
although no newer record has come: a tombstone or a marker behind its delete horizon
(cordwood.tombstone.cleanup), or a record that a rule removes whatever its key
(cordwood.record.ttl.header). Kafka's cleaner looks at horizons only when the log is dirty enough
again, so in an idle log tombstones stay.

A cleaning for a due moment of the clean section rewrites the segments that are due, each by
itself. That is enough: in a clean section each key has one record, so that nothing older comes back
when that goes.

Source: org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-534.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cordwood.cleanup.rules.moments import NEVER
from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.configs.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRule:
    """Kinds of records that may become removable in a log without a newer record.

    `tombstones` behind their delete horizons, and records that one of `removals` removes.
    """

    tombstones: bool = False
    removals: tuple[RemovalRule, ...] = ()

    @classmethod
    def of(cls, config: LogConfig) -> DueRule | None:
        """The rule of a topic; None where nothing may, as in Kafka."""
        rule = cls(
            tombstones=config.cordwood_tombstone_cleanup,
            removals=removal_rules(config),
        )
        return rule if config.compact and (rule.tombstones or rule.removals) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMoments:
    """Earliest moments (ms) at which parts of one segment become removable, by kind; NEVER if not.

    `tombstone_ms` is the delete horizon of a batch that has a record with a null value, AT_ONCE
    where such a batch of magic 2 has none; `marker_ms` that of a batch with a marker. A batch keeps
    its horizon after its tombstones are gone, so a header alone says nothing. `expiry_ms` is when
    a rule removes the first record whatever its key. `has_transactions`
    says whether it has markers or transactional batches: what a cleaning does to these depends on
    the segments before.
    """

    tombstone_ms: int = NEVER
    marker_ms: int = NEVER
    expiry_ms: int = NEVER
    has_transactions: bool = False

    def earliest(self, other: DueMoments) -> DueMoments:
        """The earliest moments of two parts of a segment."""
        return DueMoments(
            tombstone_ms=min(self.tombstone_ms, other.tombstone_ms),
            marker_ms=min(self.marker_ms, other.marker_ms),
            expiry_ms=min(self.expiry_ms, other.expiry_ms),
            has_transactions=self.has_transactions or other.has_transactions,
        )

    def clean_ms(self, settled_ms: int) -> int:
        """The due moment of a clean segment.

        Args:
            settled_ms: markers with horizons up to this moment stay, as a cleaning has shown.
        """
        marker_ms = self.marker_ms if self.marker_ms > settled_ms else NEVER
        return min(self.tombstone_ms, marker_ms, self.expiry_ms)


#: Those of a segment of which nothing becomes removable.
NOTHING_DUE = DueMoments()


class DueSegment(Protocol):
    """The properties of a segment that are used here; see `CleanedSegment`."""

    @property
    def base_offset(self) -> int:
        """The offset in its files' names."""

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, else the modification time (ms)."""

    @property
    def due(self) -> DueMoments:
        """The moments at which parts of the segment become removable."""


def lag_ends_ms(segment: DueSegment, config: LogConfig) -> int:
    """The moment (ms) until which min.compaction.lag.ms keeps the records of a segment."""
    lag_ms = config.min_compaction_lag_ms
    return segment.largest_timestamp + lag_ms if lag_ms > 0 else 0


def due_clean_ms(segment: DueSegment, config: LogConfig, settled_ms: int) -> int:
    """The moment at which a clean segment is rewritten because it is due; NEVER if it is not."""
    moment = segment.due.clean_ms(settled_ms)
    return moment if moment == NEVER else max(moment, lag_ends_ms(segment, config))
