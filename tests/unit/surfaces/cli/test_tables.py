"""Tables: names are whole, whatever the width."""

from __future__ import annotations

import pytest

from cordwood.surfaces.cli.tables import Column, table_lines

COLUMNS = (Column("partition"), Column("bytes", is_number=True), Column("why", is_prose=True))
LONG_NAME = "a" * 249 + "-0"
WHY = "its dirty ratio 0.91 is above min.cleanable.dirty.ratio 0.5, so that it is cleaned next"


def test_without_a_terminal_each_row_is_one_line_however_long() -> None:
    lines = table_lines("T", COLUMNS, [[LONG_NAME, "7", WHY * 5]], width=None)
    assert lines[0] == "T"
    assert lines[2:] == [f"{LONG_NAME}      7  {WHY * 5}"]
    assert len(lines) == 3


def test_a_table_that_fits_is_left_as_it_is() -> None:
    assert table_lines("T", COLUMNS, [["orders-0", "12", "due"], ["u-0", "7", ""]], width=40) == [
        "T",
        "partition  bytes  why",
        "─────────────────────",
        "orders-0      12  due",
        "u-0            7",
    ]


def test_prose_is_wrapped_before_anything_else_gives_way() -> None:
    lines = table_lines("T", COLUMNS, [["orders-0", "7", WHY]], width=60)
    assert all(len(line) <= 60 for line in lines)
    assert lines[3].startswith("orders-0       7  its dirty ratio")
    assert " ".join(" ".join(lines[3:]).split()[2:]) == WHY


@pytest.mark.parametrize("width", [20, 40, 60, 80])
@pytest.mark.parametrize("length", [1, 30, 60, 249])
def test_a_name_is_whole_at_any_width(width: int, length: int) -> None:
    names = ["n" * length + "-0", "m" * length + "-1"]
    lines = table_lines("T", COLUMNS, [[name, "123456", WHY] for name in names], width=width)
    for name in names:
        assert [line for line in lines if line.split() and line.split()[0] == name], lines
    assert not any("…" in line for line in lines)


def test_a_name_that_leaves_no_room_gets_a_line_of_its_own() -> None:
    assert table_lines("T", COLUMNS, [["n" * 30, "7", "due"]], width=35) == [
        "T",
        "partition",
        "  bytes  why",
        "─" * 35,
        "n" * 30,
        "      7  due",
    ]
