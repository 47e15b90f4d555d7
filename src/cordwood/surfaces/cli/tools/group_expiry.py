"""Forecast of the expiry of committed offsets: `cordwood consumer-groups --describe --expiry`."""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.cluster_client import ClusterClient
from cordwood.queries.group_expiry import GroupExpiry, expiry_of
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.surfaces.cli.values import iso_moment

_NEVER = "-"


def show_expiry(
    cluster: ClusterClient, group_ids: Sequence[str], terminal: Terminal, *, as_json: bool
) -> None:
    """Shows for each offset of the groups when it expires if nothing changes, and why.

    Raises:
        RefusedError: a group is not there; then nothing is shown.
    """
    found = [expiry_of(cluster, group_id) for group_id in sorted(set(group_ids))]
    if as_json:
        terminal.document(found)
        return
    for each in found:
        _show(each, terminal)


def _show(expiry: GroupExpiry, terminal: Terminal) -> None:
    # Kafka's tables, which all other actions of the tool print, need no Rich.
    from cordwood.surfaces.cli.tables import (  # noqa: PLC0415
        Column,
        output_width,
        table_lines,
    )

    columns = (
        *(Column(title) for title in ("GROUP", "TOPIC")),
        *(Column(title, is_number=True) for title in ("PARTITION", "CURRENT-OFFSET")),
        Column("EXPIRES"),
        Column("REASON", is_prose=True),
    )
    rows = []
    for each in expiry.offsets:
        moment = _NEVER if each.expires is None else iso_moment(each.expires)
        numbers = (str(each.partition), str(each.current_offset))
        rows.append((expiry.group, each.topic, *numbers, moment, each.reason))
    for line in ("", *table_lines("", columns, rows, width=output_width())):
        terminal.line(line)
