"""Tables as lines of text. A partition's name is always whole.

On a terminal the table is made to fit: columns of prose are wrapped, and where that is not enough
each name gets a line of its own above its row. Anywhere else a row is one line, however long.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Console

_GAP = "  "
_INDENT = "  "
#: A column of prose that has fewer cells than this is not worth reading.
_PROSE_CELLS_MIN = 24


class Column(NamedTuple):
    """A column; `is_number` aligns it to the right, `is_prose` lets it wrap."""

    title: str
    is_number: bool = False
    is_prose: bool = False


def output_width() -> int | None:
    """The width of standard output in cells; None if it is not a terminal."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else None


def print_table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table to standard output."""
    for line in table_lines(title, columns, rows, width=output_width()):
        typer.echo(line)


def table_lines(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
) -> list[str]:
    """The lines of a table; the first column holds names.

    Args:
        title: its first line.
        columns: the columns, in the order of the cells.
        rows: the cells.
        width: the maximum width of a line in cells; None for no limit. Only a name or a number that
            is wider exceeds it.
    """
    widths = _widths(columns, rows)
    fitting = _fitted(columns, widths, width)
    if fitting is not None:
        body = [_line(columns, [each.title for each in columns], fitting)[0]]
        if width is not None:
            body.append("─" * (sum(fitting) + len(_GAP) * (len(fitting) - 1)))
        for row in rows:
            body += _line(columns, row, fitting)
        return [title, *body]
    assert width is not None, "any number of cells is enough"
    rest = columns[1:]
    tails = [row[1:] for row in rows]
    room = width - len(_INDENT)
    fitting = _fitted(rest, _widths(rest, tails), room) or _narrowest(rest, _widths(rest, tails))
    header = _line(rest, [each.title for each in rest], fitting)
    body = [columns[0].title, *(_INDENT + line for line in header), "─" * width]
    for row, tail in zip(rows, tails, strict=True):
        body += [row[0], *(_INDENT + line for line in _line(rest, tail, fitting))]
    return [title, *body]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    texts = [[each.title for each in columns], *rows]
    return [max(cell_len(row[place]) for row in texts) for place in range(len(columns))]


def _fitted(columns: Sequence[Column], widths: list[int], width: int | None) -> list[int] | None:
    """The column widths, with narrower prose if needed; None if the table does not fit."""
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width
    if excess <= 0:
        return widths
    fitted = list(widths)
    for place, column in enumerate(columns):
        if column.is_prose and excess > 0:
            taken = min(excess, max(0, fitted[place] - _PROSE_CELLS_MIN))
            fitted[place] -= taken
            excess -= taken
    return fitted if excess <= 0 else None


def _narrowest(columns: Sequence[Column], widths: list[int]) -> list[int]:
    return [
        min(cells, _PROSE_CELLS_MIN) if column.is_prose else cells
        for column, cells in zip(columns, widths, strict=True)
    ]


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row: several if prose is wrapped."""
    wrapped = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
        if column.is_prose and cell_len(cell) > width
        else [cell]
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = []
        for column, texts, width in zip(columns, wrapped, widths, strict=True):
            text = texts[number] if number < len(texts) else ""
            padding = " " * max(0, width - cell_len(text))
            parts.append(padding + text if column.is_number else text + padding)
        lines.append(_GAP.join(parts).rstrip())
    return lines
