"""DataFrames written as topics, without Spark: the tasks run here, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.frames.writing.attempt import Staged, write_attempt
from cordwood.frames.writing.commit import commit_write
from cordwood.frames.writing.options import parse_write_options
from cordwood.frames.writing.plan import WritePlan, plan_write
from cordwood.model.rng import SystemRng
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.testing.manual_clock import ManualClock

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class WrittenRecord(NamedTuple):
    """A record, with what its batch says of it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


def rows(
    pairs: Sequence[tuple[Any, Any]], kind: pa.DataType | None = None, **more: pa.Array
) -> pa.RecordBatch:
    """An Arrow batch of keys and values, and of other columns."""
    kind = kind or pa.binary()
    keys = pa.array([key for key, _ in pairs], kind)
    return pa.record_batch({"key": keys, "value": pa.array([v for _, v in pairs], kind), **more})


def planned(log_dir: Path, topic: str = "orders", **options: str) -> WritePlan:
    """The plan of a job; underscores in names of options stand for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    parsed = parse_write_options({"path": str(log_dir), "topic": topic, **given})
    return plan_write(parsed, clock=ManualClock(), rng=SystemRng())


def attempted(plan: WritePlan, *tasks: Sequence[pa.RecordBatch]) -> list[Staged]:
    """One attempt of each task."""
    return [
        write_attempt(plan.attempts, batches, task=number, attempt=f"attempt{number}")
        for number, batches in enumerate(tasks)
    ]


def committed(plan: WritePlan, staged: Sequence[Staged], *, fs: FileSystem = OS) -> None:
    """Has the segments put in place."""
    commit_write(plan, staged, clock=ManualClock(), rng=SystemRng(), fs=fs)


def write(
    log_dir: Path, *tasks: Sequence[pa.RecordBatch], topic: str = "orders", **options: str
) -> None:
    """A whole job."""
    plan = planned(log_dir, topic, **options)
    committed(plan, attempted(plan, *tasks))


def batches_in(directory: Path) -> list[RecordBatch]:
    """The batches of a partition's directory, each of which has the right CRC."""
    found = []
    for path in sorted(directory.glob("*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            batch.require_valid()
            found.append(batch)
    return found


def records_in(directory: Path) -> list[WrittenRecord]:
    """The records of a partition's directory."""
    return [
        WrittenRecord(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((each.key, each.value) for each in record.headers),
            batch.header.partition_leader_epoch,
        )
        for batch in batches_in(directory)
        for record in batch.records()
    ]
