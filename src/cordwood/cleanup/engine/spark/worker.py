"""The work of Spark's workers, and the rows of their answers.

Every function here is one task of a compaction, or one shard of a merge: plain values in, rows out.
Of records only keys' identities, bits and counts travel.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cordwood.cleanup.access.announcements import end_attempt
from cordwood.cleanup.engine import tasks, whole
from cordwood.cleanup.engine.merge import Versions, merge, merge_versions
from cordwood.cleanup.engine.progress_file import ProgressFile
from cordwood.cleanup.engine.segment_facts import facts_to_json
from cordwood.cleanup.engine.spark.runner import Block, Row
from cordwood.cleanup.engine.survivors import ENTRY_BYTES, TableFullError
from cordwood.cleanup.engine.whole import Lane
from cordwood.cleanup.plan.compaction_values import SegmentEvidence, failure_to_json
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction, records_max
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.reading.source import SegmentSource

# Facts and errors pass the merge as a shard of their own.
ASIDE = -1
ENTRIES, FACTS, ERROR, DEAD, COUNT, FULL, EVIDENCE, PINNED = range(8)
# A block of entries travels as it is, and is held several times on its way.
_BLOCK_ENTRIES_MAX = (1 << 20) // ENTRY_BYTES


def _failure(name: str, error: Exception) -> bytes:
    return json.dumps({"round": name} | failure_to_json(error)).encode()


def clean_whole(
    task: int, plan: str, cores: int, entries_max: int, fs: FileSystem
) -> Iterator[Row]:
    """Indexes, probes and rewrites some logs, one after the other, each on so many cores.

    While the last groups of a log are put in place, the keys of the next one are gathered. A log
    with more keys than `entries_max` for each core is left as it is; after it, so is every log
    that may have more by its offsets: to find out takes as long as to gather the keys.
    """
    before: Iterator[Row | None] = iter(())
    is_full = False
    for value in json.loads(plan):
        compaction = LogCompaction.from_json(value)
        if is_full and records_max(compaction.dirty) > entries_max:
            error = TableFullError(f"it may have more than {entries_max} keys")
            yield Row(task, FULL, _failure(compaction.name, error))
            continue
        steps = _clean_one(task, compaction, cores, entries_max, fs)
        for row in _next_step(steps):  # its keys
            is_full |= row.kind == FULL
            yield row
        yield from _next_step(before)
        yield from _next_step(steps)  # its groups
        before = steps
    yield from _next_step(before)


def _next_step(steps: Iterator[Row | None]) -> Iterator[Row]:
    """The rows of a compaction's next step."""
    for row in steps:
        if row is None:
            return
        yield row


def _clean_one(
    task: int, compaction: LogCompaction, cores: int, entries_max: int, fs: FileSystem
) -> Iterator[Row | None]:
    """The rows of one log; None after its keys are gathered, and after its groups are written."""
    progress = [_progress(compaction, "clean", fs, sharing=cores) for _ in range(cores)]
    work = whole.WholeCompaction(compaction, [Lane(each, each.wrote) for each in progress], fs=fs)
    try:
        index = work.index(entries_max)
        yield None
        work.rewrite()
        yield None
        work.finish()
        report = {"round": compaction.name, "index": asdict(index)}
        yield Row(task, COUNT, json.dumps(report).encode())
    except TableFullError as error:
        for each in progress:
            each.discard()
        yield Row(task, FULL, _failure(compaction.name, error))
    except (CordwoodError, OSError) as error:
        yield Row(task, ERROR, _failure(compaction.name, error))
    finally:
        work.end()
        for each in progress:
            each.close()


def _progress(
    compaction: LogCompaction, phase: str, fs: FileSystem, *, sharing: int = 1
) -> ProgressFile:
    rate = compaction.attempt.limits.throttle_bytes
    return ProgressFile(
        compaction.directory,
        compaction.attempt.token,
        phase,
        bytes_per_s=None if rate is None else max(1, rate // sharing),
        fs=fs,
    )


def rewrite(
    task: int, compaction: LogCompaction, specs: Sequence[RewriteSpec], fs: FileSystem
) -> Iterator[Row]:
    """Rewrites groups, one after the other; answers with what went wrong, if anything did."""
    directory = Path(compaction.directory)
    progress = _progress(compaction, "rewrite", fs)
    try:
        whole.publish_all(compaction, specs, Lane(progress, progress.wrote), fs=fs)
    except (CordwoodError, OSError) as error:
        yield Row(task, ERROR, _failure("", error))
        # The other tasks of the compaction wait for this one's groups: have them end.
        with suppress(OSError, CordwoodError):
            end_attempt(directory, compaction.attempt.token, fs=fs)
    finally:
        progress.close()


def evidence(task: int, plan: str, entries_max: int, fs: FileSystem) -> Iterator[Row]:
    """The evidence that what is written will be compared with, a row a segment."""
    compaction = LogCompaction.from_json(json.loads(plan))
    progress = _progress(compaction, "verify", fs)
    try:
        found = tasks.evidence_of(compaction, [progress], entries_max=entries_max, fs=fs)
    except (CordwoodError, OSError) as error:
        yield Row(task, ERROR, _failure(compaction.name, error))
        return
    finally:
        progress.close()
    for each in found.values():
        value = {
            "base_offset": each.base_offset,
            "must_stay": base64.b64encode(each.must_stay).decode(),
            "aborted": base64.b64encode(each.aborted).decode(),
        }
        yield Row(task, EVIDENCE, json.dumps(value).encode())


def evidence_from(rows: Sequence[Row]) -> dict[int, SegmentEvidence]:
    """The evidence in rows, by base offset."""
    values = [json.loads(row.payload) for row in rows if row.kind == EVIDENCE]
    return {
        value["base_offset"]: SegmentEvidence(
            base_offset=value["base_offset"],
            must_stay=base64.b64decode(value["must_stay"]),
            aborted=base64.b64decode(value["aborted"]),
        )
        for value in values
    }


def index(
    plan: str,
    number: int,
    segments: Sequence[SegmentSource],
    clean: bool,
    shards: int,
    entries_max: int,
    fs: FileSystem,
) -> Iterator[Block]:
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
                for first in range(0, len(entries), _BLOCK_ENTRIES_MAX):
                    piece = entries[first : first + _BLOCK_ENTRIES_MAX].tobytes()
                    yield Block(shard, number, spill.generation, ENTRIES, piece)
    except StopIteration as stop:
        yield Block(ASIDE, number, 0, FACTS, facts_to_json(stop.value))
        if not clean:
            yield Block(ASIDE, number, 0, COUNT, json.dumps({"keys": counts}).encode())
    except (CordwoodError, OSError) as error:
        yield Block(ASIDE, number, 0, ERROR, _failure(compaction.name, error))
    finally:
        progress.close()


def probe(
    plan: str, number: int, segments: Sequence[SegmentSource], identities: Any, fs: FileSystem
) -> Iterator[Row]:
    """The records of a clean chunk that the dirty section's keys do not supersede."""
    compaction = LogCompaction.from_json(json.loads(plan))
    progress = _progress(compaction, "probe", fs)
    try:
        facts = tasks.probe_chunk(compaction, segments, identities, progress=progress, fs=fs)
    except (CordwoodError, OSError) as error:
        yield Row(number, ERROR, _failure(compaction.name, error))
        return
    finally:
        progress.close()
    yield Row(number, FACTS, facts_to_json(facts))


def merge_shard(
    blocks: Sequence[Block], seed: int, is_clean: Sequence[bool], *, versions: bool
) -> Iterator[Row]:
    """Merges one shard: the dirty section's blocks newest first, then the clean section's."""
    entries = []
    for block in blocks:
        if block.kind == ENTRIES:
            entries.append(block)
        else:
            yield Row(block.chunk, block.kind, block.payload)
    if versions:
        yield from _merge_versions(entries, seed)
        return
    entries.sort(key=lambda block: (is_clean[block.chunk], -block.chunk, -block.generation))
    size = sum(len(block.payload) for block in entries)
    dead = merge(
        ((is_clean[block.chunk], tasks.entries_of(block.payload)) for block in entries),
        Secrets.from_seed(seed),
        expected=size // ENTRY_BYTES,
    )
    for block, ordinals in zip(entries, dead, strict=True):
        if len(ordinals):
            yield Row(block.chunk, DEAD, ordinals.astype(np.uint32).tobytes())


def _merge_versions(blocks: Sequence[Block], seed: int) -> Iterator[Row]:
    """Merges one shard of a log whose records have versions: its blocks, the oldest first."""
    blocks = sorted(blocks, key=lambda block: (block.chunk, block.generation))
    generations = [Versions(block.chunk, tasks.versions_of(block.payload)) for block in blocks]
    expected = sum(len(each.entries) for each in generations)
    verdicts = merge_versions(generations, Secrets.from_seed(seed), expected=expected)
    for block, (dead, pinned) in zip(blocks, verdicts, strict=True):
        if len(dead):
            yield Row(block.chunk, DEAD, dead.astype(np.uint32).tobytes())
        if len(pinned):
            yield Row(block.chunk, PINNED, pinned.astype(np.uint32).tobytes())
