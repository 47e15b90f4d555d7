"""Measures the partition log beside the system's own calls and beside Apache Kafka.

Each line of the table is measured in several turns; where there are two sides, they take turns.
What is measured, and how to read the figures: benchmarks/README.md.

usage: bench_log.py [--quick] [--sections NAME,...] [--turns N] [--gb N] [--no-kafka] [--json FILE]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measure
from command import parser_of, write_figures
from log_append import append_rows, read_rows
from log_growth import retention_rows, segment_rows
from log_open import idle_rows, partition_rows, recovery_rows
from log_rows import HEADING, Row, print_markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    append_bytes: int = 256 << 20
    segments: tuple[int, ...] = (10, 100, 1_000, 10_000)
    targeted_segments: int = 1_000
    lookups: int = 100_000
    partitions: tuple[int, ...] = (100, 1_000, 10_000)
    retained_segments: int = 100_000
    recovered_bytes: int = 4 << 30
    turns: int = 5
    long_turns: int = 3


_QUICK = Sizes(
    append_bytes=8 << 20,
    segments=(5, 20),
    targeted_segments=20,
    lookups=500,
    partitions=(20,),
    retained_segments=400,
    recovered_bytes=16 << 20,
    turns=2,
    long_turns=1,
)


def sections(sizes: Sizes, *, kafka: bool) -> dict[str, Callable[[Path], Iterator[Row]]]:
    """The measurements, by name; each is given an empty directory."""

    def by_segments(work: Path) -> Iterator[Row]:
        for count in sizes.segments:
            yield from segment_rows(
                work,
                segments=count,
                lookups=sizes.lookups,
                turns=sizes.long_turns,
                has_target=count == sizes.targeted_segments,
            )

    def by_partitions(work: Path) -> Iterator[Row]:
        for count in sizes.partitions:
            yield from partition_rows(work, partitions=count, turns=sizes.long_turns, kafka=kafka)

    return {
        "idle": lambda _: idle_rows(),
        "append": lambda work: append_rows(work, size_bytes=sizes.append_bytes, turns=sizes.turns),
        "read": lambda work: read_rows(work, size_bytes=sizes.append_bytes, turns=sizes.turns),
        "segments": by_segments,
        "partitions": by_partitions,
        "recovery": lambda work: recovery_rows(
            work, size_bytes=sizes.recovered_bytes, turns=sizes.long_turns, kafka=kafka
        ),
        "retention": lambda work: retention_rows(
            work, segments=sizes.retained_segments, turns=sizes.long_turns
        ),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    names = list(sections(_QUICK, kafka=False))
    parser = parser_of(__doc__, free="25 GB are free", turns="by default 5, of long runs 3")
    parser.add_argument("--sections", default=",".join(names), help="by default %(default)s")
    parser.add_argument("--gb", type=float, default=None, help="what is recovered, by default 4.3")
    parser.add_argument("--no-kafka", action="store_true", help="without Kafka beside ours")
    options = parser.parse_args(arguments)
    chosen = options.sections.split(",")
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no such section: {unknown}; there are {names}")
    sizes = _sized(options)
    target = options.json or measure.results_file("log-")
    rows: list[Row] = []
    figures: list[dict[str, Any]] = []
    available = sections(sizes, kafka=not options.no_kafka)
    print(HEADING)
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.work_dir) as directory:
            for row in available[name](Path(directory)):
                rows.append(row)
                print(row.line(), flush=True)
                figures.append({"section": name, **row.document()})
                write_figures(target, quick=options.quick, rows=figures)
    show(rows)
    print(f"written to {target}")
    return 0


def _sized(options: argparse.Namespace) -> Sizes:
    sizes = _QUICK if options.quick else Sizes()
    if options.turns is not None:
        sizes = replace(sizes, turns=options.turns, long_turns=options.turns)
    if options.gb is not None:
        sizes = replace(sizes, recovered_bytes=int(options.gb * 1e9))
    return sizes


def show(rows: Sequence[Row]) -> None:
    """Prints details that the lines lack."""
    for row in rows:
        if "descriptors" in row.detail:
            print(
                f"{row.what}: resident {row.detail['resident_bytes'] / 1e6:.0f} MB "
                f"({row.detail['resident_before_bytes'] / 1e6:.0f} before), "
                f"{row.detail['descriptors']} descriptors, "
                f"stop {row.detail['stop_seconds']:.2f} s"
            )
    missed = [row.what for row in rows if row.is_met is False]
    print(f"targets missed: {', '.join(missed) or 'none'}")
    print_markdown(rows, ours="log")


if __name__ == "__main__":
    raise SystemExit(main())
