"""Tables and sentences: nothing is wider than the terminal, and no word is broken."""

from __future__ import annotations

import pytest

from cordwood.surfaces.cli.tables import Column, table_lines, text_lines

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
@pytest.mark.parametrize("length", [1, 17, 30, 60, 249])
def test_a_name_is_whole_if_the_terminal_has_space_for_it(width: int, length: int) -> None:
    names = ["n" * length + "-0", "m" * length + "-1"]
    lines = table_lines("T", COLUMNS, [[name, "123456", WHY] for name in names], width=width)
    assert all(len(line) <= width for line in lines)
    first_words = [line.split()[0] for line in lines if line.split()]
    for name in names:
        if len(name) <= width:
            assert name in first_words, lines
        else:
            (short,) = (word for word in first_words if word.startswith(name[0] + name[0]))
            head, tail = short.split("…")
            assert len(short) == width
            assert name.startswith(head)
            assert name.endswith(tail)
            assert tail.endswith(name[-2:])


def test_no_word_is_broken_where_there_is_space_for_it() -> None:
    columns = (Column("segment"), *(Column(each) for each in "abcd"), Column("why", is_prose=True))
    row = ["0 … 1050", *("2026-11-20 14:55:16Z" for _ in "abcd"), WHY]
    lines = table_lines("T", columns, [row], width=80)
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines[5:]).split()).endswith(WHY)


def test_a_column_that_may_be_left_out_is_where_the_table_does_not_fit() -> None:
    columns = (Column("name"), Column("policy", is_optional=True), Column("why"))
    rows = [["orders-0", "compact,delete", "dirty"]]
    assert "policy" in table_lines("T", columns, rows, width=40)[1]
    narrow = table_lines("T", columns, rows, width=20)
    assert narrow[1:] == ["name      why", "───────────────", "orders-0  dirty"]
    assert "policy" in table_lines("T", columns, rows, width=None)[1]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_sentence_is_wrapped_between_words(width: int) -> None:
    lines = text_lines(f"compaction: {WHY}", indent="  ", width=width)
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("  compaction:")
    assert all(line.startswith("    ") for line in lines[1:])
    if width > 30:
        assert " ".join(" ".join(lines).split()) == f"compaction: {WHY}"
    assert text_lines(WHY, width=None) == [WHY]


def test_a_name_that_leaves_no_room_gets_a_line_of_its_own() -> None:
    assert table_lines("T", COLUMNS, [["n" * 30, "7", "due"]], width=35) == [
        "T",
        "partition",
        "  bytes  why",
        "─" * 35,
        "n" * 30,
        "      7  due",
    ]
