"""Tables as kafka-transactions prints them.

Source: org.apache.kafka.tools.ToolsUtils.prettyPrintTable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordwood.model.documents import keys_of, to_document
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import Terminal


def show_rows(kind: Any, rows: Sequence[Any], options: Options, terminal: Terminal) -> None:
    """Prints answers of a dataclass as a table, whose columns are its keys; or as JSON."""
    if options.has("json"):
        terminal.document(rows)
        return
    keys = keys_of(kind)
    documents = [to_document(each) for each in rows]
    table = [
        [column_name(key) for key in keys],
        *([str(document[key]) for key in keys] for document in documents),
    ]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(keys))]
    for cells in table:
        terminal.line(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(cells, widths, strict=True))
        )


def column_name(key: str) -> str:
    """The heading of a key: `nodeId` is `NodeId`."""
    return key[0].upper() + key[1:]
