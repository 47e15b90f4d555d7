"""Compares cordwood.cleaner.order=freed with Kafka's order: bytes read, and bytes freed.

Both orders compact the same logs, in one run: those of `support.skewed_logs`, of which the dirty
ratio says little. What is read counts all reads of files, those of the estimates included; what is
freed is by how much the logs got smaller. Bytes are counted and nothing is timed, so there is one
turn.

usage: bench_order.py [--quick] [--json FILE]
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import measure
from command import parser_of, write_figures
from cordwood.cleanup.plan.request import CleaningOrder
from support.skewed_logs import Step, bytes_read_for, clean_in_order, write_skewed_logs

_RECORDS = 100_000  # some 12 MB a log
_QUICK_RECORDS = 6_000
_SHARES = (0.5, 0.8, 0.95)
_SHARE, _READ_MAX = 0.8, 0.6


def compared(work: Path, *, records: int) -> dict[CleaningOrder, list[Step]]:
    """Measures each order."""
    write_skewed_logs(work / "logs", records=records)
    found = {}
    for order in CleaningOrder:
        shutil.copytree(work / "logs", work / order)
        found[order] = clean_in_order(work / order, order)
        shutil.rmtree(work / order)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="1 GB is free")
    options = parser.parse_args(arguments)
    target = options.json or measure.results_file("order-")
    with tempfile.TemporaryDirectory(prefix="bench-order-", dir=options.work_dir) as work:
        records = _QUICK_RECORDS if options.quick else _RECORDS
        found = compared(Path(work), records=records)
    for order, steps in found.items():
        print(f"{order}: {', '.join(step.name for step in steps)}")
    ours, theirs = found[CleaningOrder.FREED], found[CleaningOrder.RATIO]
    assert ours[-1].bytes_freed == theirs[-1].bytes_freed, "both free the same in the end"
    rows = [
        (share, bytes_read_for(share, ours), bytes_read_for(share, theirs)) for share in _SHARES
    ]
    print(
        "for benchmarks/README.md:", "| freed | `freed` reads | `ratio` reads | ratio |", sep="\n"
    )
    print("| --- | --- | --- | --- |")
    for share, our_bytes, their_bytes in rows:
        print(
            f"| {share:.0%} of {ours[-1].bytes_freed / 1e6:,.1f} MB | {our_bytes / 1e6:,.1f} MB | "
            f"{their_bytes / 1e6:,.1f} MB | {our_bytes / their_bytes:.2f} |"
        )
    write_figures(
        target,
        rows=[{"share": s, "freed": a, "ratio": b} for s, a, b in rows],
        steps={order: [asdict(step) for step in steps] for order, steps in found.items()},
    )
    print(f"written to {target}")
    is_met = bytes_read_for(_SHARE, ours) <= _READ_MAX * bytes_read_for(_SHARE, theirs)
    print(f"target: {_SHARE:.0%} freed with at most {_READ_MAX:.0%} of the reads: "
          f"{'met' if is_met else 'MISSED'}")  # fmt: skip
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
