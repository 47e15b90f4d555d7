"""The summary of `cordwood explain`: what goes and when, and a row for each of the largest logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import typer

from cordwood.queries.explain.answer import (
    Explanation,
    Outlook,
    SegmentsByReason,
    When,
    log_name,
)
from cordwood.queries.explain.outlook import outlook
from cordwood.surfaces.cli.biggest import Choice, Listing, Measure
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.values import counted, format_bytes

#: What --sort takes.
SORTS: Final = ("size", "now", "24h", "name")
_WHEN: Final = {
    When.NOW: "goes now",
    When.DAY: "in 24 h",
    When.LATER: "later",
    When.STAYS: "stays",
}
#: The title of the column that has what is left when a day has passed: what goes later or never.
LEFT: Final = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A partition, and what goes of it."""

    name: str
    policy: str
    outlook: Outlook

    def bytes(self, *parts: When) -> int:
        """The bytes of some of its parts; of all without any."""
        return sum(self.outlook.part(each).bytes for each in parts or When)

    @property
    def why(self) -> str:
        """Why most of what is left after a day stays; empty where nothing is left."""
        found = [
            (part.bytes, reason)
            for when in (When.STAYS, When.LATER)
            for reason, part in self.outlook.part(when).reasons.items()
        ]
        return max(found)[1] if found else ""


def logs_of(answer: Explanation) -> list[Log]:
    """The partitions of an answer."""
    return [
        Log(
            name=log_name(each),
            policy=each.policy,
            outlook=outlook([each], now_ms=answer.now_ms),
        )
        for each in answer.partitions
    ]


def show_summary(answer: Explanation, choice: Choice) -> None:
    """Prints what goes and when, and the largest partitions."""
    found = outlook(answer.partitions, now_ms=answer.now_ms)
    counts = [counted(found.partitions, "partition"), counted(found.segments, "segment")]
    show_outlook(", ".join([*counts, format_bytes(found.bytes)]), found)
    typer.echo()
    LISTING.show("Partitions", logs_of(answer), choice)


def show_outlook(title: str, found: Outlook) -> None:
    """Prints what goes and when, with the reasons."""
    rows = [[name, *_cells(found.part(when))] for when, name in _WHEN.items()]
    rows.append(["total", format_bytes(found.bytes), f"{found.segments:,}", ""])
    columns = (
        Column("retention"),
        Column("size", is_number=True),
        Column("segments", is_number=True),
        Column("why", is_prose=True),
    )
    print_table(title, columns, rows)


def _cells(part: SegmentsByReason) -> list[str]:
    reasons = sorted(part.reasons.items(), key=lambda each: -each[1].bytes)
    why = ", ".join(f"{reason} {format_bytes(each.bytes)}" for reason, each in reasons)
    return [format_bytes(part.bytes), f"{part.segments:,}", why]


def _bytes(title: str, *parts: When) -> Measure[Log]:
    def text(logs: Sequence[Log]) -> str:
        return format_bytes(sum(each.bytes(*parts) for each in logs))

    return Measure(column=Column(title, is_number=True), text=text)


LISTING: Final[Listing[Log]] = Listing(
    heading="partition",
    name=lambda log: log.name,
    keys={
        "size": lambda log: log.bytes(),
        "now": lambda log: log.bytes(When.NOW),
        "24h": lambda log: log.bytes(When.NOW, When.DAY),
    },
    measures=(
        Measure(
            column=Column("policy", is_optional=True),
            text=lambda logs: logs[0].policy,
            is_summed=False,
        ),
        Measure(
            column=Column("segments", is_number=True, is_optional=True),
            text=lambda logs: f"{sum(each.outlook.segments for each in logs):,}",
        ),
        _bytes("size"),
        _bytes("goes now", When.NOW),
        _bytes("in 24 h", When.DAY),
        _bytes(LEFT, When.LATER, When.STAYS),
        Measure(
            column=Column("most left by", is_prose=True),
            text=lambda logs: logs[0].why,
            is_summed=False,
        ),
    ),
)
