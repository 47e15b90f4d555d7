"""The work of Spark's workers, and the rows of their answers.

Every function here is one task of a compaction, or one shard of a merge: plain values in, rows out.
Of records only keys' identities, bits and counts travel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cordwood.cleanup import tasks
from cordwood.cleanup.announcements import end_attempt
from cordwood.cleanup.compaction_values import SegmentSource, failure_to_json
from cordwood.cleanup.log_compaction import LogCompaction
from cordwood.cleanup.rewrite import RewriteSpec
from cordwood.cleanup.survivors import ENTRY_BYTES, Secrets, merge
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import FileSystem

# Facts and errors pass the merge as a shard of their own.
ASIDE = -1
ENTRIES, FACTS, ERROR, DEAD, COUNT = range(5)
_BLOCK_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("chunk", pa.int32()),
        ("generation", pa.int32()),
        ("kind", pa.int8()),
        ("payload", pa.binary()),
    ]
)
BLOCK_DDL = "shard int, chunk int, generation int, kind byte, payload binary"
_RESULT_SCHEMA = pa.schema([("task", pa.int32()), ("kind", pa.int8()), ("payload", pa.binary())])
RESULT_DDL = "task int, kind byte, payload binary"


def result_row(task: int, kind: int, payload: bytes) -> pa.RecordBatch:
    """A row of a result."""
    return pa.RecordBatch.from_pylist(
        [{"task": task, "kind": kind, "payload": payload}], schema=_RESULT_SCHEMA
    )


def _block(shard: int, chunk: int, generation: int, kind: int, payload: Any) -> pa.RecordBatch:
    """One row; `payload` is not copied."""
    data = pa.py_buffer(payload)
    ends = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    return pa.record_batch(
        [
            pa.array([shard], pa.int32()),
            pa.array([chunk], pa.int32()),
            pa.array([generation], pa.int32()),
            pa.array([kind], pa.int8()),
            pa.Array.from_buffers(pa.binary(), 1, [None, ends, data]),
        ],
        schema=_BLOCK_SCHEMA,
    )


def _failure(name: str, error: Exception) -> bytes:
    return json.dumps({"round": name} | failure_to_json(error)).encode()


def clean_whole(task: int, plan: str, fs: FileSystem) -> Iterator[pa.RecordBatch]:
    """Index, probe and rewrite of some small logs, one after the other."""
    for value in json.loads(plan):
        compaction = LogCompaction.from_json(value)
        progress = _progress(compaction, "clean", fs)
        try:
            index = tasks.clean_whole(compaction, progress, progress.wrote, fs=fs)
            report = {"round": compaction.name, "index": asdict(index)}
            yield result_row(task, COUNT, json.dumps(report).encode())
        except (CordwoodError, OSError) as error:
            yield result_row(task, ERROR, _failure(compaction.name, error))
        finally:
            progress.close()


def _progress(compaction: LogCompaction, phase: str, fs: FileSystem) -> tasks.ProgressFile:
    return tasks.ProgressFile(
        compaction.directory,
        compaction.attempt,
        phase,
        bytes_per_s=compaction.throttle_bytes,
        fs=fs,
    )


def rewrite(
    task: int, compaction: LogCompaction, specs: Sequence[RewriteSpec], fs: FileSystem
) -> Iterator[pa.RecordBatch]:
    """Rewrites groups, one after the other; answers with what went wrong, if anything did."""
    directory = Path(compaction.directory)
    progress = _progress(compaction, "rewrite", fs)
    publisher = tasks.Publisher(
        directory, compaction.attempt, progress=progress, wrote=progress.wrote, fs=fs
    )
    try:
        for spec in specs:
            publisher.publish(spec)
        publisher.close()
    except (CordwoodError, OSError) as error:
        yield result_row(task, ERROR, _failure("", error))
        # The other tasks of the compaction wait for this one's groups: have them end.
        with suppress(OSError, CordwoodError):
            end_attempt(directory, compaction.attempt, fs=fs)
    finally:
        publisher.end()
        progress.close()


def index(
    plan: str,
    number: int,
    segments: Sequence[SegmentSource],
    clean: bool,
    shards: int,
    entries_max: int,
    fs: FileSystem,
) -> Iterator[pa.RecordBatch]:
    """The keys of a chunk by shard, and what was found on the way."""
    compaction = LogCompaction.from_json(json.loads(plan))
    progress = _progress(compaction, "index", fs)
    steps = tasks.index_chunk(
        compaction,
        segments,
        shards=shards,
        entries_max=entries_max,
        clean=clean,
        progress=progress,
        fs=fs,
    )
    counts = []
    try:
        while True:
            spill = next(steps)
            counts.append(len(spill.entries))
            for shard in range(shards):
                entries = spill.entries[spill.starts[shard] : spill.starts[shard + 1]]
                if len(entries):
                    yield _block(shard, number, spill.generation, ENTRIES, entries)
    except StopIteration as stop:
        yield _block(ASIDE, number, 0, FACTS, tasks.facts_to_json(stop.value))
        if not clean:
            yield _block(ASIDE, number, 0, COUNT, json.dumps({"keys": counts}).encode())
    except (CordwoodError, OSError) as error:
        yield _block(ASIDE, number, 0, ERROR, _failure(compaction.name, error))
    finally:
        progress.close()


def probe(
    plan: str, number: int, segments: Sequence[SegmentSource], identities: Any, fs: FileSystem
) -> Iterator[pa.RecordBatch]:
    """The records of a clean chunk that the dirty section's keys do not supersede."""
    compaction = LogCompaction.from_json(json.loads(plan))
    progress = _progress(compaction, "probe", fs)
    try:
        facts = tasks.probe_chunk(compaction, segments, identities, progress=progress, fs=fs)
    except (CordwoodError, OSError) as error:
        yield result_row(number, ERROR, _failure(compaction.name, error))
        return
    finally:
        progress.close()
    yield result_row(number, FACTS, tasks.facts_to_json(facts))


def merge_shard(table: pa.Table, seed: int, is_clean: Sequence[bool]) -> pa.Table:
    """One shard: the dirty section's blocks newest first, then the clean section's."""
    rows = table.select(["chunk", "generation", "kind"]).to_pylist()
    payloads = table.column("payload")
    out = []
    blocks = []
    for at, row in enumerate(rows):
        if row["kind"] == ENTRIES:
            blocks.append((is_clean[row["chunk"]], -row["chunk"], -row["generation"], at))
        else:
            out.append({"task": row["chunk"], "kind": row["kind"], "payload": payloads[at].as_py()})
    blocks.sort()
    entries = ((blk[0], tasks.entries_of(payloads[blk[3]].as_buffer())) for blk in blocks)
    expected = table.column("payload").nbytes // ENTRY_BYTES
    dead = merge(entries, Secrets.from_seed(seed), expected=expected)
    for (_, chunk, _, _), ordinals in zip(blocks, dead, strict=True):
        if len(ordinals):
            out.append(
                {"task": -chunk, "kind": DEAD, "payload": ordinals.astype(np.uint32).tobytes()}
            )
    return pa.Table.from_pylist(out, schema=_RESULT_SCHEMA)
