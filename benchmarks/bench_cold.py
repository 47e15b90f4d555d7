"""Measures `cordwood clean` as people run it, once and from a shell, beside a Kafka started for it.

Every run is a new process. Kafka's side is the time from the start of its process to its cleaner's
last line; beside it stands what the cleaner alone took. Both work on equal copies of one log, and
what they leave must agree. benchmarks/README.md says how to read the figures.

usage: bench_cold.py [--quick] [--sizes MB,...] [--turns N] [--no-first] [--json FILE]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import measure
from command import parser_of, write_figures
from contents import contents_of, require_agreement
from kafka_side import run_kafka_from_start
from log_rows import HEADING, Row, print_markdown
from loggen import Shape, generate
from our_side import run_cold

ROOT = Path(__file__).resolve().parents[1]
SIZES_MB = (5, 150, 1500, 6000)
_WHOLE_MB = 1500  # of the log that a `Shape` makes if nothing is said
_QUICK_MB = 2
_PROGRAM_S_MAX = 300
_ARCHIVE_S_MAX = 900


class Bench:
    """Directory of the logs, and the number of turns of each measurement."""

    def __init__(self, work: Path, turns: int) -> None:
        self.work = work
        self.turns = turns

    def copy(self, source: Path, name: str) -> Path:
        """An equal copy that is on disk."""
        target = shutil.copytree(source, self.work / name)
        os.sync()
        return target

    def size(self, megabytes: int, *, is_first: bool) -> Iterator[Row]:
        """The rows of one size.

        Args:
            megabytes: of the log, before it is cleaned.
            is_first: whether a machine's first run ever is measured, too.
        """
        share = megabytes / _WHOLE_MB
        shape = Shape().scaled(share)
        source = self.work / "source"
        generate(source, replace(shape, segment_bytes=min(shape.segment_bytes, 100 << 20)))
        name = f"cordwood clean, {megabytes:,} MB"
        whole = Row(what=name, unit="s", other_name="Kafka")
        cleaner = Row(what=f"{name}, cleaner", unit="s", other_name="cleaner")
        if is_first:
            yield self.first_run(source, name)
        for turn in range(self.turns):
            spent = measure.Spent()
            with measure.spent_by(os.getpid(), spent):
                sides = [self.ours, self.kafka]
                found = [each(source) for each in (sides if turn % 2 == 0 else sides[::-1])]
            (ours, mine), (theirs, kafka) = found if turn % 2 == 0 else found[::-1]
            require_agreement(kafka, mine)
            for row in (whole, cleaner):
                row.ours.append(ours[0])
                row.others_cores.append(spent.others_cores)
            whole.other.append(theirs[0])
            cleaner.other.append(theirs[1])
        yield whole
        yield cleaner
        shutil.rmtree(source)

    def ours(self, source: Path) -> tuple[tuple[float, ...], dict[str, object]]:
        """The seconds of the command, and what it left."""
        copy = self.copy(source, "ours")
        seconds, _ = run_cold(copy)
        left = contents_of(copy)
        shutil.rmtree(copy)
        return (seconds,), left

    def kafka(self, source: Path) -> tuple[tuple[float, ...], dict[str, object]]:
        """The seconds of the whole start and of the cleaner, and what it left."""
        copy, root = self.copy(source, "kafka"), self.work / "kafka-root"
        found = run_kafka_from_start(copy, root)
        left = contents_of(copy)
        shutil.rmtree(root)
        shutil.rmtree(copy)
        return found, left

    def first_run(self, source: Path, name: str) -> Row:
        """The first run ever on a machine: no archive of classes, and no file in memory."""
        row = Row(what=f"{name}, first run ever", unit="s")
        for _ in range(self.turns):
            copy = self.copy(source, "ours")
            with empty_cache(self.work / "cache") as cache:
                is_dropped = measure.drop_page_cache()
                seconds, _ = run_cold(copy)
                started = time.monotonic()
                wait_for_archive(cache)
                row.detail["archive_s"] = round(time.monotonic() - started, 1)
                row.detail["page_cache_dropped"] = is_dropped
            row.ours.append(seconds)
            shutil.rmtree(copy)
        return row

    def programs(self) -> Iterator[Row]:
        """The demonstration, and the least that any PySpark program takes."""
        for what, path in (
            ("the demonstration of make run", ROOT / "tools/demo.py"),
            ("a trivial PySpark program", ROOT / "benchmarks/trivial_spark.py"),
        ):
            row = Row(what=what, unit="s")
            for _ in range(self.turns):
                row.turn(lambda path=path: run_program(path))  # type: ignore[misc]
            yield row


def run_program(path: Path) -> float:
    """Seconds of a Python program from its start to its exit."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=_PROGRAM_S_MAX,
    )
    return time.monotonic() - started


@contextmanager
def empty_cache(directory: Path) -> Iterator[Path]:
    """Has Cordwood keep what it caches in a directory that is empty, and removed at the end."""
    before = os.environ.get("CORDWOOD_CACHE_DIR")
    os.environ["CORDWOOD_CACHE_DIR"] = str(directory)
    try:
        yield directory
    finally:
        if before is None:
            del os.environ["CORDWOOD_CACHE_DIR"]
        else:
            os.environ["CORDWOOD_CACHE_DIR"] = before
        shutil.rmtree(directory, ignore_errors=True)


def wait_for_archive(cache: Path) -> None:
    """Returns when the archive is there that a first run leaves a process behind to make.

    Raises:
        TimeoutError: it does not come.
    """
    deadline = time.monotonic() + _ARCHIVE_S_MAX
    while not any(cache.glob("*.jsa")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no archive of Spark's classes in {cache}")
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="25 GB are free", turns="by default 3")
    parser.add_argument(
        "--sizes", default=None, metavar="MB,...", help="by default 5,150,1500,6000"
    )
    parser.add_argument("--no-first", action="store_true", help="without a machine's first run")
    options = parser.parse_args(arguments)
    chosen = [int(each) for each in options.sizes.split(",")] if options.sizes else SIZES_MB
    sizes = (_QUICK_MB,) if options.quick else chosen
    target = options.json or measure.results_file("cold-")
    rows: list[Row] = []
    print(HEADING)
    with tempfile.TemporaryDirectory(prefix="bench-cold-", dir=options.work_dir) as directory:
        bench = Bench(Path(directory), options.turns or (1 if options.quick else 3))

        def measured() -> Iterator[Row]:
            for number, megabytes in enumerate(sizes):
                yield from bench.size(megabytes, is_first=not (options.no_first or number))
            yield from bench.programs()

        for row in measured():
            rows.append(row)
            print(row.line(), flush=True)
            write_figures(target, rows=[each.document() for each in rows])
    show(rows)
    print(f"written to {target}")
    return 0


def show(rows: Sequence[Row]) -> None:
    """Prints details that the lines lack, and the rows of the page."""
    for row in rows:
        if "archive_s" in row.detail:
            print(
                f"{row.what}: the archive was there {row.detail['archive_s']} s after the command "
                f"had ended; page cache dropped: {row.detail['page_cache_dropped']}"
            )
    print_markdown(rows)


if __name__ == "__main__":
    raise SystemExit(main())
