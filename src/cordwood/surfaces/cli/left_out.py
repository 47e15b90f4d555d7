"""What an answer about log directories says beside its tables: warnings, and what is not in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cordwood.cleanup.report import PartitionReport, Status
from cordwood.surfaces.cli.screen import Screen

Value = dict[str, Any]

LEFT_ALONE: Final = "left_alone"
FAILED: Final = "failed"
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
    """A line for each warning of an answer, and for each partition that is not in it."""
    for warning in answer.get("warnings", ()):
        screen.line(f"warning: {warning}", style="yellow")
    for kind, status, style in _KINDS:
        for each in answer.get(kind, ()):
            name = f"{each['topic']}-{each['partition']}"
            screen.line(f"{name}: {status}: {each['reason']}", style=style)
