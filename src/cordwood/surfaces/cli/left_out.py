"""What an answer about log directories says beside its tables: warnings, and what is not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.cleanup.schedule.report import PartitionReport, Status
from cordwood.surfaces.cli.screen import Screen

Value = Mapping[str, Any]

LEFT_ALONE: Final = "left_alone"
FAILED: Final = "failed"
#: More partitions of which the same is said share a line.
_NAMES_MAX: Final = 3
_KINDS: Final = ((LEFT_ALONE, Status.LEFT_ALONE, None), (FAILED, Status.FAILED, "red"))


def left_out(partitions: Sequence[PartitionReport]) -> dict[str, list[Value]]:
    """The partitions that were not read, with the reason: those left alone, and those failed."""
    return {
        kind: [
            {"topic": p.topic, "partition": p.partition, "reason": p.reason}
            for p in partitions
            if p.status is status
        ]
        for kind, status, _ in _KINDS
    }


def partition_name(partition: Value) -> str:
    """The name of a partition of a document."""
    return f"{partition['topic']}-{partition['partition']}"


def in_use_line(log_dir: str, pid: int) -> str:
    """What is said of a directory that another process uses."""
    return (
        f"process {pid} uses {log_dir}, a running broker or a cleaning: this is a snapshot of its "
        "files at one moment"
    )


def show_in_use(in_use: Sequence[Value], screen: Screen) -> None:
    """Says which directories other processes use."""
    for each in in_use:
        screen.line(in_use_line(each["log_dir"], each["pid"]), style="yellow")


def show_left_out(answer: Value, screen: Screen) -> None:
    """Says what is in use, each warning of an answer, and what partitions are not in it."""
    show_in_use(answer.get("in_use", ()), screen)
    for warning in answer.get("warnings", ()):
        screen.line(f"warning: {warning}", style="yellow")
    for kind, status, style in _KINDS:
        found = [
            (partition_name(each), f"{status}: {each['reason']}") for each in answer.get(kind, ())
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
