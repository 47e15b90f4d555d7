"""Lines beside the tables of an answer: warnings, and the partitions that are not in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cordwood.cleanup.plan.report import Status
from cordwood.queries.partitions import SkippedPartition, partition_name
from cordwood.storage.log_directory import InUse
from cordwood.surfaces.cli.screen import Screen

#: More things of which the same is said share a line, which names so many of them.
NAMES_MAX: Final = 3


def some_of(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    rest = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + rest


def in_use_line(in_use: InUse) -> str:
    """A directory that another process uses, in words."""
    return (
        f"process {in_use.pid} uses {in_use.log_dir}, a running broker or a cleaning: this is a "
        "snapshot of its files at one moment"
    )


def show_notes(
    screen: Screen,
    *,
    in_use: Sequence[InUse] | None = None,
    warnings: Sequence[str] | None = None,
    left_alone: Sequence[SkippedPartition] | None = None,
    failed: Sequence[SkippedPartition] | None = None,
) -> None:
    """Says which directories are in use, each warning, and which partitions an answer lacks."""
    for each in in_use or ():
        screen.line(in_use_line(each), style="yellow")
    for warning in warnings or ():
        screen.line(f"warning: {warning}", style="yellow")
    for status, partitions in ((Status.LEFT_ALONE, left_alone), (Status.FAILED, failed)):
        found = [(partition_name(each), f"{status}: {each.reason}") for each in partitions or ()]
        for line in grouped_lines(found):
            screen.line(line, style="red" if status is Status.FAILED else None)


def grouped_lines(texts: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each text about a name; many names with the same text share one.

    Args:
        texts: pairs of a name and what is said of it.
    """
    names: dict[str, list[str]] = {}
    for name, text in texts:
        names.setdefault(text, []).append(name)
    lines = []
    for text, found in names.items():
        named = found if len(found) <= NAMES_MAX else [some_of(found)]
        lines += [f"{name}: {text}" for name in named]
    return lines
