"""The rules of the reference cleaner on records, batches, tombstones and markers.

One function a rule, one batch at a time. The product has them for blocks of batches, in
`cordwood.cleanup.engine.rewrite`; tests compare the output of both, byte for byte.

Source: org.apache.kafka.storage.internals.log.Cleaner (shouldDiscardBatch, shouldRetainRecord),
org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-98, KIP-534.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cordwood.cleanup.plan.compaction_values import LastRecord
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.format.record_batch import Record


class Action(enum.Enum):
    """The action for a batch."""

    DISCARD = enum.auto()
    COPY = enum.auto()
    REBUILD = enum.auto()
    EMPTY = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A batch's action and, for REBUILD, the delete horizon (ms) of the new batch, if any."""

    action: Action
    delete_horizon_ms: int | None = None


def should_discard_records(
    *, can_discard: bool, is_control: bool, delete_horizon_ms: int | None, now_ms: int
) -> bool:
    """Whether all records of a batch go, whatever their keys.

    The data of an aborted transaction goes at once, a marker that is no longer needed when the
    horizon that an earlier compaction stamped on it has come.
    """
    if not is_control:
        return can_discard
    return can_discard and delete_horizon_ms is not None and delete_horizon_ms <= now_ms


def should_retain_tombstone(*, delete_horizon_ms: int | None, now_ms: int) -> bool:
    """Whether a magic 2 tombstone stays: it has no horizon yet, or now is before it."""
    return delete_horizon_ms is None or now_ms < delete_horizon_ms


def is_removed(record: Record, rules: RecordRules) -> bool:
    """Whether a rule removes a record whatever its key."""
    moments = [each.goes_ms(record) for each in rules.removals]
    return any(moment is not None and moment <= rules.now_ms for moment in moments)


def is_last_of_producer(
    last: LastRecord | None, *, last_offset: int, producer_epoch: int, is_control: bool
) -> bool:
    """Whether a batch holds its producer's last sequence number, and so must leave a header."""
    if last is None:
        return False
    if last.last_data_offset is not None:
        return last.last_data_offset == last_offset
    return is_control and last.producer_epoch == producer_epoch


def decide_batch(
    *,
    count: int,
    kept: int,
    kept_tombstones: int,
    can_discard: bool,
    is_control: bool,
    must_leave_header: bool,
    delete_horizon_ms: int | None,
    now_ms: int,
    delete_retention_ms: int,
) -> Verdict:
    """The verdict on a magic 2 batch.

    Args:
        count: records in the batch.
        kept: how many survive the rules on records.
        kept_tombstones: how many of these have a null value.
        can_discard: the transaction tracker's verdict.
        is_control: it holds a marker.
        must_leave_header: the last of its producer, or of the compaction.
        delete_horizon_ms: the horizon it carries.
        now_ms: the time of the compaction.
        delete_retention_ms: delete.retention.ms.
    """
    if kept == 0:
        return Verdict(action=Action.EMPTY if must_leave_header else Action.DISCARD)
    marker_of_nothing = can_discard and is_control
    stamp = (kept_tombstones > 0 or marker_of_nothing) and delete_horizon_ms is None
    if kept == count and not stamp:
        return Verdict(action=Action.COPY)
    horizon = now_ms + delete_retention_ms if stamp else delete_horizon_ms
    return Verdict(action=Action.REBUILD, delete_horizon_ms=horizon)


def rank_of(record: Record, rule: VersionRule | None) -> tuple[int, int, int]:
    """The rank of a record among those of its key: the highest survives.

    Whether it has a version, the version, the offset (KIP-280). Without a rule, only offsets count.
    """
    if rule is None:
        return 0, 0, record.offset
    if rule.header is None:
        return 1, record.timestamp, record.offset
    version = None
    for header in record.headers:
        if header.key == rule.header:
            version = header.value
    if version is None or len(version) != 8:
        return 0, 0, record.offset
    number = 0
    for byte in version:
        number = number * 256 + byte
    return 1, number - (1 << 64) * (version[0] >> 7), record.offset


class Highest:
    """The record of each key that survives, and the newest offset of each key."""

    def __init__(self, rule: VersionRule | None) -> None:
        self._rule = rule
        self._highest: dict[bytes, tuple[int, int, int]] = {}
        self._newest: dict[bytes, int] = {}

    def add(self, key: bytes, record: Record) -> None:
        """Takes a record, in offset order."""
        rank = rank_of(record, self._rule)
        self._highest[key] = max(rank, self._highest.get(key, rank))
        self._newest[key] = record.offset

    def beats(self, key: bytes, record: Record) -> bool:
        """Whether another record of its key survives instead of one."""
        return key in self._highest and rank_of(record, self._rule) < self._highest[key]

    def is_pinned(self, key: bytes, record: Record) -> bool:
        """Whether a record has beaten a newer one, so that it stays though it is a tombstone."""
        return self._rule is not None and self._newest.get(key, -1) > record.offset
