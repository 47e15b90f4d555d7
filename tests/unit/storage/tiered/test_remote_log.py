"""Remote segments by the records of their metadata, in all states and with several leaders."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.storage.tiered.remote_log import RemoteLog, SegmentState
from support.remote_segments import copied, metadata, update

S0, S1 = UUID(int=100), UUID(int=101)


def test_a_segment_is_read_between_the_end_of_its_copy_and_the_start_of_its_deletion() -> None:
    log = RemoteLog()
    seen: list[bool] = []
    for state in SegmentState:
        log.take(metadata(S0, 10, 19, {3: 10}) if not seen else update(S0, state))
        found = log.segment_of(3, 15)
        seen.append(found is not None)
        assert [each.segment_id for each in log.readable()] == ([S0] if found else [])
    assert seen == [False, True, False, False]


def test_an_offset_is_looked_for_in_its_epoch() -> None:
    log = copied((S0, 10, 19, {3: 10, 5: 15}))
    found = {
        (epoch, offset): log.segment_of(epoch, offset) is not None
        for epoch in (3, 4, 5)
        for offset in (9, 10, 14, 15, 19, 20)
    }
    assert {at for at, is_there in found.items() if is_there} == {
        *((3, 10), (3, 14)),
        *((5, 15), (5, 19)),
    }


@pytest.mark.parametrize(
    "state", [SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED]
)
def test_a_state_that_does_not_follow_is_ignored(state: SegmentState) -> None:
    log = copied((S0, 0, 9, {0: 0}))
    log.take(update(S0, state))
    log.take(update(S1, SegmentState.COPY_SEGMENT_FINISHED))
    log.take(metadata(S0, 5, 9, {0: 5}))
    found = log.segment_of(0, 3)
    assert found is not None
    assert (found.start_offset, found.state) == (0, SegmentState.COPY_SEGMENT_FINISHED)
    assert len(log.readable()) == 1


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [
        # The examples of RemoteLogLeaderEpochState: a duplicate, and an overlap.
        ((0, 100), (0, 200), 50),
        ((10, 90), (5, 100), 50),
        ((10, 90), (5, 100), 95),
    ],
)
def test_a_segment_takes_the_place_of_one_that_it_has_all_of(
    first: tuple[int, int], second: tuple[int, int], at: int
) -> None:
    log = copied((S0, *first, {0: first[0]}), (S1, *second, {0: second[0]}))
    found = log.segment_of(0, at)
    assert found is not None
    assert found.segment_id == S1


def test_the_deletion_of_a_duplicate_leaves_the_other_segment() -> None:
    log = copied((S0, 0, 100, {0: 0}), (S1, 0, 200, {0: 0}))
    log.take(update(S0, SegmentState.DELETE_SEGMENT_STARTED))
    found = log.segment_of(0, 0)
    assert found is not None
    assert found.segment_id == S1


def test_a_segment_without_leader_epochs_or_of_an_unknown_state_is_refused() -> None:
    log = copied((S0, 0, 9, {0: 0}))
    with pytest.raises(ValueError, match="no leader epochs"):
        log.take(metadata(S1, 0, 9, {}))
    for fields in (metadata(S1, 0, 9, {0: 0}), update(S0, SegmentState.COPY_SEGMENT_FINISHED)):
        with pytest.raises(ValueError, match="9 is not a valid SegmentState"):
            log.take({**fields, "remoteLogSegmentState": 9})
