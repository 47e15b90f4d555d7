"""Tables of `cordwood trash`: removals and deleted topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cordwood.storage.broker_trash import TOPIC
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes

Value = dict[str, Any]

_COLUMNS = (
    Column("what"),
    Column("removed"),
    Column("by"),
    Column("segments", is_number=True),
    Column("offsets", is_number=True),
    Column("size", is_number=True),
    Column("kept until"),
)


def print_removals(title: str, removals: Sequence[Value]) -> None:
    """Prints a table of removals, as `removal_json` and `topic_json` describe them."""
    if removals:
        print_table(title, _COLUMNS, [_row(each) for each in removals])


def print_total(removals: Sequence[Value]) -> None:
    """Prints how many removals that are, and their bytes."""
    total = format_bytes(sum(each["bytes"] for each in removals))
    print_text(counted(len(removals), "removal") + (f", {total}" if removals else ""))


def _row(removal: Value) -> list[str]:
    expires_ms = removal["expires_ms"]
    facts = [_moment(removal["at_ms"]), removal["why"]]
    tail = [format_bytes(removal["bytes"]), "" if expires_ms is None else _moment(expires_ms)]
    if removal["why"] == TOPIC:
        return [removal["topic"], *facts, "", "", *tail]
    segments = str(len(removal["segments"]))
    offsets = f"{removal['base_offset']}-{removal['end_offset'] - 1}"
    return [removal["partition"], *facts, segments, offsets, *tail]


def _moment(ms: int) -> str:
    found = datetime.fromtimestamp(ms / 1000, UTC)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")
