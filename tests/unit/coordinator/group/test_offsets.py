"""Committed offsets in a timeline: reverted, and read as they are committed."""

from __future__ import annotations

import pytest

from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey, OffsetStore
from cordwood.coordinator.timeline import LATEST, Timeline

A, B = OffsetKey("g", "t", 0), OffsetKey("g", "u", 1)
PRODUCER = 7


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def offsets(timeline: Timeline) -> OffsetStore:
    store = OffsetStore(timeline)
    store.put(A, CommittedOffset(1, record_offset=0))
    return store


def seen(offsets: OffsetStore, at: int = LATEST) -> dict[OffsetKey, int]:
    found = {key: offset.offset for key, offset in offsets.of_group("g", at)}
    for key in (A, B):
        single = offsets.get(key, at)
        assert (None if single is None else single.offset) == found.get(key)
    return found


def test_reverted_change_leaves_offsets_and_their_count(
    offsets: OffsetStore, timeline: Timeline
) -> None:
    timeline.begin()
    offsets.put(A, CommittedOffset(2))
    offsets.put(B, CommittedOffset(3))
    offsets.remove(A)
    assert seen(offsets) == {B: 3}
    timeline.revert()
    assert seen(offsets) == {A: 1}
    assert len(offsets) == 1


def test_each_offset_of_the_log_has_its_own_view(offsets: OffsetStore, timeline: Timeline) -> None:
    for end_offset, value in ((10, 2), (20, 3)):
        timeline.begin()
        offsets.put(A, CommittedOffset(value))
        offsets.put(B, CommittedOffset(value))
        timeline.end(end_offset)
    timeline.begin()
    offsets.remove(A)
    timeline.end(30)
    assert [seen(offsets, at) for at in (5, 10, 20, 30)] == [
        {A: 1},
        {A: 2, B: 2},
        {A: 3, B: 3},
        {B: 3},
    ]
    timeline.commit(20)
    assert [seen(offsets, at) for at in (20, 30)] == [{A: 3, B: 3}, {B: 3}]
    timeline.commit(30)
    assert timeline.uncommitted_count == 0
    assert seen(offsets, 30) == {B: 3}


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_a_transaction_is_reverted_whole(
    offsets: OffsetStore, timeline: Timeline, *, commit: bool
) -> None:
    offsets.put_pending(PRODUCER, A, CommittedOffset(5, record_offset=9))
    timeline.begin()
    offsets.end_transaction(PRODUCER, commit=commit)
    assert seen(offsets) == {A: 5 if commit else 1}
    assert not offsets.is_pending(A)
    timeline.revert()
    assert seen(offsets) == {A: 1}
    assert offsets.is_pending(A)


def test_transactions_that_have_ended_are_forgotten(
    offsets: OffsetStore, timeline: Timeline
) -> None:
    for producer_id in range(5):
        for number, step in enumerate(("put", "end")):
            timeline.begin()
            if step == "put":
                offsets.put_pending(producer_id, B, CommittedOffset(producer_id, record_offset=9))
            else:
                offsets.end_transaction(producer_id, commit=False)
            end_offset = 2 * producer_id + number
            timeline.end(end_offset)
            timeline.commit(end_offset)
    assert len(offsets._pending) == 1  # the last one, until another begins


def test_settled_change_is_committed_and_notes_nothing_more(
    offsets: OffsetStore, timeline: Timeline
) -> None:
    timeline.begin()
    offsets.put(A, CommittedOffset(2))
    timeline.end(10)
    timeline.begin()
    offsets.put(A, CommittedOffset(3))
    timeline.settle()
    offsets.put(B, CommittedOffset(4))
    assert not timeline.is_changing
    assert timeline.uncommitted_count == 0
    assert seen(offsets, 5) == {A: 3, B: 4}


def test_offsets_are_compared_by_their_fields() -> None:
    offset = CommittedOffset(5, 1, "m", 2, 3, record_offset=4)
    assert offset == CommittedOffset(5, 1, "m", 2, 3).placed(4)
    assert hash(offset) == hash(CommittedOffset(5, 1, "m", 2, 3).placed(4))
    assert offset != offset.placed(5)
