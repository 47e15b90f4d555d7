"""Tables of `cordwood trash`: removals and deleted topics."""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.storage.trash_contents import TrashedTopic, TrashEntry
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, iso_moment

_COLUMNS = (
    Column("what"),
    Column("removed"),
    Column("by"),
    Column("segments", is_number=True),
    Column("offsets", is_number=True),
    Column("size", is_number=True),
    Column("kept until"),
)


def print_removals(title: str, removals: Sequence[TrashEntry]) -> None:
    """Prints a table of removals of segments and of deleted topics."""
    if removals:
        print_table(title, _COLUMNS, [_row(each) for each in removals])


def print_total(removals: Sequence[TrashEntry]) -> None:
    """Prints how many removals that are, and their bytes."""
    total = format_bytes(sum(each.bytes for each in removals))
    print_text(counted(len(removals), "removal") + (f", {total}" if removals else ""))


def _row(removal: TrashEntry) -> list[str]:
    facts = [iso_moment(removal.at_ms), removal.why]
    kept_until = "" if removal.expires_ms is None else iso_moment(removal.expires_ms)
    tail = [format_bytes(removal.bytes), kept_until]
    broker = "" if removal.node_id is None else f" on broker {removal.node_id}"
    if isinstance(removal, TrashedTopic):
        return [removal.topic + broker, *facts, "", "", *tail]
    offsets = f"{removal.base_offset}-{removal.end_offset - 1}"
    return [removal.partition + broker, *facts, str(len(removal.segments)), offsets, *tail]
