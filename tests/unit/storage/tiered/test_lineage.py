"""The parts of remote segments that make a log, by the leader epochs of the log."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from cordwood.storage.tiered.lineage import is_in_lineage, remote_parts
from support.remote_segments import Segment, copied

A, B, C = (UUID(int=number) for number in range(1, 4))


def parts(
    *segments: Segment, epochs: Mapping[int, int], start: int = 0, local: int = 1000
) -> list[tuple[UUID, int, int]]:
    found = remote_parts(
        copied(*segments), list(epochs.items()), log_start=start, local_start=local
    )
    return [(each.segment.segment_id, each.first, each.end) for each in found]


def test_segments_follow_one_another_up_to_the_local_ones() -> None:
    segments = (A, 0, 9, {0: 0}), (B, 10, 19, {0: 10}), (C, 20, 29, {0: 20})
    assert parts(*segments, epochs={0: 0}, local=20) == [(A, 0, 10), (B, 10, 20)]
    assert parts(*segments, epochs={0: 0}, local=0) == []


def test_of_overlapping_segments_of_two_leaders_each_offset_is_there_once() -> None:
    segments = (A, 0, 14, {0: 0}), (B, 10, 24, {0: 10, 1: 15})
    assert parts(*segments, epochs={0: 0, 1: 15}, local=20) == [(A, 0, 15), (B, 15, 20)]


def test_the_first_segment_is_whole_though_records_were_deleted() -> None:
    segments = (A, 0, 9, {0: 0}), (B, 10, 19, {0: 10}), (C, 20, 29, {0: 20})
    assert parts(*segments, epochs={0: 15}, start=15) == [(B, 10, 20), (C, 20, 30)]


def test_what_a_leader_copied_that_the_log_does_not_have_is_left_out() -> None:
    lost = B, 10, 30, {0: 10}
    segments = (A, 0, 9, {0: 0}), lost, (C, 20, 39, {1: 20})
    assert parts(*segments, epochs={0: 0, 1: 20}) == [(A, 0, 10), (C, 20, 40)]


def test_offsets_that_no_segment_has_are_skipped() -> None:
    segments = (A, 0, 9, {0: 0}), (C, 20, 29, {0: 20})
    assert parts(*segments, epochs={0: 0}) == [(A, 0, 10), (C, 20, 30)]


@pytest.mark.parametrize(
    ("end", "own", "log", "expected"),
    [
        (50, {5: 10, 7: 15}, {5: 10, 7: 15, 9: 100}, True),
        # The example of isRemoteSegmentWithinLeaderEpochs: the first segment was deleted.
        (150, {5: 14, 7: 15, 9: 100}, {7: 51, 9: 100}, True),
        (150, {5: 14, 7: 15, 9: 100}, {7: 51, 9: 90}, False),
        (50, {5: 10, 6: 15}, {5: 10, 7: 15}, False),
        (50, {1: 10}, {5: 10}, False),
        (50, {9: 10}, {5: 10}, False),
        (50, {7: 10}, {5: 0, 7: 20}, False),
        (19, {5: 10}, {5: 0, 7: 20}, True),
        (20, {5: 10}, {5: 0, 7: 20}, False),
        # An epoch in which nothing was written.
        (50, {5: 10, 6: 15, 7: 15}, {5: 10, 6: 15, 7: 15}, True),
        (50, {5: 10, 6: 15, 7: 15}, {5: 10, 7: 15}, True),
    ],
)
def test_a_segment_is_of_the_log_if_its_epochs_are(
    end: int, own: Mapping[int, int], log: Mapping[int, int], *, expected: bool
) -> None:
    (segment,) = copied((A, min(own.values()), end, own)).readable()
    assert is_in_lineage(segment, list(log.items())) is expected
