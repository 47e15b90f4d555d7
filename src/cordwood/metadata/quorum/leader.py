"""The leader of the metadata quorum, as the nodes that follow it know it: the only voter.

Source: org.apache.kafka.raft.KafkaRaftClient (handleFetchRequest, handleFetchSnapshotRequest,
handleDescribeQuorumRequest), RaftLog.validateOffsetAndEpoch, LeaderState; KIP-595, KIP-630,
KIP-853.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from cordwood.metadata.controller_requests import QuorumReplica
from cordwood.metadata.quorum.observer import (
    NO_LEADER,
    FetchAnswer,
    LeaderAndEpoch,
    LogEnd,
    OffsetAndEpoch,
    SnapshotAnswer,
)
from cordwood.metadata.snapshot_file import SnapshotFile
from cordwood.metadata.sole_voter_log import SoleVoterLog
from cordwood.model.error_codes import ErrorCode

#: Source: LeaderState.OBSERVER_SESSION_TIMEOUT_MS.
_OBSERVER_TIMEOUT_MS: Final = 300_000


class ReplicaKey(NamedTuple):
    """A node that follows the log, and the directory of its copy."""

    node_id: int
    directory_id: uuid.UUID


@dataclass(slots=True)
class _Observer:
    """The end of a node's copy when it last fetched; times in ms, -1 for never."""

    end_offset: int = -1
    leader_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class QuorumLeader:
    """Answers fetches of the metadata log; belongs to the event loop's thread."""

    def __init__(self, log: SoleVoterLog, *, node_id: int, now_ms: Callable[[], int]) -> None:
        """Nobody has fetched.

        Args:
            log: whose epoch has begun.
            node_id: of the voter.
            now_ms: the time that DescribeQuorum shows.
        """
        self._log = log
        self._now_ms = now_ms
        self._leader = LeaderAndEpoch(node_id, log.epoch)
        self._observers: dict[ReplicaKey, _Observer] = {}

    @property
    def start_offset(self) -> int:
        """The first offset that the log has."""
        return self._log.start_offset

    def fetch(self, replica: ReplicaKey, epoch: int, end: LogEnd, max_bytes: int) -> FetchAnswer:
        """The records after the end of a node's log, or the point where it differs from this one.

        Args:
            replica: the node; its id is -1 if it does not say.
            epoch: the epoch that it knows.
            end: of its log.
            max_bytes: of the records; the first batch may be larger.

        Raises:
            StorageError: the disk returned an error.
        """
        error = self._refusal(epoch)
        if error is ErrorCode.NONE and (
            end.offset < 0 or end.epoch < 0 or (epoch >= 0 and end.epoch > epoch)
        ):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return FetchAnswer(error=error, leader=self._leader)
        log = self._log
        snapshot = self._needed_snapshot(end)
        high_watermark = log.high_watermark
        if snapshot is not None:
            return FetchAnswer(
                error=ErrorCode.NONE,
                leader=self._leader,
                high_watermark=high_watermark,
                snapshot_id=OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
            )
        if end.offset or log.start_offset:
            known = log.end_of_epoch(end.epoch)
            if known.epoch != end.epoch or known.end_offset < end.offset:
                return FetchAnswer(
                    error=ErrorCode.NONE,
                    leader=self._leader,
                    high_watermark=high_watermark,
                    diverging=OffsetAndEpoch(known.end_offset, known.epoch),
                )
        self._note(replica, end.offset)
        records = b""
        if end.offset < high_watermark:
            records = log.read(end.offset, max_bytes=max(max_bytes, 1))
        return FetchAnswer(
            error=ErrorCode.NONE,
            leader=self._leader,
            high_watermark=high_watermark,
            records=records,
        )

    def _refusal(self, epoch: int) -> ErrorCode:
        """Source: KafkaRaftClient.validateLeaderOnlyRequest."""
        if epoch < 0 or epoch == self._leader.epoch:
            return ErrorCode.NONE
        is_old = epoch < self._leader.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _needed_snapshot(self, end: LogEnd) -> SnapshotFile | None:
        """The newest snapshot, if the log cannot continue one with this end, or it is empty."""
        if end.offset > self._log.start_offset and end.epoch == self._leader.epoch:
            return None
        snapshots = self._log.snapshots()
        if not snapshots:
            return None
        oldest = snapshots[0]
        is_needed = (
            end.offset == 0
            or end.offset < self._log.start_offset
            or (end.offset == self._log.start_offset and end.epoch != oldest.epoch)
            or end.epoch < oldest.epoch
        )
        return snapshots[-1] if is_needed else None

    def fetch_snapshot(
        self, epoch: int, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
    ) -> SnapshotAnswer:
        """A part of a snapshot, from a byte on.

        Args:
            epoch: the epoch that the node knows.
            snapshot_id: where the snapshot ends.
            position: of the first byte.
            max_bytes: of the part.

        Raises:
            OSError: the disk returned an error.
        """
        error = self._refusal(epoch)
        found = None
        if error is ErrorCode.NONE:
            found = next(
                (
                    each
                    for each in self._log.snapshots()
                    if (each.end_offset, each.epoch) == snapshot_id
                ),
                None,
            )
            if found is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= position < found.size_bytes:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        if found is None or error is not ErrorCode.NONE:
            return SnapshotAnswer(error=error, leader=self._leader)
        return SnapshotAnswer(
            error=ErrorCode.NONE,
            leader=self._leader,
            snapshot_id=snapshot_id,
            size_bytes=found.size_bytes,
            position=position,
            data=self._log.read_snapshot(found, position, max(max_bytes, 1)),
        )

    # ---- who follows

    def _note(self, replica: ReplicaKey, end_offset: int) -> None:
        """Source: LeaderState.ReplicaState.updateFollowerState."""
        if replica.node_id in {NO_LEADER, self._leader.leader_id}:
            return
        now_ms = self._now_ms()
        known = self._observers.setdefault(replica, _Observer())
        if end_offset >= self._log.end_offset:
            known.last_caught_up_ms = now_ms
        elif known.leader_end_offset >= 0 and end_offset >= known.leader_end_offset:
            known.last_caught_up_ms = known.last_fetch_ms
        known.end_offset = max(end_offset, known.end_offset)
        known.leader_end_offset = self._log.end_offset
        known.last_fetch_ms = now_ms

    def observers(self) -> tuple[QuorumReplica, ...]:
        """The nodes that have fetched in the last five minutes."""
        line_ms = self._now_ms() - _OBSERVER_TIMEOUT_MS
        self._observers = {
            key: each for key, each in self._observers.items() if each.last_fetch_ms >= line_ms
        }
        return tuple(
            QuorumReplica(
                key.node_id,
                key.directory_id,
                each.end_offset,
                each.last_fetch_ms,
                each.last_caught_up_ms,
            )
            for key, each in sorted(self._observers.items())
        )
