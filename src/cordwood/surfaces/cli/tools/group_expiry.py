"""Forecast of the expiry of committed offsets: `cordwood consumer-groups --describe --expiry`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from cordwood.client.cluster_client import ClusterClient
from cordwood.queries.group_expiry import GroupExpiry, expiry_of
from cordwood.surfaces.cli.tools.tool import Terminal

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
    header = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "EXPIRES", "REASON")
    rows = [header]
    for each in expiry.offsets:
        moment = _NEVER if each.expires is None else _shown(each.expires)
        numbers = (str(each.partition), str(each.current_offset))
        rows.append((expiry.group, each.topic, *numbers, moment, each.reason))
    widths = [max(15, *(len(row[column]) for row in rows)) for column in range(len(header) - 1)]
    for number, row in enumerate(rows):
        cells = " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        terminal.line(("\n" if number == 0 else "") + f"{cells} {row[-1]}")


def _shown(timestamp_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
