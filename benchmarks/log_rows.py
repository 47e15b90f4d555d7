"""A line of the log benchmark's table: the figures of some turns, on one side or on two."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import measure

#: Units of which more is better; of all others, less is.
SPEEDS = {"MB/s", "1/s"}
# Processor time of others is counted in ticks: of a shorter turn it says nothing.
_COUNTED_S = 0.5
HEADING = (
    f"{'what':<58} {'unit':>5} {'ours':>10} {'other':>10}  {'':<9} {'ratio':>6}  {'target':<14} "
    f"{'other programs':>14}"
)


@dataclass(slots=True, kw_only=True)
class Row:
    """Measurements of one thing, turn by turn.

    `other_name` says what stands beside ours. The ratio says how many times as fast as that ours
    is; a target is a least ratio or, where there is no other side, a largest median.
    """

    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    other_name: str = ""
    other: list[float] = field(default_factory=list)
    ratio_min: float | None = None
    at_most: float | None = None
    others_cores: list[float] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each turn, in ascending order."""
        pairs = zip(self.ours, self.other, strict=False)
        return sorted(o / p if self.unit in SPEEDS else p / o for o, p in pairs)

    @property
    def ratio(self) -> float | None:
        """The median over turns."""
        return median(self.ratios) if self.ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        met = []
        if self.ratio_min is not None and self.ratio is not None:
            met.append(self.ratio >= self.ratio_min)
        if self.at_most is not None and self.ours:
            met.append(median(self.ours) <= self.at_most)
        return all(met) if met else None

    @property
    def target(self) -> str:
        """The target, in words."""
        wanted = []
        if self.ratio_min is not None and self.ratio is not None:
            wanted.append(f">= {self.ratio_min:g}x")
        if self.at_most is not None:
            wanted.append(f"<= {self.at_most:g}")
        met = self.is_met
        return " ".join(wanted) + {True: " yes", False: " NO", None: ""}[met]

    def line(self) -> str:
        """The row of the table."""
        other = _number(median(self.other)) if self.other else ""
        ratio = f"{self.ratio:.2f}" if self.ratio is not None else ""
        cores = f"{median(self.others_cores):.2f} cores" if self.others_cores else ""
        return (
            f"{self.what:<58} {self.unit:>5} {_number(median(self.ours)):>10} {other:>10}  "
            f"{self.other_name:<9} {ratio:>6}  {self.target:<14} {cores:>14}"
        ).rstrip()

    def markdown(self, label: str = "", *, ours_first: bool) -> str:
        """A row of a page's table: what, both sides in an order, the ratio and its spread."""
        sides = [f"{_number(median(each))} {self.unit}" for each in (self.ours, self.other) if each]
        if len(sides) < 2:
            sides.append("")
        if not ours_first:
            sides.reverse()
        ratio = "" if self.ratio is None else _number(self.ratio)
        if len(self.ratios) > 1:
            ratio += f" ({_number(self.ratios[0])} to {_number(self.ratios[-1])})"
        return f"| {label or self.what} | {' | '.join(sides)} | {ratio} |"

    def document(self) -> dict[str, Any]:
        """The row's JSON."""
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "other_name": self.other_name,
            "other": self.other,
            "ratio": self.ratio,
            "target": self.target,
            "others_cores": self.others_cores,
            **self.detail,
        }

    def turn(self, ours: Callable[[], float], other: Callable[[], float] | None = None) -> None:
        """Runs each side once; which goes first changes from turn to turn."""
        sides = [(self.ours, ours)] + ([(self.other, other)] if other is not None else [])
        if len(self.ours) % 2:
            sides.reverse()
        spent = measure.Spent()
        with measure.spent_by(os.getpid(), spent):
            for figures, run in sides:
                figures.append(run())
        if spent.wall >= _COUNTED_S:
            self.others_cores.append(spent.others_cores)


def print_markdown(
    rows: Sequence[Row], *, ours: str = "Cordwood", other: str = "beside it"
) -> None:
    """Prints the table of a page; `ours` and `other` head the columns of the sides."""
    print("for benchmarks/README.md:", f"| what | {ours} | {other} | ratio |", sep="\n")
    print("| --- | --- | --- | --- |", *(row.markdown(ours_first=True) for row in rows), sep="\n")


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"
