"""Two cleanings of one log directory, compared as Apache Kafka's own tools see them.

Role: the judge of the compatibility tests. Both directories are read by the real kafka-dump-log, in
one run of the JVM, so nothing here depends on Cordwood's own reading of the format.

What must agree, partition by partition: the segment files; each batch and each record in them, with
codecs, headers of emptied batches, and whether a delete horizon is set; the aborted transactions;
the names of producer snapshots; the cleaner's checkpoint and the log start offset's. The first
directory's indexes must be sound, and no file may be left over.

What may differ: positions, sizes and checksums (a batch compressed again by another library is as
good), the value of a delete horizon (it depends on the moment of cleaning), the contents of
snapshots and leader epochs (Kafka appends to them when it starts).

Run as `python -m support.compare CLEANED AFTER [TOPIC-PARTITION...]`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordwood.model.errors import CordwoodError
from support.kafka import read_checkpoint
from support.kafka_programs import kafka_tool

CHECKPOINTS: Final = ("cleaner-offset-checkpoint", "log-start-offset-checkpoint")
_DUMPED: Final = (".log", ".txnindex", ".index", ".timeindex")
_INDEXES: Final = (".index", ".timeindex")
_LEFT_OVER: Final = (".cleaned", ".swap", ".deleted")
_MAY_DIFFER: Final = re.compile(r" (?:position|size|crc): \S+")
_HORIZON: Final = re.compile(r"deleteHorizonMs: OptionalLong\[\d+\]")
_BATCH: Final = re.compile(r"baseOffset: \d+ lastOffset: \d+ count: ")
_EXCERPT: Final = 240

# The lines in which kafka-dump-log complains about an index, on standard error: a heading that
# names the file, then indented details.
_COMPLAINT: Final = re.compile(
    r"^(?:Mismatches in|Found timestamp mismatch in|Found out of order timestamp in) :(?P<path>.+)$"
)
# The tool gives an emptied batch no timestamp, and so complains of Kafka's own time indexes too.
_EMPTIED: Final = re.compile(r"^Index timestamp: \d+, log timestamp: -1$")
_NOT_FOUND: Final = "The following indexed offsets are not found in the log."
_FAILED: Final = re.compile(r"Exception|Error opening|^Ignoring unknown file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which a cleaned partition is not what Kafka made of it."""

    partition: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.kind}: {self.detail}"


@dataclass(slots=True, kw_only=True)
class Dump:
    """Output of kafka-dump-log, by file."""

    lines: dict[Path, list[str]] = field(default_factory=dict)
    complaints: dict[Path, list[str]] = field(default_factory=dict)

    def comparable(self, path: Path) -> list[str]:
        """The lines of a file without what may differ between two cleanings."""
        shown = self.lines.get(path, [])
        return [_HORIZON.sub("deleteHorizonMs: set", _MAY_DIFFER.sub("", line)) for line in shown]


def dump_files(paths: Sequence[Path]) -> Dump:
    """Lists segments, transaction indexes and snapshots whole; checks offset and time indexes.

    Raises:
        CordwoodError: Kafka's tool could not read one of them at all.
    """
    dump = Dump(lines={path: [] for path in paths})
    if not paths:
        return dump
    names = ",".join(str(path) for path in paths)
    flags = ("--print-data-log", "--verify-index-only", "--files")
    done = kafka_tool("dump-log", *flags, names, timeout_s=1800)
    failure = next((line for line in done.stderr.splitlines() if _FAILED.search(line)), None)
    if done.returncode != 0 or failure is not None:
        reason = failure or (done.stdout + done.stderr).strip()[-1000:]
        raise CordwoodError(f"kafka-dump-log failed: {reason}")
    current: list[str] | None = None
    by_name = {str(path): path for path in paths}
    # Records may hold any control character, so only a newline ends a line.
    for line in done.stdout.split("\n"):
        if line.startswith("Dumping ") and line[8:] in by_name:
            current = dump.lines[by_name[line[8:]]]
        elif current is not None and line and not line.startswith("Log starting offset: "):
            current.append(line)
    _collect_complaints(done.stderr, by_name, dump)
    return dump


def _collect_complaints(errors: str, by_name: dict[str, Path], dump: Dump) -> None:
    path: Path | None = None
    heading = ""
    for line in errors.split("\n"):
        named = _COMPLAINT.match(line)
        if named is not None:
            path, heading = by_name[named["path"]], line.split(" :")[0]
        elif line == _NOT_FOUND:
            path, heading = Path(), _NOT_FOUND
        elif line.startswith("Non-consecutive offsets in "):
            path = None  # A compacted log has gaps.
        elif path is not None and line.strip() and not _EMPTIED.match(line.strip()):
            dump.complaints.setdefault(path, []).append(f"{heading}: {line.strip()}")


def partition_names(log_dir: Path, *, include_internal: bool = False) -> list[str]:
    """The partitions of a log directory, in name order; `__*` only when asked for."""
    return sorted(
        path.name
        for path in log_dir.iterdir()
        if path.is_dir()
        and re.fullmatch(r".+-\d+", path.name)
        and path.name != "__cluster_metadata-0"
        and (include_internal or not path.name.startswith("__"))
    )


def compare_log_dirs(
    cleaned: Path,
    after: Path,
    topics: Sequence[str] | None = None,
    *,
    include_internal: bool = False,
) -> list[Difference]:
    """All that differs between a log directory cleaned here and the same one cleaned by Kafka.

    `topics` limits the comparison to these topics, or to these partitions (`topic-0`). Internal
    topics are left out unless `include_internal` or named in `topics`.
    """
    every = include_internal or topics is not None
    ours = _chosen(partition_names(cleaned, include_internal=every), topics)
    theirs = _chosen(partition_names(after, include_internal=every), topics)
    differences = [
        Difference(partition=name, kind="partition", detail=f"only in {cleaned}")
        for name in sorted(set(ours) - set(theirs))
    ]
    differences += [
        Difference(partition=name, kind="partition", detail=f"only in {after}")
        for name in sorted(set(theirs) - set(ours))
    ]
    both = [name for name in theirs if name in set(ours)]
    dump = dump_files([*_to_dump(cleaned, both, _DUMPED), *_to_dump(after, both, _DUMPED[:2])])
    for name in both:
        differences += _compare_partition(name, cleaned / name, after / name, dump)
        differences += _compare_checkpoints(name, cleaned, after)
    unnamed = dump.complaints.get(Path())
    if unnamed:
        detail = "; ".join(unnamed)[:_EXCERPT]
        differences.append(Difference(partition="(some)", kind="time index", detail=detail))
    return differences


def require_alike(
    cleaned: Path, after: Path, *, except_for: Collection[str] = (), include_internal: bool = False
) -> list[str]:
    """The partitions compared.

    Raises:
        AssertionError: one that is not among `except_for` differs; all differences are in the text.
    """
    found = compare_log_dirs(cleaned, after, include_internal=include_internal)
    differences = [each for each in found if each.partition not in except_for]
    assert not differences, "\n".join(map(str, differences))
    return partition_names(after, include_internal=include_internal)


def _chosen(names: list[str], topics: Sequence[str] | None) -> list[str]:
    if topics is None:
        return names
    return [name for name in names if name in topics or name.rpartition("-")[0] in topics]


def _to_dump(root: Path, names: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    return [
        path
        for name in names
        for path in sorted((root / name).iterdir())
        if path.suffix in suffixes
    ]


def _compare_partition(name: str, ours: Path, theirs: Path, dump: Dump) -> Iterator[Difference]:
    def differ(kind: str, detail: str) -> Difference:
        return Difference(partition=name, kind=kind, detail=detail)

    yield from (differ(*found) for found in _segments(ours, theirs, dump))
    aborted = [_aborted_transactions(side, dump) for side in (ours, theirs)]
    if aborted[0] != aborted[1]:
        yield differ("aborted transactions", f"Kafka {aborted[1]}, here {aborted[0]}"[:_EXCERPT])
    snapshots = [_names(side, ".snapshot") for side in (ours, theirs)]
    if snapshots[0] != snapshots[1]:
        yield differ("snapshots", _sets(snapshots[1], snapshots[0]))
    for path in sorted(dump.complaints):
        if path.parent == ours and path.suffix in _INDEXES:
            yield differ("index", f"{path.name}: {'; '.join(dump.complaints[path])}"[:_EXCERPT])
    missing = [
        base + suffix
        for base in (path.removesuffix(".log") for path in _names(ours, ".log"))
        for suffix in _INDEXES
        if not (ours / (base + suffix)).exists()
    ]
    if missing:
        yield differ("index", f"missing: {missing[:4]}")
    left = sorted(path.name for path in ours.iterdir() if path.suffix in _LEFT_OVER)
    if left:
        yield differ("left over", f"{left[:4]}")


def _segments(ours: Path, theirs: Path, dump: Dump) -> Iterator[tuple[str, str]]:
    our_names, their_names = _names(ours, ".log"), _names(theirs, ".log")
    if our_names != their_names:
        yield "segments", _sets(their_names, our_names)
    for segment in sorted(set(our_names) & set(their_names)):
        here, kafka = dump.comparable(ours / segment), dump.comparable(theirs / segment)
        if here == kafka:
            continue
        number = next(
            (n for n, (mine, other) in enumerate(zip(here, kafka, strict=False)) if mine != other),
            min(len(here), len(kafka)),
        )
        yield (
            "batches" if _is_batch(here, number) or _is_batch(kafka, number) else "records",
            f"{segment} line {number}: Kafka {_line(kafka, number)} | here {_line(here, number)}",
        )


def _is_batch(lines: Sequence[str], number: int) -> bool:
    return number < len(lines) and _BATCH.match(lines[number]) is not None


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number][:_EXCERPT] if number < len(lines) else f"ends after {len(lines)} lines"


def _aborted_transactions(side: Path, dump: Dump) -> dict[str, list[str]]:
    indexes = {name: dump.lines[side / name] for name in _names(side, ".txnindex")}
    return {
        name: lines
        for name, lines in indexes.items()
        if lines and not lines[0].endswith(" is empty.")
    }


def _names(side: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in side.iterdir() if path.suffix == suffix)


def _sets(kafka: Sequence[str], here: Sequence[str]) -> str:
    only_kafka = sorted(set(kafka) - set(here))
    only_here = sorted(set(here) - set(kafka))
    counts = f"Kafka has {len(kafka)}, here are {len(here)}"
    return f"{counts}; only Kafka's: {only_kafka[:4]}; only here: {only_here[:4]}"


def _compare_checkpoints(name: str, cleaned: Path, after: Path) -> Iterator[Difference]:
    for checkpoint in CHECKPOINTS:
        here = read_checkpoint(cleaned / checkpoint).get(name)
        kafka = read_checkpoint(after / checkpoint).get(name)
        if here != kafka:
            detail = f"Kafka {kafka}, here {here}"
            yield Difference(partition=name, kind=checkpoint, detail=detail)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints a line per difference, and exits with 1 if there is one."""
    parser = argparse.ArgumentParser(description="Compare two cleaned log directories.")
    parser.add_argument("cleaned", type=Path, help="the directory cleaned here")
    parser.add_argument("after", type=Path, help="the same directory cleaned by Apache Kafka")
    parser.add_argument("topics", nargs="*", help="only these topics or partitions")
    parser.add_argument("--internal", action="store_true", help="compare __* topics too")
    options = parser.parse_args(arguments)
    differences = compare_log_dirs(
        options.cleaned,
        options.after,
        options.topics or None,
        include_internal=options.internal,
    )
    for difference in differences:
        print(difference)  # noqa: T201
    print(f"{len(differences)} differences")  # noqa: T201
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
