"""Cleans a copy of the Kafka log directory that ships with the project, and proves the result.

The directory in examples/ was written by a real Apache Kafka. Shown: the plan, the cleaning on
Spark, each topic before and after, and that every record that must be there reads back: a plain
reader decodes every batch before and after, and a dictionary says what must have survived.

usage: demo.py [--keep DIR]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.format.control_record import ControlType, parse_control_type_id
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch, iter_batches

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ARCHIVE = EXAMPLES / "kafka-logs.tar.xz"
_CLEAN_SECONDS_MAX = 300


@dataclass(slots=True)
class Partition:
    """A partition as a plain reader sees it; `settled` leaves out what was aborted or controls."""

    segments: int = 0
    bytes: int = 0
    start: int = 0
    end: int = 0
    records: int = 0
    settled: dict[int, Record] = field(default_factory=dict)


def batches_of(directory: Path) -> Iterator[RecordBatch]:
    """Every batch of a partition, its CRC checked."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        end = 0
        for position, batch in iter_batches(data):
            assert isinstance(batch, RecordBatch), "the example holds today's format alone"
            batch.require_valid()
            yield batch
            end = position + batch.size_bytes
        assert end == len(data), f"{path}: {len(data) - end} bytes are no batch"


def read_partition(directory: Path) -> Partition:
    """Decodes every batch, and sorts out transactions by their markers."""
    logs = sorted(directory.glob("*.log"))
    found = Partition(
        segments=len(logs),
        bytes=sum(path.stat().st_size for path in logs),
        start=int(logs[0].stem),
    )
    open_transactions: dict[int, list[Record]] = {}
    for batch in batches_of(directory):
        header = batch.header
        records = batch.records()
        found.records += len(records)
        found.end = header.next_offset
        if header.is_control:
            pending = open_transactions.pop(header.producer_id, [])
            for record in records:
                if parse_control_type_id(record.key) == ControlType.COMMIT:
                    found.settled.update((r.offset, r) for r in pending)
        elif header.is_transactional:
            open_transactions.setdefault(header.producer_id, []).extend(records)
        else:
            found.settled.update((r.offset, r) for r in records)
    return found


@dataclass(slots=True)
class Proof:
    """Numbers of things that were checked in all partitions together."""

    read_back: int = 0
    keys: int = 0
    missing: int = 0
    changed: int = 0
    too_many: int = 0

    def check(self, before: Partition, after: Partition, compacted_to: int) -> None:
        """Compares one partition; below `compacted_to` only the newest record of a key counts."""
        self.read_back += after.records
        newest: dict[bytes, Record] = {}
        expected: dict[int, Record] = {}
        for offset, record in sorted(before.settled.items()):
            if offset >= compacted_to:
                expected[offset] = record
            elif record.key is not None:
                newest[record.key] = record
        kept = [record for record in newest.values() if record.offset >= after.start]
        self.keys += len(kept)
        expected = {offset: record for offset, record in expected.items() if offset >= after.start}
        expected.update((record.offset, record) for record in kept)
        self.missing += len(expected.keys() - after.settled.keys())
        self.too_many += len(after.settled.keys() - expected.keys())
        self.changed += sum(
            _content(expected[offset]) != _content(after.settled[offset])
            for offset in expected.keys() & after.settled.keys()
        )
        self.changed += before.end != after.end

    @property
    def holds(self) -> bool:
        """Nothing is missing, altered or left behind."""
        return not (self.missing or self.changed or self.too_many)

    def __str__(self) -> str:
        return (
            f"{self.read_back:,} records read back, newest value of each of {self.keys:,} keys "
            f"present, {self.missing} missing, {self.changed} altered, {self.too_many} that should "
            "be gone"
        )


def _content(record: Record) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, record.headers


def unpack(target: Path) -> Path:
    """The example's log directory, unpacked below `target`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(target, filter="data")
    (log_dir,) = target.iterdir()
    return log_dir


def clean(log_dir: Path, *options: str) -> None:
    """Runs `cordwood clean` with this terminal as its own.

    Raises:
        CalledProcessError: it did not exit with 0.
    """
    now = (EXAMPLES / "made_at").read_text().strip()
    arguments = ["clean", str(log_dir), "--now", now, *options]
    print(f"\n$ cordwood {' '.join(arguments)}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments], check=True, timeout=_CLEAN_SECONDS_MAX
    )


def show(before: dict[str, Partition], after: dict[str, Partition], console: Console) -> None:
    table = Table(
        title="Read back with the plain reader",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("partition", no_wrap=True)
    for name in ("segments", "records before", "after", "bytes before", "after"):
        table.add_column(name, justify="right")
    for name, old in before.items():
        new = after[name]
        table.add_row(
            name,
            f"{old.segments} → {new.segments}",
            f"{old.records:,}",
            f"{new.records:,}",
            f"{old.bytes:,}",
            f"{new.bytes:,}",
        )
    console.print(table)


def partitions_of(log_dir: Path) -> dict[str, Path]:
    return {
        str(place.topic_partition): place.path
        for place in OfflineLogDirectory(log_dir).partitions()
        if place.left_alone is None
    }


def run(root: Path, console: Console) -> bool:
    """The whole demonstration in `root`; whether the proof holds."""
    log_dir = unpack(root)
    console.print(
        f"A log directory written by a real Apache Kafka: {log_dir}",
        highlight=False,
        soft_wrap=True,
    )
    before = {name: read_partition(path) for name, path in partitions_of(log_dir).items()}
    clean(log_dir, "--dry-run")
    clean(log_dir)
    after = {name: read_partition(path) for name, path in partitions_of(log_dir).items()}
    print()
    show(before, after, console)
    compacted_to = {
        str(partition): offset
        for partition, offset in OfflineLogDirectory(log_dir).checkpoints()[0].cleaner.items()
    }
    proof = Proof()
    for name, old in before.items():
        proof.check(old, after[name], compacted_to.get(name, 0))
    style = "bold green" if proof.holds else "bold red"
    console.print(str(proof), style=style, highlight=False, soft_wrap=True)
    return proof.holds


NEXT = """
Next:
  cordwood clean YOUR_LOG_DIR --dry-run      what would go, and by which rule; touches nothing
  cordwood clean YOUR_LOG_DIR --trash DIR    clean a stopped broker's directory, keep what goes
  cordwood dump-log --files SEGMENT.log      print a segment as kafka-dump-log does
  make bench                                 the same work, by Kafka's own cleaner and by ours"""


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--keep", type=Path, help="work in this new directory, and leave it there")
    options = parser.parse_args()
    if options.keep is not None and options.keep.exists():
        parser.error(f"{options.keep} exists already")
    root = options.keep or Path(tempfile.mkdtemp(prefix="cordwood-demo-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        holds = run(root, Console())
    except subprocess.CalledProcessError as error:
        print(f"cordwood clean failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    finally:
        if options.keep is None:
            shutil.rmtree(root)
    if not holds:
        print("the result is not what it must be", file=sys.stderr)
        return 1
    print(NEXT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
