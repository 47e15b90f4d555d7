"""Measures the partition log beside the system's own calls and beside Apache Kafka.

Each line of the table is measured in several turns; where there are two sides, they take turns.
What is measured, and how to read the figures: benchmarks/README.md.

usage: bench_log.py [--quick] [--sections NAME,...] [--turns N] [--gb N] [--no-kafka] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measure
from log_append import append_rows, read_rows
from log_growth import retention_rows, segment_rows
from log_open import idle_rows, partition_rows, recovery_rows
from log_rows import HEADING, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

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
    """What can be measured, by name; each is given an empty directory."""

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
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    parser.add_argument("--sections", default=",".join(names), help="by default %(default)s")
    parser.add_argument("--turns", type=int, default=None, help="by default 5, of long runs 3")
    parser.add_argument("--gb", type=float, default=None, help="what is recovered, by default 4.3")
    parser.add_argument("--no-kafka", action="store_true", help="without Kafka beside ours")
    parser.add_argument("--work-dir", type=Path, default=None, help="where 25 GB are free")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE",
                        help="where the figures go, by default results/")  # fmt: skip
    options = parser.parse_args(arguments)
    chosen = options.sections.split(",")
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no such section: {unknown}; there are {names}")
    sizes = _sized(options)
    target = options.json or measure.results_file("log-")
    document: dict[str, Any] = {
        "machine": measure.machine(),
        "commit": measure.commit(),
        "quick": options.quick,
        "rows": [],
    }
    rows: list[Row] = []
    available = sections(sizes, kafka=not options.no_kafka)
    print(HEADING)
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.work_dir) as directory:
            for row in available[name](Path(directory)):
                rows.append(row)
                print(row.line(), flush=True)
                document["rows"].append({"section": name, **row.document()})
                target.write_text(json.dumps(document, indent=1))
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
    """What the lines do not say."""
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
    print("for benchmarks/README.md:", "| what | log | beside it | ratio |", sep="\n")
    print("| --- | --- | --- | --- |", *(row.markdown(ours_first=True) for row in rows), sep="\n")


if __name__ == "__main__":
    raise SystemExit(main())
