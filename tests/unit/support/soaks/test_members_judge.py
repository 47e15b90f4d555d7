"""Complaints of the soak of groups."""

from __future__ import annotations

from collections import Counter

import pytest

from support.soaks.members_judge import Judge, Place, Report

SESSION_S = 6.0
REBALANCE_S = 60.0
P0 = Place("group-0", 0)


def judge_of(*reports: tuple[int, str, float, int]) -> Judge:
    """After reports of group-0's partition 0: worker, kind, time, and offset."""
    judge = Judge(SESSION_S, REBALANCE_S)
    for worker, kind, at_s, offset in reports:
        judge.take(worker, Report(kind, at_s, "group-0", 0, offset))
    return judge


def test_partition_may_pass_from_one_to_the_next() -> None:
    judge = judge_of(
        (1, "assigned", 0, -1),
        (1, "committed", 1, 5),
        (1, "released", 2, -1),
        (2, "assigned", 2, -1),
        (2, "read", 2.1, 5),
    )
    assert judge.complaints({P0: 5}) == []
    assert judge.owners(1, 1) == {P0: 1}


@pytest.mark.parametrize(
    ("kind", "until_s", "since_s"),
    [("released", 9.0, 5.0), ("lost", 9.0, 5.0), ("released", None, 8.0)],
    ids=["released late", "lost before its session was over", "never released"],
)
def test_two_owners_are_wrong(kind: str, until_s: float | None, since_s: float) -> None:
    judge = judge_of((1, "assigned", 0, -1), (1, "committed", 1, 5), (2, "assigned", since_s, -1))
    if until_s is not None:
        judge.take(1, Report(kind, until_s, *P0, -1))
    assert [each for each in judge.complaints({P0: 5}) if "two owners" in each]


def test_member_that_has_timed_out_may_be_late_to_notice() -> None:
    judge = judge_of(
        (1, "assigned", 0, -1),
        (1, "committed", 1, 5),
        (2, "assigned", 8, -1),
        (1, "lost", 9, -1),
        (1, "assigned", 20, -1),
    )
    judge.end_worker(2, 19)
    assert judge.complaints({P0: 5}) == []


def test_member_that_has_timed_out_may_close_itself_before_it_notices() -> None:
    judge = judge_of(
        (1, "assigned", 0, -1),
        (1, "committed", 1, 5),
        (2, "assigned", 8, -1),
        (1, "released", 9, -1),
    )
    assert judge.complaints({P0: 5}) == []


@pytest.mark.parametrize("kind", ["lost", "released"])
def test_member_whose_commit_is_accepted_has_not_timed_out(kind: str) -> None:
    judge = judge_of(
        (1, "assigned", 0, -1),
        (2, "assigned", 8, -1),
        (1, "committed", 8.5, 6),
        (1, kind, 9, -1),
    )
    assert [each for each in judge.complaints({P0: 6}) if "two owners" in each]


@pytest.mark.parametrize(
    ("kind", "since_s", "committed_s", "is_wrong"),
    [
        ("lost", 62, 61.5, False),
        ("lost", 62, 62.2, True),
        ("lost", 40, 39.5, True),
        ("released", 62, 61.5, True),
    ],
    ids=["removed", "a commit is accepted", "in time", "not removed"],
)
def test_member_that_does_not_revoke_in_time_may_be_late_to_notice(
    kind: str, since_s: float, committed_s: float, is_wrong: bool
) -> None:
    judge = judge_of(
        (1, "assigned", 0, -1),
        (1, "committed", committed_s, 5),
        (2, "assigned", since_s, -1),
        (1, kind, since_s + 0.5, -1),
    )
    assert bool(judge.complaints({P0: 5})) is is_wrong


@pytest.mark.parametrize(("committed_s", "is_wrong"), [(1.0, False), (4.0, True), (8.5, True)])
def test_member_that_is_killed_before_it_notices_must_have_timed_out(
    committed_s: float, is_wrong: bool
) -> None:
    judge = judge_of((1, "assigned", 0, -1), (2, "assigned", 8, -1))
    judge.take(1, Report("committed", committed_s, *P0, 5))
    judge.end_worker(1, 9)
    assert bool(judge.complaints({P0: 5})) is is_wrong


def hung_while_leaving(*, next_s: float, commit_s: float | None = None) -> Judge:
    """The judge of a member that begins to leave at 2 s, is assigned once more, and then hangs."""
    judge = judge_of((1, "assigned", 0, -1), (1, "committed", 1, 5), (1, "released", 1.5, -1))
    judge.take(1, Report("leaving", 2, P0.group, -1, -1))
    judge.take(1, Report("assigned", 2.1, *P0, -1))
    judge.take(2, Report("assigned", next_s, *P0, -1))
    if commit_s is not None:
        judge.take(1, Report("committed", commit_s, *P0, 6))
    judge.end_worker(1, 122)
    return judge


def test_member_that_hangs_while_it_leaves_has_left() -> None:
    assert hung_while_leaving(next_s=3).complaints({P0: 5}) == []


def test_member_that_hangs_while_it_leaves_commits_no_more() -> None:
    judge = hung_while_leaving(next_s=3, commit_s=3.5)
    assert [each for each in judge.complaints({P0: 6}) if "two owners" in each]


def test_member_that_has_left_and_comes_back_is_an_owner_again() -> None:
    judge = judge_of((1, "assigned", 0, -1), (1, "leaving", 1, -1), (1, "released", 2, -1))
    judge.take(1, Report("left", 2, P0.group, -1, -1))
    judge.take(1, Report("assigned", 3, *P0, -1))
    judge.take(2, Report("assigned", 4, *P0, -1))
    judge.end_worker(1, 5)
    assert [each for each in judge.complaints({P0: -1}) if "two owners" in each]


def test_offsets_that_are_lost_or_go_back_are_wrong() -> None:
    judge = judge_of((1, "assigned", 0, -1), (1, "committed", 1, 5), (1, "read", 2, 4))
    assert judge.complaints({P0: 3}) == [
        f"{P0}: 5 was committed, then 4 was read",
        f"{P0}: 5 was committed, 3 is there at last",
    ]


def test_a_group_commits_since_a_moment_if_its_last_commit_was_accepted_then() -> None:
    judge = judge_of((1, "assigned", 0, -1), (1, "committed", 1, 5), (1, "committed", 3, 6))
    assert judge.committing_since(3) == {"group-0"}
    assert judge.committing_since(3.1) == set()


@pytest.mark.parametrize(
    ("at_s", "kind"),
    [(60.0, "stuck without a broker"), (80.0, "stuck")],
    ids=["soon", "long after"],
)
def test_client_that_hangs_is_the_brokers_doing_where_it_had_served(at_s: float, kind: str) -> None:
    judge = Judge(SESSION_S, REBALANCE_S)
    judge.take(1, Report("stuck", 1.0, *P0, -1))
    judge.served_since_s = 20.0
    judge.take(1, Report("stuck", at_s, *P0, -1))
    assert judge.counts == Counter(["stuck without a broker", kind])
