"""Compares the estimate of `cordwood clean --dry-run` with what `--exact` measures.

Every run is a new process, from a shell, on the same log, whose files are in the page cache: the
seconds of each whole command, the memory of all its processes, and by how much the estimate misses
what was measured. The logs are those of `support.key_distributions`.

usage: bench_estimate.py [--quick] [--logs NAME,...] [--turns N] [--json FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measure
from command import parser_of, write_figures
from log_rows import HEADING, Row, print_markdown
from support.key_distributions import DISTRIBUTIONS
from support.log_builder import NOW_MS, write_log_dir

_LOGS = ("many keys", "few keys", "sizes by key", "lz4", "zstd")
_RECORDS = 2_500_000  # some 300 MB, if they are not compressed
_QUICK_RECORDS = 20_000
_SECONDS_MAX = 600
_OPTIONS = (
    "--dry-run", "--json", "--defaults", "--force", "--now", str(NOW_MS),
    "--set", "t:cleanup.policy=compact", "--set", "t:delete.retention.ms=86400000",
)  # fmt: skip


def run(root: Path, *options: str) -> tuple[float, dict[str, Any], int]:
    """One command: its seconds, the partition of its report, the most memory of its processes."""
    command = [sys.executable, "-m", "cordwood", "clean", str(root), *_OPTIONS, *options]
    peaks = measure.Peaks()
    started = time.monotonic()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        measure.sampling(peaks)(process.pid),
    ):
        output, _ = process.communicate(timeout=_SECONDS_MAX)
    seconds = time.monotonic() - started
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    (partition,) = json.loads(output)["partitions"]
    return seconds, partition, peaks.together


def measured(root: Path, name: str, *, records: int, turns: int) -> Row:
    """The row of one log."""
    log = DISTRIBUTIONS[name].log("t-0", records=records, seed=1)
    write_log_dir(root, [log])
    size = sum(segment.size_bytes for segment in log.segments)
    del log
    row = Row(what=f"estimate, {name}, {size / 1e6:,.0f} MB", unit="s", other_name="--exact")
    for turn in range(turns):
        sides = [(), ("--exact",)] if turn % 2 == 0 else [("--exact",), ()]
        found = {options: run(root, *options) for options in sides}
        (ours, estimated, memory), (theirs, exact, their_memory) = found[()], found["--exact",]
        row.ours.append(ours)
        row.other.append(theirs)
        freed = exact["bytes_before"] - exact["bytes_after"]
        error = estimated["estimate"]["bytes_freed"] / freed - 1
        row.detail.setdefault("errors", []).append(error)
        row.detail["memory"] = [memory, their_memory]
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="1 GB is free", turns="by default 3")
    parser.add_argument("--logs", default=",".join(_LOGS), metavar="NAME,...")
    options = parser.parse_args(arguments)
    target = options.json or measure.results_file("estimate-")
    turns = options.turns or (1 if options.quick else 3)
    rows: list[Row] = []
    print(HEADING)
    for name in options.logs.split(","):
        with tempfile.TemporaryDirectory(prefix="bench-estimate-", dir=options.work_dir) as work:
            records = _QUICK_RECORDS if options.quick else _RECORDS
            row = measured(Path(work) / "logs", name, records=records, turns=turns)
        rows.append(row)
        worst = max(row.detail["errors"], key=abs)
        ours, theirs = (each / 1e6 for each in row.detail["memory"])
        print(
            row.line(), f" error {worst:+.2%}, memory {ours:,.0f} and {theirs:,.0f} MB", flush=True
        )
    write_figures(target, rows=[row.document() for row in rows])
    print_markdown(rows)
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
