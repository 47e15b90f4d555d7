"""What an answer about log directories says beside its tables: warnings, and what is not in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cordwood.cleanup.report import PartitionReport, Status
from cordwood.surfaces.cli.screen import Screen

Value = dict[str, Any]

LEFT_ALONE: Final = "left_alone"
FAILED: Final = "failed"
#: More partitions of which the same is said share a line.
_NAMES_MAX: Final = 3
_KINDS: Final = ((LEFT_ALONE, Status.LEFT_ALONE, None), (FAILED, Status.FAILED, "red"))


def left_out(partitions: Sequence[PartitionReport]) -> Value:
    """The partitions that were not read, with the reason: those left alone, and those failed."""
    return {
        kind: [
            {"topic": p.topic, "partition": p.partition, "reason": p.reason}
            for p in partitions
            if p.status is status
        ]
        for kind, status, _ in _KINDS
    }


def show_left_out(answer: Value, screen: Screen) -> None:
    """Says each warning of an answer, and what partitions are not in it."""
    for warning in answer.get("warnings", ()):
        screen.line(f"warning: {warning}", style="yellow")
    for kind, status, style in _KINDS:
        found = [
            (f"{each['topic']}-{each['partition']}", f"{status}: {each['reason']}")
            for each in answer.get(kind, ())
        ]
        for line in grouped_lines(found):
            screen.line(line, style=style)


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
        if len(found) <= _NAMES_MAX:
            lines += [f"{name}: {text}" for name in found]
        else:
            some = ", ".join(found[:_NAMES_MAX])
            lines.append(f"{some} and {len(found) - _NAMES_MAX:,} more: {text}")
    return lines
