"""A group's reports: what was not read, and offsets that went back, are found."""

from __future__ import annotations

from support.soaks.groups import Group
from support.soaks.ledger import Place

PLACE = Place("t", 0)


class Reports:
    """A group without members, which is given reports."""

    def __init__(self) -> None:
        self.group = Group("g", "127.0.0.1:1", ["t"], members=0, contiguous=True)

    def take(self, kind: str, *rest: int, at_s: float = 0.0) -> None:
        self.group.take([kind, at_s, [[PLACE.topic, PLACE.partition, *rest]]])

    def complaints(self, end: int, committed: int) -> list[str]:
        return self.group.complaints({PLACE: end}, {PLACE: committed})


def test_a_group_that_has_read_everything_is_in_order() -> None:
    reports = Reports()
    reports.take("processed", 0, 5)
    reports.take("processed", 3, 9)
    reports.take("committed", 9)
    assert reports.group.has_read({PLACE: 9})
    assert reports.complaints(9, 9) == []


def test_offsets_that_nobody_has_read_are_reported() -> None:
    reports = Reports()
    reports.take("processed", 0, 5)
    reports.take("processed", 7, 9)
    assert not reports.group.has_read({PLACE: 9})
    assert reports.complaints(10, 0) == [
        "group g: t-0: 5 to 7 were not read",
        "group g: t-0: 9 to 10 were not read",
    ]


def test_a_committed_offset_that_went_back_is_reported() -> None:
    reports = Reports()
    reports.take("processed", 0, 9)
    reports.take("committed", 9)
    assert "offset 9 was committed, and 5 is there" in reports.complaints(9, 5)[0]


def test_an_offset_below_one_that_was_accepted_before_it_was_asked_for_is_reported() -> None:
    reports = Reports()
    reports.take("processed", 0, 9)
    reports.take("assigned", -1001, at_s=1.0)
    reports.take("committed", 9, at_s=2.0)
    reports.take("assigned", 4, at_s=1.5)
    reports.take("assigned", 9, at_s=3.0)
    assert reports.complaints(9, 9) == []
    reports.take("assigned", 4, at_s=3.0)
    assert "9 went back to 4" in reports.complaints(9, 9)[0]


def test_a_gap_and_a_record_that_is_not_as_it_was_sent_are_reported() -> None:
    reports = Reports()
    reports.take("processed", 0, 9)
    reports.take("gap", 3, 5)
    reports.take("unsound", 4)
    assert len(reports.complaints(9, 9)) == 2
