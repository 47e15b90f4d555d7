"""Lists of many things: the first rows by what matters, one row for the rest, and one for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import typer

from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.tables import Column, print_table

TOP: Final = 20

TopOption = Annotated[
    int, typer.Option("--top", metavar="N", help="Show so many rows; the rest is summed up.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Show every row.")]

T = TypeVar("T")


def sort_option(what: str, keys: Sequence[str]) -> Any:
    """The option by which of some keys things are sorted; a choice is made of it."""
    return typer.Option("--sort", metavar="KEY", help=f"Sort {what} by {', '.join(keys)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Selection and order of rows: `sort` is the name of a key; `top` None for all."""

    sort: str
    top: int | None = TOP

    @classmethod
    def of(cls, sort: str, top: int, *, shows_all: bool, keys: Sequence[str]) -> Choice:
        """The choice that --sort, --top and --all make.

        Raises:
            ConfigError: `sort` is none of `keys`, or `top` is negative.
        """
        if sort not in keys:
            raise ConfigError(f"--sort {sort}: expected one of {', '.join(keys)}")
        if top < 0:
            raise ConfigError(f"--top {top}: expected 0 or more")
        return cls(sort=sort, top=None if shows_all else top)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(Generic[T]):
    """A column: its text for one item, or for several if it `is_summed`."""

    column: Column
    text: Callable[[Sequence[T]], str]
    is_summed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """Form of a list of things.

    `heading` is the title of the first column, which `name` gives; `keys` is what they are sorted
    by, the largest first; `order` says so in the title, where not by the name of the key.
    """

    heading: str
    name: Callable[[T], str]
    keys: dict[str, Callable[[T], float]]
    measures: Sequence[Measure[T]]
    order: str = ""

    def show(self, title: str, items: Sequence[T], choice: Choice) -> None:
        """Prints the rows that are chosen; the row of the total is the sum of all others."""
        shown, rest = self.split(items, choice)
        rows = [[self.name(each), *self._cells([each], is_one=True)] for each in shown]
        if rest:
            rows.append([f"{len(rest):,} more", *self._cells(rest)])
        if len(items) > 1:
            rows.append(["total", *self._cells(items)])
        order = "" if len(items) < 2 else self.order or f" by {choice.sort}"
        hint = f" ({len(shown):,} of {len(items):,}; --all shows all)" if rest else ""
        columns = [Column(self.heading), *(each.column for each in self.measures)]
        print_table(f"{title}{order}{hint}", columns, rows)

    def split(self, items: Sequence[T], choice: Choice) -> tuple[list[T], list[T]]:
        """The items that have a row, in order, and the rest."""
        by_name = sorted(items, key=self.name)
        key = self.keys.get(choice.sort)
        ordered = by_name if key is None else sorted(by_name, key=key, reverse=True)
        count = len(ordered) if choice.top is None else choice.top
        return ordered[:count], ordered[count:]

    def _cells(self, items: Sequence[T], *, is_one: bool = False) -> list[str]:
        return [each.text(items) if is_one or each.is_summed else "" for each in self.measures]
