"""Tables as kafka-transactions prints them.

Source: org.apache.kafka.tools.ToolsUtils.prettyPrintTable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import Terminal


def show_rows(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], options: Options, terminal: Terminal
) -> None:
    """Prints a table; with --json a list of objects, whose fields are named as the columns."""
    if options.has("json"):
        names = [header[0].lower() + header[1:] for header in headers]
        terminal.document([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(headers))]
    for cells in table:
        terminal.line(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(cells, widths, strict=True))
        )
