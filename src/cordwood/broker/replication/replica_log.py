"""The log of a follower: what its state machine asks of it, and what it has it do."""

from __future__ import annotations

from collections.abc import Callable

from cordwood.broker.replication.following import (
    AppendRecords,
    AskOffsets,
    Effect,
    MoveHighWatermark,
    MoveLogStart,
    StartAt,
    TruncateTo,
)
from cordwood.storage.log.leader_epochs import UNDEFINED_EPOCH, EpochEndOffset
from cordwood.storage.log.partition_log import LEADER_OFFSET_INCREMENT, PartitionLog

Cut = Callable[[int, Callable[[], bool]], None]
"""Cuts a log off at an offset, if that is wanted still when the log is not cleaned any more."""


class ReplicaLog:
    """A `FollowedLog` on disk."""

    def __init__(
        self,
        log: PartitionLog,
        *,
        truncate: Cut,
        start_at: Cut,
    ) -> None:
        """Changes nothing yet.

        Args:
            log: the follower's.
            truncate: cuts it off, and what depends on it, such as checkpoints.
            start_at: empties it, and what depends on it.
        """
        self.log = log
        self._truncate = truncate
        self._start_at = start_at

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """One past the last offset of the log."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """One past the last committed record."""
        return self.log.high_watermark

    @property
    def last_epoch(self) -> int | None:
        """The leader epoch of the last batch; None for a log without epochs."""
        return self.log.leader_epochs.latest_epoch

    @property
    def gap_offset(self) -> int | None:
        """The start of what the log may lack since a crash; None without a gap."""
        return self.log.offsets.gap

    def end_of_epoch(self, epoch: int) -> EpochEndOffset | None:
        """The end of the newest epoch up to `epoch`, by the leader epoch cache; None if unknown."""
        found = self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)
        return None if found.epoch == UNDEFINED_EPOCH else found

    def apply(self, effect: Effect, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Does what a follower's step says, but for `AskOffsets`.

        Args:
            effect: the step.
            is_wanted: whether it must be done still; asked after a wait, in which others may have
                run.

        Raises:
            KafkaError: the records are damaged or do not follow the log, or the disk refuses.
        """
        match effect:
            case AppendRecords(records, leader_epoch):
                self.log.append_as_follower(records, leader_epoch=leader_epoch)
            case MoveHighWatermark(offset):
                self.log.maybe_update_high_watermark(min(offset, self.log.log_end_offset))
            case MoveLogStart(offset):
                if self.log.log_start_offset < offset <= self.log.high_watermark:
                    self.log.maybe_increment_log_start_offset(offset, LEADER_OFFSET_INCREMENT)
            case TruncateTo(offset):
                self._truncate(offset, is_wanted)
            case StartAt(offset):
                self._start_at(offset, is_wanted)
            case AskOffsets():
                raise AssertionError("offsets are asked for by the fetcher")
