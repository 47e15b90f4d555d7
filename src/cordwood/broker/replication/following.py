"""A follower of a partition, as a state machine: what it fetches, and what it does with the answer.

`next_fetch` says from where to fetch; one request for a partition is in flight at a time. The
answer gives back what the log has to do, in order; `next_fetch` must not be called before.

Source: kafka.server.AbstractFetcherThread, ReplicaFetcherThread, ReplicaManager.initialFetchOffset
(4.3.0); KIP-101, KIP-279, KIP-320, KIP-595.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from cordwood.model.error_codes import ErrorCode
from cordwood.storage.log.leader_epochs import EpochEndOffset

_log = logging.getLogger(__name__)

NO_EPOCH = -1


class FollowedLog(Protocol):
    """The log, as far as the decisions need it."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that it has."""

    @property
    def log_end_offset(self) -> int:
        """One past its last offset."""

    @property
    def high_watermark(self) -> int:
        """One past the last record that it knows to be committed."""

    @property
    def last_epoch(self) -> int | None:
        """The newest leader epoch that it knows; None without one."""

    @property
    def gap_offset(self) -> int | None:
        """The offset from which records may be missing since a crash; None if none are."""

    def end_of_epoch(self, epoch: int) -> EpochEndOffset | None:
        """The newest epoch that it knows up to `epoch`, and its end; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """A position in a Fetch; `last_epoch` is `NO_EPOCH` for a log without epochs."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """The answer for the partition; `diverging` is the end of an epoch in the leader's log."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEndOffset | None = None
    records: bytes = b""


# ---- what has to be done


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append whole batches of epochs up to `leader_epoch`; a partial one at the end is left out."""

    records: bytes
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log off at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Empty the log; the next record gets `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    """Records below `offset`, or below the log's end if that is lower, are committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """Records below `offset` are deleted, as far as they are committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Ask the leader for its first and its last offset; the answer goes to `on_offsets`."""

    leader_epoch: int


Effect = AppendRecords | TruncateTo | StartAt | MoveHighWatermark | MoveLogStart | AskOffsets


class PartitionFollowing:
    """The state machine for one leader epoch; another epoch has another one. See the module."""

    def __init__(
        self, leader_id: int, leader_epoch: int, *, fetch_backoff_ms: float = 1000
    ) -> None:
        """Follows a leader; nothing is fetched yet.

        Args:
            leader_id: the leader.
            leader_epoch: its epoch.
            fetch_backoff_ms: replica.fetch.backoff.ms.
        """
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._backoff_ms = fetch_backoff_ms
        self._not_before_ms = 0.0
        self._is_fenced = False
        self._is_asking = False
        self._has_begun = False
        self._leaders_high_watermark: int | None = None

    def check_invariants(self) -> None:
        """Checks that nothing is awaited of a leader before the first fetch."""
        if not self._has_begun:
            assert not self._is_asking, "offsets are awaited before the first fetch"
            assert self._leaders_high_watermark is None, self._leaders_high_watermark
        mark = self._leaders_high_watermark
        assert mark is None or mark >= -1, mark
        assert self.leader_epoch >= 0, self.leader_epoch

    def is_in_sync(self, log: FollowedLog) -> bool:
        """Whether the log has all that was committed at the last answer.

        Source: PartitionFetchState.isReplicaInSync.
        """
        mark = self._leaders_high_watermark
        return mark is not None and log.log_end_offset >= mark

    @property
    def is_fenced(self) -> bool:
        """Whether there is a newer epoch: nothing is fetched until its metadata arrives."""
        return self._is_fenced

    def begin(self, log: FollowedLog) -> list[Effect]:
        """The effects to apply before the first fetch.

        A log without epochs is cut off at its mark. One that a crash has left with a gap is cut off
        there, and the leader has the rest.

        Differs: Kafka fetches from behind the gap on, and the replica lacks those records for ever.
        """
        self._has_begun = True
        keeps = log.log_end_offset
        if log.last_epoch is None:
            keeps = min(keeps, log.high_watermark)
        gap = log.gap_offset
        if gap is not None and gap >= log.log_start_offset:
            _log.warning("Records may be missing from offset %d on since a crash", gap)
            keeps = min(keeps, gap)
        return [TruncateTo(keeps)] if keeps < log.log_end_offset else []

    def next_fetch(self, log: FollowedLog, now_ms: float) -> FetchPosition | float | None:
        """The next fetch; or the ms after which to call again; or None outside this epoch."""
        assert self._has_begun, "begin comes first"
        if self._is_fenced or self._is_asking:
            return None
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        last_epoch = log.last_epoch
        return FetchPosition(
            leader_epoch=self.leader_epoch,
            offset=log.log_end_offset,
            last_epoch=NO_EPOCH if last_epoch is None else last_epoch,
            log_start_offset=log.log_start_offset,
        )

    def on_failure(self, now_ms: float) -> None:
        """The leader did not answer, or the log could not take what it sent."""
        self._is_asking = False
        self._not_before_ms = now_ms + self._backoff_ms

    def on_fetched(
        self, position: FetchPosition, answer: FetchedPartition, log: FollowedLog, now_ms: float
    ) -> list[Effect]:
        """The answer to the fetch from `position`.

        Source: AbstractFetcherThread.processFetchRequest.
        """
        if position.leader_epoch != self.leader_epoch or position.offset != log.log_end_offset:
            return []  # of an epoch before, or of the log before it was cut off
        error = answer.error
        if error is ErrorCode.NONE:
            if answer.diverging is not None:
                return [TruncateTo(self._common_end(answer.diverging, log))]
            self._leaders_high_watermark = answer.high_watermark
            return _taken(answer, self.leader_epoch)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._is_asking = True
            return [AskOffsets(self.leader_epoch)]
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            _log.info("There is a newer leader epoch than %d; waiting for it", self.leader_epoch)
            self._is_fenced = True
            return []
        _log.info("A fetch from leader %d was refused with %s", self.leader_id, error.name)
        self.on_failure(now_ms)
        return []

    def on_offsets(self, first: int, end: int, log: FollowedLog, now_ms: float) -> list[Effect]:
        """Takes the start and the end (exclusive) of the leader's log, after a fetch outside of it.

        Source: AbstractFetcherThread.fetchOffsetAndTruncate.
        """
        self._is_asking = False
        if end < log.log_end_offset:
            _log.warning(
                "The leader's log ends at %d, before this one, which ends at %d and is cut off",
                end,
                log.log_end_offset,
            )
            return [TruncateTo(end)]
        if first > log.log_end_offset:
            _log.warning(
                "The leader's log starts at %d, behind the end of this one, %d, which begins again",
                first,
                log.log_end_offset,
            )
            return [StartAt(first)]
        # The leader's log has moved meanwhile, or its epochs are not those of this one.
        self.on_failure(now_ms)
        return []

    def _common_end(self, diverging: EpochEndOffset, log: FollowedLog) -> int:
        """The offset where the two logs part, or one below which to ask again.

        Source: AbstractFetcherThread.getOffsetTruncationState.
        """
        end = log.log_end_offset
        own = log.end_of_epoch(diverging.epoch)
        if own is None:
            return min(diverging.end_offset, end)
        if own.epoch != diverging.epoch:
            return min(own.end_offset, end)
        return min(own.end_offset, diverging.end_offset, end)


def _taken(answer: FetchedPartition, leader_epoch: int) -> list[Effect]:
    """Source: ReplicaFetcherThread.processPartitionData."""
    effects: list[Effect] = []
    if answer.records:
        effects.append(AppendRecords(answer.records, leader_epoch))
    if answer.high_watermark >= 0:
        effects.append(MoveHighWatermark(answer.high_watermark))
    if answer.log_start_offset > 0:
        effects.append(MoveLogStart(answer.log_start_offset))
    return effects
