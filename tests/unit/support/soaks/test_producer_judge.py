"""Complaints of the soak of transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from support.soaks.producer_judge import NO_OFFSET, Judge, Plan, Report, Row, Seen

PLAN = Plan(counts={0: 2, 1: 1}, keys=[7])
FIRST = {0: [Seen("p", 1, 0), Seen("p", 1, 1)], 1: [Seen("p", 1, 0)]}
TABLE = [Row("p", 7, 1)]
NOTHING: dict[int, list[Seen]] = {0: [], 1: []}


def complaints(
    kinds: Sequence[tuple[str, int]],
    read: Mapping[int, Sequence[Seen]],
    table: Sequence[Row],
    offset: int,
) -> list[str]:
    """Of reports of producer p: kind and number."""
    judge = Judge()
    for kind, number in kinds:
        judge.take(Report(kind, "p", number, PLAN if kind == "begin" else None))
    return judge.complaints(read, table, {"p": offset})


COMMITTED = [("begin", 1), ("committed", 1)]
ABORTED = [("begin", 1), ("aborted", 1)]


def test_what_is_committed_is_there_and_what_is_aborted_is_not() -> None:
    assert complaints(COMMITTED, FIRST, TABLE, 1) == []
    assert complaints(ABORTED, NOTHING, [], NO_OFFSET) == []
    later = [*COMMITTED, ("begin", 2), ("aborted", 2)]
    assert complaints(later, FIRST, TABLE, 1) == []


def test_an_open_transaction_is_whole_or_not_there_as_its_offset_says() -> None:
    begun = [("begin", 1)]
    assert complaints(begun, FIRST, TABLE, 1) == []
    assert complaints(begun, NOTHING, [], NO_OFFSET) == []
    assert complaints([*begun, ("found", 1)], FIRST, TABLE, 1) == []
    assert complaints([*begun, ("found", NO_OFFSET)], NOTHING, [], NO_OFFSET) == []
    assert complaints(begun, NOTHING, [], 1)
    assert complaints(begun, FIRST, TABLE, NO_OFFSET)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({**FIRST, 0: FIRST[0][:1]}, "has [0] of 2 records"),
        ({**FIRST, 1: []}, "has [] of 1 records"),
        (NOTHING, "has [] of 2 records"),
        ({**FIRST, 1: FIRST[1] * 2}, "is there twice"),
        ({**FIRST, 0: FIRST[0][::-1]}, "comes after"),
        ({**FIRST, 0: [*FIRST[0], Seen("p", 9, 0)]}, "is not committed"),
    ],
    ids=["a lost record", "half", "nothing", "twice", "order", "of no transaction"],
)
def test_a_committed_transaction_that_is_not_there_once_and_whole_is_wrong(
    read: Mapping[int, Sequence[Seen]], words: str
) -> None:
    assert any(words in each for each in complaints(COMMITTED, read, TABLE, 1))


def test_an_aborted_record_that_can_be_read_is_wrong() -> None:
    (said,) = complaints(ABORTED, {0: FIRST[0][:1]}, [], NO_OFFSET)
    assert "is not committed, and can be read" in said
    assert any("is not committed" in each for each in complaints(ABORTED, NOTHING, TABLE, -1))


@pytest.mark.parametrize(
    ("kinds", "offset"),
    [
        (COMMITTED, NO_OFFSET),
        ([*COMMITTED, ("begin", 2), ("aborted", 2)], 2),
        ([*COMMITTED, ("found", 0)], 1),
    ],
    ids=["lost", "of an aborted one", "lost for a while"],
)
def test_an_offset_that_does_not_follow_its_transaction_is_wrong(
    kinds: Sequence[tuple[str, int]], offset: int
) -> None:
    (said,) = complaints(kinds, FIRST, TABLE, offset)
    assert "the group has offset" in said


def test_the_newest_committed_record_of_a_key_has_to_be_in_the_table() -> None:
    both = [*COMMITTED, ("begin", 2), ("committed", 2)]
    read = {
        0: [*FIRST[0], Seen("p", 2, 0), Seen("p", 2, 1)],
        1: [*FIRST[1], Seen("p", 2, 0)],
    }
    newest = [Row("p", 7, 2)]
    assert complaints(both, read, newest, 2) == []
    assert complaints(both, read, [*TABLE, *newest], 2) == []
    for wrong in ([], TABLE, [*newest, *TABLE], [*newest, *newest]):
        assert complaints(both, read, wrong, 2), wrong
