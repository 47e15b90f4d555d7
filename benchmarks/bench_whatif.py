"""Compares the time that `cordwood whatif` says a cleaning takes with that of the cleaning.

Each turn is two new processes, from a shell, on copies of one log, whose files are in the page
cache: `whatif`, which measures without writing, and `clean` with the same settings. The ratio is
that of the cleaning's time to what was said.

usage: bench_whatif.py [--quick] [--turns N] [--json FILE]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measure
from command import parser_of, write_figures
from log_rows import HEADING, Row, print_markdown
from support.key_distributions import DISTRIBUTIONS
from support.log_builder import NOW_MS, write_log_dir

_LOGS = ("many keys", "few keys", "zstd")
_RECORDS = 2_500_000  # some 300 MB, if they are not compressed
_QUICK_RECORDS = 20_000
_SECONDS_MAX = 600
_SET = ("--set", "t:cleanup.policy=compact", "--defaults", "--now", str(NOW_MS), "--json")


def run(command: str, root: Path, *options: str) -> dict[str, Any]:
    """The document of one command."""
    arguments = [sys.executable, "-m", "cordwood", command, str(root), *_SET, *options]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stderr}"
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def measured(work: Path, name: str, *, records: int, turns: int) -> Row:
    """The row of one log: what is said, and what it takes."""
    root = work / "logs"
    log = DISTRIBUTIONS[name].log("t-0", records=records, seed=1)
    write_log_dir(root, [log])
    size = sum(segment.size_bytes for segment in log.segments)
    del log
    row = Row(what=f"whatif, {name}, {size / 1e6:,.0f} MB", unit="s", other_name="clean")
    for _ in range(turns):
        copy = shutil.copytree(root, work / "copy")
        said = run("whatif", root)["cleaning_s"]["then"]
        assert said is not None, "no compaction was due"
        row.ours.append(said)
        row.other.append(run("clean", copy)["timing_s"]["total"])
        shutil.rmtree(copy)
    shutil.rmtree(root)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="1 GB is free", turns="by default 3")
    options = parser.parse_args(arguments)
    target = options.json or measure.results_file("whatif-")
    turns = options.turns or (1 if options.quick else 3)
    rows: list[Row] = []
    print(HEADING)
    for name in _LOGS[-1:] if options.quick else _LOGS:
        with tempfile.TemporaryDirectory(prefix="bench-whatif-", dir=options.work_dir) as work:
            records = _QUICK_RECORDS if options.quick else _RECORDS
            rows.append(measured(Path(work), name, records=records, turns=turns))
        print(rows[-1].line(), flush=True)
    write_figures(target, rows=[row.document() for row in rows])
    print_markdown(rows, ours="said", other="cleaning")
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
