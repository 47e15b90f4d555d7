"""Complaints of the soak of clusters."""

from __future__ import annotations

import pytest

from support.cluster_soak.judge import Judge, Outcome
from support.cluster_soak.replicas import Dump, difference

KEY = b"k"


def complaints(
    judge: Judge,
    numbers: list[tuple[int, int]] | None = None,
    transactions: list[bytes] | None = None,
    updates: dict[bytes, tuple[int, bytes | None]] | None = None,
) -> list[str]:
    """Complaints about what readers find in partition 0."""
    return judge.complaints({0: numbers or []}, {0: transactions or []}, {0: updates or {}})


@pytest.mark.parametrize(
    ("read", "is_right"),
    [
        ([(0, 1), (1, 2)], True),
        ([(0, 1)], False),
        ([(0, 1), (2, 2)], False),
        ([(0, 1), (1, 2), (2, 2)], False),
        ([(0, 2), (1, 1)], False),
    ],
    ids=["as acknowledged", "lost", "moved", "twice", "out of order"],
)
def test_acknowledged_numbers_are_where_they_were_acknowledged(
    read: list[tuple[int, int]], is_right: bool
) -> None:
    judge = Judge()
    judge.acknowledged(0, 0, 1)
    judge.acknowledged(0, 1, 2)
    assert (complaints(judge, read) == []) is is_right


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(Outcome.COMMITTED, {2}), (Outcome.ABORTED, {0}), (Outcome.UNKNOWN, {0, 2})],
)
def test_transactions_are_whole(outcome: Outcome, counts: set[int]) -> None:
    judge = Judge()
    judge.begun(5, 2)
    judge.ended(5, outcome)
    for count in range(3):
        read = [b"[5, %d]" % part for part in range(count)]
        assert (complaints(judge, transactions=read) == []) is (count in counts)


@pytest.mark.parametrize(
    ("there", "is_right"),
    [
        ((7, b"v"), True),
        ((8, b"newer"), True),
        ((6, b"v"), False),
        ((7, b"other"), False),
        (None, False),
    ],
)
def test_newest_value_of_a_key_stays(
    there: tuple[int, bytes | None] | None, is_right: bool
) -> None:
    judge = Judge()
    judge.updated(0, KEY, 7, b"v")
    found = complaints(judge, updates={} if there is None else {KEY: there})
    assert (found == []) is is_right


def test_updates_of_a_key_are_acknowledged_in_their_order() -> None:
    judge = Judge()
    judge.updated(0, KEY, 7, b"v")
    judge.updated(0, KEY, 6, b"w")
    assert len(complaints(judge, updates={KEY: (6, b"w")})) == 1


@pytest.mark.parametrize(("first", "is_right"), [(5, True), (6, True), (4, False)])
def test_member_begins_where_the_group_has_committed(first: int, is_right: bool) -> None:
    judge = Judge()
    judge.committed("g", 0, 5)
    judge.assigned("g", 0)
    judge.read("g", 0, first)
    judge.read("g", 0, 0)  # its own position: not the first read
    assert (complaints(judge) == []) is is_right


def test_group_reads_all_that_was_acknowledged() -> None:
    judge = Judge()
    judge.acknowledged(0, 0, 1)
    judge.acknowledged(0, 1, 2)
    judge.read("g", 0, 0)
    (missing,) = complaints(judge, [(0, 1), (1, 2)])
    assert "1 records of partition 0 were never read, the first at 1" in missing


def dump_of(*records: tuple[int, str, str]) -> Dump:
    found = Dump()
    for offset, key, value in records:
        found.batches[offset] = [f"{key}={value}"]
        found.records.setdefault(key, []).append((offset, value))
    return found


def test_replicas_may_differ_below_the_checkpoint_but_in_the_newest_values() -> None:
    whole = dump_of((0, "a", "1"), (1, "a", "2"), (2, "b", "3"))
    cleaned = dump_of((1, "a", "2"), (2, "b", "3"))
    assert difference({1: whole, 2: cleaned}, 0) != ""
    assert difference({1: whole, 2: cleaned}, 2) == ""
    assert difference({1: whole, 2: dump_of((1, "a", "2"), (2, "b", "4"))}, 2) != ""
    assert difference({1: whole, 2: dump_of((0, "a", "1"), (2, "b", "3"))}, 2) != ""
