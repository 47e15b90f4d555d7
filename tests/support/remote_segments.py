"""Records of `__remote_log_metadata` about remote segments, as their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from cordwood.storage.tiered.remote_log import RemoteLog, SegmentState

#: Id, first and last offset, and leader epochs with their first offsets.
Segment = tuple[UUID, int, int, Mapping[int, int]]


def metadata(segment_id: UUID, start: int, end: int, epochs: Mapping[int, int]) -> dict[str, Any]:
    """The fields of the record with which the copy of a segment begins."""
    return {
        "remoteLogSegmentId": {"id": segment_id},
        "startOffset": start,
        "endOffset": end,
        "segmentLeaderEpochs": [{"leaderEpoch": e, "offset": o} for e, o in epochs.items()],
        "remoteLogSegmentState": SegmentState.COPY_SEGMENT_STARTED,
    }


def update(segment_id: UUID, state: SegmentState) -> dict[str, Any]:
    """The fields of the record of a segment's next state."""
    return {"remoteLogSegmentId": {"id": segment_id}, "remoteLogSegmentState": state}


def copied(*segments: Segment) -> RemoteLog:
    """A log whose segments were copied, in this order."""
    log = RemoteLog()
    for each in segments:
        log.take(metadata(*each))
        log.take(update(each[0], SegmentState.COPY_SEGMENT_FINISHED))
    return log
