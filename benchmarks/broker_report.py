"""What benchmarks of brokers print and write: rows as they come, and the targets missed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import measure
from log_rows import HEADING, Row


def report(measured: Iterable[Row], target: Path) -> list[Row]:
    """Prints each row when it was measured, and has all so far in the file; returns them."""
    rows: list[Row] = []
    print(HEADING)
    for row in measured:
        rows.append(row)
        print(row.line(), flush=True)
        document = {"machine": measure.machine(), "rows": [each.document() for each in rows]}
        target.write_text(json.dumps(document, indent=1))
    missed = [row.what for row in rows if row.is_met is False]
    print(f"targets missed: {', '.join(missed) or 'none'}")
    return rows


def print_table(rows: Iterable[Row]) -> None:
    """Prints the rows as benchmarks/README.md has them."""
    print("for benchmarks/README.md:", "| what | Cordwood | Kafka | ratio |", sep="\n")
    print("| --- | --- | --- | --- |")
    for row in rows:
        print(row.markdown(ours_first=True))
