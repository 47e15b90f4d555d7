"""Tables and sentences as lines of text.

On a terminal nothing is wider than it is, and no word is broken: columns that may be left out are,
prose is wrapped, and where that is not enough a row takes several lines, below a name that is whole
if the terminal has space for it. Anywhere else a row is one line, however long.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console

_GAP = "  "
_INDENT = "  "
#: A column of prose that has fewer cells than this is not worth reading.
_PROSE_CELLS_MIN = 24
#: A longer name has a line of its own where a row takes several.
_NAME_CELLS_MAX = 24
_ELLIPSIS = "…"


class Column(NamedTuple):
    """A column; `is_number` aligns it to the right, `is_prose` lets it wrap.

    One that `is_optional` is left out where the table does not fit the terminal.
    """

    title: str
    is_number: bool = False
    is_prose: bool = False
    is_optional: bool = False


def output_width() -> int | None:
    """The width of standard output in cells; None if it is not a terminal."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else None


def error_width() -> int | None:
    """The width of standard error in cells; None if it is not a terminal."""
    return Console(stderr=True).width if sys.stderr.isatty() else None


def print_table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table to standard output."""
    for line in table_lines(title, columns, rows, width=output_width()):
        typer.echo(line)


def print_text(text: str, *, indent: str = "") -> None:
    """Prints a sentence to standard output, each line after an indent."""
    for line in text_lines(text, indent=indent, width=output_width()):
        typer.echo(line)


def text_lines(text: str, *, indent: str = "", width: int | None) -> list[str]:
    """The lines of a sentence; those after the first are indented further.

    A word that is wider than a line is shortened in the middle.

    Args:
        text: one line of text, which may begin with spaces.
        indent: of all lines.
        width: the maximum width of a line in cells; None for no limit.
    """
    whole = indent + text
    if width is None or cell_len(whole) <= width:
        return [whole]
    first = indent + " " * (len(text) - len(text.lstrip()))
    rest = first + _INDENT
    room = max(1, width - len(rest))
    words = " ".join(shortened(word, room) for word in text.split())
    return textwrap.wrap(
        words,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shortened(name: str, cells: int) -> str:
    """A name in at most so many cells: its middle is left out."""
    if cell_len(name) <= cells:
        return name
    end = (cells - 1) // 2
    head = set_cell_size(name, cells - 1 - end)
    return head + _ELLIPSIS + (name[-end:] if end else "")


def table_lines(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
) -> list[str]:
    """The lines of a table; the first column holds names.

    Args:
        title: its first line; empty for none.
        columns: the columns, in the order of the cells.
        rows: the cells.
        width: the maximum width of a line in cells; None for no limit.
    """
    titles = text_lines(title, width=width) if title else []
    widths = _widths(columns, rows)
    fitting = _fitted(columns, widths, width)
    optional = [place for place, column in enumerate(columns) if column.is_optional]
    if fitting is None and optional:
        kept = [place for place in range(len(columns)) if place != optional[-1]]
        return table_lines(
            title,
            [columns[place] for place in kept],
            [[row[place] for place in kept] for row in rows],
            width=width,
        )
    if fitting is not None:
        body = [_line(columns, [each.title for each in columns], fitting)[0]]
        if width is not None:
            body.append("─" * (sum(fitting) + len(_GAP) * (len(fitting) - 1)))
        for row in rows:
            body += _line(columns, row, fitting)
        return [*titles, *body]
    assert width is not None, "any number of cells is enough"
    return [*titles, *_stacked(columns, rows, width)]


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table of which a row takes several: a long name has one of its own."""
    widths = _widths(columns, rows)
    room = width - len(_INDENT)
    beside = _fitted(columns[1:], widths[1:], room)
    parts = [list(range(1, len(columns)))]
    if beside is not None:
        widths = [widths[0], *beside]
    else:
        first = 0 if widths[0] <= min(_NAME_CELLS_MAX, room // 2) else 1
        widths = [min(cells, room) for cells in widths]
        parts = _parts(columns, widths, room, from_place=first)
    for number, row in enumerate([[each.title for each in columns], *rows]):
        if 0 not in parts[0]:
            yield shortened(row[0], width)
        for part in parts:
            indent = "" if 0 in part else _INDENT
            chosen = [columns[place] for place in part]
            cells = [row[place] for place in part]
            for line in _line(chosen, cells, [widths[place] for place in part]):
                if line:
                    yield indent + line
        if not number:
            yield "─" * width


def _parts(
    columns: Sequence[Column], widths: list[int], room: int, *, from_place: int
) -> list[list[int]]:
    """The columns that fit on one line together, line by line; prose takes what is left of one."""
    parts: list[list[int]] = [[]]
    left = room
    for place in range(from_place, len(widths)):
        gap = len(_GAP) if parts[-1] else 0
        if columns[place].is_prose and left - gap >= _PROSE_CELLS_MIN:
            widths[place] = min(widths[place], left - gap)
        if parts[-1] and gap + widths[place] > left:
            parts.append([])
            left, gap = room, 0
        parts[-1].append(place)
        left -= gap + widths[place]
    return parts


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


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row: several if a cell is wrapped."""
    wrapped = [
        _wrapped(cell, width, is_prose=column.is_prose)
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


def _wrapped(cell: str, width: int, *, is_prose: bool) -> list[str]:
    """A cell in lines of at most `width` cells; only prose has several."""
    if cell_len(cell) <= width:
        return [cell]
    if not is_prose:
        return [shortened(cell, width)]
    words = " ".join(shortened(word, width) for word in cell.split())
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)
