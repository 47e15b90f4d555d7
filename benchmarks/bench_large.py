"""Measures `cordwood clean` on a log that is larger than the page cache, as a user watches it.

The command runs once, in a terminal, on 20 partitions. Beside its time stands what a thread for
each core takes for plain reads and writes of as many bytes: each log twice, and the records that
remain once. What the progress said of the time left is compared with the time that was left.
benchmarks/README.md says how to read the figures.

usage: bench_large.py [--quick] [--gb N] [--work-dir DIR] [--json FILE]
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import measure
from command import parser_of, write_figures
from floor import floor_of
from log_rows import HEADING, Row
from loggen import TOPIC, Shape, generate

PARTITIONS = 20
_GB = 40.0
_QUICK_GB = 0.4
_RECORD_BYTES = 265  # of a log that a `Shape` makes
_COMMAND_S_MAX = 3600
# Seconds are said: near the end one of them is a large share.
_LEFT_S_MIN = 5.0
_NEAR = 0.2
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_ROW = re.compile(r"all compactions\s.*?(\d+)%(?:.*?(\d+):(\d\d):(\d\d) left)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Progress at a moment: seconds since the start, percent done, seconds left."""

    at_s: float
    percent: int
    left_s: int


@dataclass(slots=True, kw_only=True)
class Watched:
    """A command that ended: its seconds, those to the end of its compactions, and what it said."""

    seconds: float
    compacted_s: float
    said: list[Said]
    peaks: measure.Peaks


@dataclass(slots=True)
class Screen:
    """Reads what a program writes to a terminal, and keeps what it says of the time left."""

    started: float
    said: list[Said] = field(default_factory=list)
    complete_s: float | None = None
    rest: bytes = b""

    def take(self, data: bytes) -> None:
        """Reads more of it; a line may come in parts."""
        *lines, self.rest = re.split(rb"[\r\n]+", self.rest + data)
        for line in lines:
            found = _ROW.search(_ESCAPE.sub(b"", line).decode(errors="replace"))
            if not found:
                continue
            at_s = time.monotonic() - self.started
            percent, hours, minutes, seconds = (int(each or 0) for each in found.groups())
            if found[2] is not None:
                left_s = hours * 3600 + minutes * 60 + seconds
                self.said.append(Said(at_s=at_s, percent=percent, left_s=left_s))
            elif percent == 100 and self.complete_s is None:
                self.complete_s = at_s


def run_watched(log_dir: Path) -> Watched:
    """`cordwood clean` of the topic from a shell, its progress on a terminal.

    Raises:
        RuntimeError: it failed.
    """
    program = str(Path(sys.executable).with_name("cordwood"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    started = time.monotonic()
    process = subprocess.Popen(
        [program, "clean", str(log_dir), "--topic", TOPIC, "--yes"],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    screen, peaks = Screen(started), measure.Peaks()

    def read_screen() -> None:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            screen.take(data)

    reader = threading.Thread(target=read_screen)
    reader.start()
    with measure.sampling(peaks)(process.pid):
        process.wait(_COMMAND_S_MAX)
    seconds = time.monotonic() - started
    reader.join()
    os.close(ours)
    if process.returncode != 0:
        raise RuntimeError(f"cordwood clean failed with {process.returncode}")
    return Watched(
        seconds=seconds,
        compacted_s=screen.complete_s or seconds,
        said=screen.said,
        peaks=peaks,
    )


def plain_seconds(log_dir: Path, work: Path, share: float) -> float:
    """Two plain reads of every log and a synced write of a share of it, a thread for each core."""
    logs = sorted(log_dir.glob(f"{TOPIC}-*"))

    def one(log: Path) -> None:
        place = work / log.name
        place.mkdir()
        size = sum(segment.stat().st_size for segment in log.glob("*.log"))
        floor_of(log, place, int(size * share))
        place.rmdir()

    started = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, logs))
    return time.monotonic() - started


def misses(watched: Watched) -> Iterator[tuple[Said, float]]:
    """(what was said, by which share of the time left it was wrong), while enough time is left."""
    for said in watched.said:
        left_s = watched.compacted_s - said.at_s
        if left_s >= _LEFT_S_MIN:
            yield said, abs(said.left_s - left_s) / left_s


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="a quarter more than --gb is free")
    parser.add_argument("--gb", type=float, default=None, help=f"by default {_GB:g}")
    options = parser.parse_args(arguments)
    size_gb = options.gb or (_QUICK_GB if options.quick else _GB)
    records = int(size_gb * 1e9 / _RECORD_BYTES)
    whole = Shape(partitions=PARTITIONS)
    shape = Shape(
        partitions=PARTITIONS, records=records, keys=records * whole.keys // whole.records
    )
    with tempfile.TemporaryDirectory(prefix="bench-large-", dir=options.work_dir) as directory:
        work = Path(directory)
        log_dir = work / "log"
        written = generate(log_dir, shape)
        megabytes = sum(partition.bytes for partition in written) / 1e6
        is_dropped = measure.drop_page_cache()
        plain_s = plain_seconds(log_dir, work, shape.keys / shape.records)
        measure.drop_page_cache()
        watched = run_watched(log_dir)
    what = f"cordwood clean, {megabytes:,.0f} MB in {PARTITIONS} partitions"
    rows = [
        Row(what=what, unit=unit, ours=[ours], other_name="plain", other=[other])
        for unit, ours, other in (
            ("s", watched.seconds, plain_s),
            ("MB/s", megabytes / watched.seconds, megabytes / plain_s),
        )
    ]
    print(HEADING, *(row.line() for row in rows), sep="\n")
    found = list(misses(watched))
    near = sum(miss <= _NEAR for _, miss in found)
    print(
        f"page cache dropped before each side: {is_dropped}; peak memory, MB of PSS: "
        + ", ".join(f"{kind} {size / 1e6:,.0f}" for kind, size in watched.peaks.by_kind.items())
        + f", together {watched.peaks.together / 1e6:,.0f}"
    )
    if found:
        worst, miss = max(found, key=lambda each: each[1])
        print(
            f"time left, said {len(found)} times from {found[0][0].percent} % to "
            f"{_LEFT_S_MIN:g} s before the end: within {_NEAR:.0%} {near} times; the worst "
            f"{worst.left_s} s at {worst.percent} %, wrong by {miss:.0%}"
        )
    target = options.json or measure.results_file("large-")
    write_figures(
        target,
        rows=[row.document() for row in rows],
        peak_bytes={**watched.peaks.by_kind, "together": watched.peaks.together},
        said=[[round(each.at_s, 1), each.percent, each.left_s] for each in watched.said],
        within=[near, len(found)],
    )
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
