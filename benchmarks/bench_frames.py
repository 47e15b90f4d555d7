"""Compares full scans by `spark.read.format("cordwood")` with Spark's Kafka source, and Parquet.

The same records are read from a log directory, from a real Kafka that runs on a copy of it, and
from Parquet with Spark's defaults; each side has a session of its own, and the sums must agree.
Keys and timestamps are read, with and without values; the first scan of a session is a row of its
own. benchmarks/README.md says how to read the figures.

usage: bench_frames.py [--quick] [--mb N] [--partitions N] [--codec NAME] [--turns N] [--json FILE]
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import measure
from command import parser_of, write_figures
from cordwood.format.compression import Codec
from frames_side import Scan, Side
from log_data import clone
from log_rows import HEADING, Row, print_markdown
from loggen import Shape, generate
from support.kafka import RealKafka

_MB = 1500
_QUICK_MB = 2
_WHOLE_MB = 1500  # of the log that a `Shape` makes if nothing is said
#: Least ratios, of scans without values.
_RATIO_MIN = {"kafka": 5.0, "parquet": 0.5}
_NAMES = {"kafka": "Kafka", "parquet": "Parquet"}
_FIELDS = {False: "keys, timestamps", True: "keys, values, timestamps"}


class Bench:
    """The three sides, and the size of their log in MB."""

    def __init__(self, sides: dict[str, Side], megabytes: float) -> None:
        self._sides = sides
        self._megabytes = megabytes

    def first(self) -> list[Row]:
        """The first scan of each session."""
        return self._rows("first scan, keys, timestamps", values=False, turns=1)

    def warm(self, *, values: bool, turns: int) -> list[Row]:
        """Scans of sessions that have scanned before."""
        for side in self._sides.values():
            side.scan(values=values)
        rows = self._rows(_FIELDS[values], values=values, turns=turns)
        for row in rows:
            if not values:
                row.ratio_min = _RATIO_MIN[row.detail["side"]]
        return rows

    def _rows(self, what: str, *, values: bool, turns: int) -> list[Row]:
        rows = [
            Row(what=what, unit="MB/s", other_name=_NAMES[kind], detail={"side": kind})
            for kind in self._sides
            if kind in _NAMES
        ]
        for turn in range(turns):
            kinds = list(self._sides)
            kinds = kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]
            spent = measure.Spent()
            with measure.spent_by(os.getpid(), spent):
                scans = {kind: self._sides[kind].scan(values=values) for kind in kinds}
            _require_agreement(scans)
            for row in rows:
                row.ours.append(self._megabytes / scans["cordwood"].seconds)
                row.other.append(self._megabytes / scans[row.detail["side"]].seconds)
                row.others_cores.append(spent.others_cores)
        return rows


def _require_agreement(scans: dict[str, Scan]) -> None:
    sums = {kind: scan.sums for kind, scan in scans.items()}
    if any(each != sums["cordwood"] for each in sums.values()):
        raise RuntimeError(f"the sides have read different records: {sums}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="three times --mb is free", turns="by default 3")
    parser.add_argument(
        "--mb", type=int, default=None, help=f"before compression, by default {_MB}"
    )
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="none", choices=[each.config_name for each in Codec])
    options = parser.parse_args(arguments)
    target = options.json or measure.results_file("frames-")
    turns = options.turns or (1 if options.quick else 3)
    size_mb = options.mb or (_QUICK_MB if options.quick else _MB)
    whole = Shape(codec=options.codec, partitions=options.partitions)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-frames-", dir=options.work_dir) as work:
        log_dir, copy, parquet = (Path(work) / name for name in ("log", "copy", "parquet"))
        written = generate(log_dir, whole.scaled(size_mb / _WHOLE_MB))
        megabytes = sum(each.bytes for each in written) / 1e6
        clone(log_dir, copy)
        with Side("cordwood", log_dir) as writer:
            writer.write(parquet)
        os.sync()
        with ExitStack() as stack:
            kafka = stack.enter_context(RealKafka(Path(work) / "kafka", log_dirs=[copy]))
            kafka.start_without_cleaning()
            places: dict[str, str | Path] = {
                "cordwood": log_dir,
                "kafka": kafka.bootstrap_servers,
                "parquet": parquet,
            }
            sides = {kind: stack.enter_context(Side(kind, at)) for kind, at in places.items()}
            bench = Bench(sides, megabytes)
            print(
                f"{megabytes:,.0f} MB, {sum(each.records for each in written):,} records",
                HEADING,
                sep="\n",
            )
            for some in (
                bench.first(),
                bench.warm(values=False, turns=turns),
                bench.warm(values=True, turns=turns),
            ):
                rows += some
                print(*(row.line() for row in some), sep="\n", flush=True)
    write_figures(target, megabytes=megabytes, rows=[row.document() for row in rows])
    print_markdown(rows)
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
