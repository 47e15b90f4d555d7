"""The remote segments of a log, as the records of `__remote_log_metadata` say.

Source: org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache and
RemoteLogLeaderEpochState; org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.
"""

from __future__ import annotations

import enum
from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID


class SegmentState(enum.IntEnum):
    """The states of a remote segment; only one of which the copy has finished is read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


#: The states from which a segment comes into a state.
_BEFORE: Mapping[SegmentState, tuple[SegmentState | None, ...]] = {
    SegmentState.COPY_SEGMENT_STARTED: (None,),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.COPY_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
    ),
    SegmentState.DELETE_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A remote segment.

    `end_offset` is inclusive. `leader_epochs` are pairs of an epoch and its first offset in the
    segment, in order.
    """

    segment_id: UUID
    start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    state: SegmentState

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RemoteSegment:
        """The segment of a `RemoteLogSegmentMetadataRecord`.

        Raises:
            ValueError: its state is unknown, or it has no leader epoch.
        """
        epochs = {each["leaderEpoch"]: each["offset"] for each in fields["segmentLeaderEpochs"]}
        if not epochs:
            raise ValueError("a remote segment has no leader epochs")
        return cls(
            segment_id=fields["remoteLogSegmentId"]["id"],
            start_offset=fields["startOffset"],
            end_offset=fields["endOffset"],
            leader_epochs=tuple(sorted(epochs.items())),
            state=SegmentState(fields["remoteLogSegmentState"]),
        )

    def epoch_end(self, epoch: int) -> int:
        """The last offset of an epoch that the segment has."""
        following = [offset for each, offset in self.leader_epochs if each > epoch]
        return following[0] - 1 if following else self.end_offset


class _EpochSegments:
    """The segments of a leader epoch by their first offset in it."""

    def __init__(self) -> None:
        self._ids: dict[int, UUID] = {}
        self._starts: list[int] = []
        self._highest = -1

    def add(self, start_offset: int, segment_id: UUID, end_offset: int) -> None:
        """Adds a segment, in the place of those of an earlier leader that it has all of."""
        while self._starts and self._starts[-1] >= start_offset and self._highest <= end_offset:
            del self._ids[self._starts.pop()]
        if start_offset not in self._ids:
            insort(self._starts, start_offset)
        self._ids[start_offset] = segment_id
        self._highest = max(self._highest, end_offset)

    def remove(self, start_offset: int, segment_id: UUID) -> None:
        """Removes a segment, if no other has taken its place."""
        if self._ids.get(start_offset) == segment_id:
            del self._ids[start_offset]
            self._starts.remove(start_offset)

    def floor(self, offset: int) -> UUID | None:
        """The segment with the largest start that is not beyond an offset."""
        at = bisect_right(self._starts, offset)
        return self._ids[self._starts[at - 1]] if at else None


class RemoteLog:
    """The remote segments of one partition of one topic id."""

    def __init__(self) -> None:
        self._segments: dict[UUID, RemoteSegment] = {}
        self._epochs: dict[int, _EpochSegments] = {}

    def take(self, fields: Mapping[str, Any]) -> None:
        """Takes a record: of a segment, or of a segment's next state.

        A state that does not follow that of the segment is ignored, as Kafka does.

        Raises:
            ValueError: as `RemoteSegment.of`.
        """
        if "startOffset" in fields:
            segment = RemoteSegment.of(fields)
            if segment.segment_id in self._segments:
                return
            self._segments[segment.segment_id] = segment
            state = segment.state
        else:
            state = SegmentState(fields["remoteLogSegmentState"])
            known = self._segments.get(fields["remoteLogSegmentId"]["id"])
            if known is None or known.state not in _BEFORE[state]:
                return
            segment = self._segments[known.segment_id] = replace(known, state=state)
        if state is SegmentState.COPY_SEGMENT_FINISHED:
            for epoch, offset in segment.leader_epochs:
                segments = self._epochs.setdefault(epoch, _EpochSegments())
                segments.add(offset, segment.segment_id, segment.epoch_end(epoch))
        elif state is SegmentState.DELETE_SEGMENT_STARTED:
            for epoch, offset in segment.leader_epochs:
                self._epochs.setdefault(epoch, _EpochSegments()).remove(offset, segment.segment_id)

    def segment_of(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The segment that has an offset of a leader epoch; None if none has."""
        segments = self._epochs.get(epoch)
        segment_id = None if segments is None else segments.floor(offset)
        if segment_id is None:
            return None
        found = self._segments[segment_id]
        return found if offset <= found.epoch_end(epoch) else None

    def readable(self) -> list[RemoteSegment]:
        """The segments of which the copy has finished, and that are not being deleted."""
        return [
            each
            for each in self._segments.values()
            if each.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
