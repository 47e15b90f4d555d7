"""Complaints about copies that a client has made in transactions."""

from __future__ import annotations

import pytest

from support.soaks.copier import complaints_of_copies

SOURCE = {0: [b"a", b"b"], 1: [b"c"]}


@pytest.mark.parametrize("copies", [b"a b c", b"c a b", b"a c b"])
def test_the_records_of_each_partition_are_copied_in_their_order(copies: bytes) -> None:
    assert complaints_of_copies(SOURCE, [b"done " + each for each in copies.split()]) == []


@pytest.mark.parametrize(
    ("copies", "complaints"),
    [
        (b"a b", ["partition 1: record 0 was copied 0 times"]),
        (
            b"a b b c",
            [
                "partition 0: the copy of 1 comes after that of 1",
                "partition 0: record 1 was copied 2 times",
            ],
        ),
        (b"b a c", ["partition 0: the copy of 0 comes after that of 1"]),
        (b"a b c d", ["b'done d' is a copy of no record"]),
    ],
)
def test_what_is_lost_or_twice_or_out_of_order_is_reported(
    copies: bytes, complaints: list[str]
) -> None:
    assert complaints_of_copies(SOURCE, [b"done " + each for each in copies.split()]) == complaints
