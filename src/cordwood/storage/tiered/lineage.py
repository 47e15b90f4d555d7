"""The parts of remote segments that a log consists of, by its own leader epochs.

Several leaders may have copied the same offsets, with segments that begin elsewhere, and one that
lost its leadership may have copied what the log does not have.

Source: org.apache.kafka.server.log.remote.storage.RemoteLogManager.read,
findNextSegmentMetadata, isRemoteSegmentWithinLeaderEpochs, buildFilteredLeaderEpochMap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cordwood.storage.tiered.remote_log import RemoteLog, RemoteSegment

#: Pairs of a leader epoch and its first offset, in order; at least one.
Epochs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RemotePart:
    """The batches of a remote segment from offset `first` to before `end`."""

    segment: RemoteSegment
    first: int
    end: int


def remote_parts(
    remote: RemoteLog, epochs: Epochs, *, log_start: int, local_start: int
) -> Iterator[RemotePart]:
    """The parts that a reader gets between the start of the log and its first local segment.

    Of the first segment there is all that is before the start of the log, too, as in a log whose
    records were deleted. Offsets that no segment has are skipped.

    Differs: Kafka compares a segment with the end of the log; here it ends at `local_start`.

    Args:
        remote: the segments.
        epochs: of the log.
        log_start: its first offset.
        local_start: the first offset of its local segments.
    """
    offset, is_first = log_start, True
    while offset < local_start:
        epoch = _epoch_of(epochs, offset)
        segment = None if epoch is None else remote.segment_of(epoch, offset)
        if segment is None or not is_in_lineage(segment, epochs):
            following = [
                each.start_offset
                for each in remote.readable()
                if each.start_offset > offset and is_in_lineage(each, epochs)
            ]
            if not following:
                return
            offset = min(following)
            continue
        end = min(segment.end_offset + 1, local_start)
        yield RemotePart(segment, segment.start_offset if is_first else offset, end)
        offset, is_first = end, False


def is_in_lineage(segment: RemoteSegment, epochs: Epochs) -> bool:
    """Whether the leader epochs of a segment are those that the log had at the same offsets."""
    own, log = _with_records(segment.leader_epochs), _with_records(epochs)
    in_order = sorted(log)
    last = max(own)
    common = [epoch for epoch in sorted(own) if epoch >= in_order[0]]
    if not in_order[0] <= last <= in_order[-1] or not common:
        return False
    for epoch, following in zip(common, [*common[1:], None], strict=True):
        if epoch not in log:
            return False
        if epoch == common[0] and epoch != in_order[0] and own[epoch] < log[epoch]:
            return False
        later = [each for each in in_order if each > epoch]
        if following is None:
            if later and segment.end_offset >= log[later[0]]:
                return False
        elif not later or (later[0], log[later[0]]) != (following, own[following]):
            return False
    return True


def _epoch_of(epochs: Epochs, offset: int) -> int | None:
    """The epoch that an offset was written in; None below the first."""
    found = [epoch for epoch, start in epochs if start <= offset]
    return found[-1] if found else None


def _with_records(epochs: Epochs) -> dict[int, int]:
    """The epochs without those in which nothing was written: the next begins at their offset."""
    return {
        epoch: start
        for (epoch, start), following in zip(epochs, [*epochs[1:], None], strict=True)
        if following is None or following[1] != start
    }
