"""Compactions on Spark: index, merge and rewrite as tasks that give a few large rows.

A log whose keys fit one task's memory is done by one task, whole; several such logs run side by
side. A large one is done by one task on all cores that the task may use, if its keys turn out to
fit. If not, it is indexed in chunks; the keys of each chunk go through the shuffle as blocks, by
shard, with 32 bytes a key; a merge of each shard says which records a newer one supersedes. Only
keys' identities, bits and counts travel: records stay in their files, which tasks read and write
themselves.

A `Runner` runs the tasks, so that a local session, a cluster and Spark Connect do the same.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cordwood.cleanup.access.commit import IndexStats
from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.commit_loop import Owner
from cordwood.cleanup.engine.segment_facts import (
    SegmentFacts,
    clear_dead,
    facts_from_json,
    set_pinned,
)
from cordwood.cleanup.engine.spark import worker
from cordwood.cleanup.engine.spark.error_text import first_line_of
from cordwood.cleanup.engine.spark.runner import Block, Row, Runner, Task
from cordwood.cleanup.engine.spark.task_limits import TaskLimits
from cordwood.cleanup.plan.compaction_values import (
    SegmentEvidence,
    failure_from_json,
)
from cordwood.cleanup.plan.log_compaction import LogCompaction, records_max, split_by_bytes
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError, EngineError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import STAGED_SUFFIX

_CHUNK_BYTES_MAX = 2 << 30
# A task that cleans whole logs has so much to do at least, as far as there are several for a slot.
_TASK_BYTES_MIN = 1 << 30
_WAVES_MAX = 4


class SparkGaveUpError(EngineError):
    """A job did not finish; its tasks may not have finished either."""


class SparkCompactions:
    """Executes compactions on a Spark session: the half of an engine that needs no owner of logs.

    Several threads may execute some at once.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        slots: int,
        cores: int = 1,
        limits: TaskLimits | None = None,
        fs: FileSystem = OS,
    ) -> None:
        """Prepares.

        Args:
            runner: runs the tasks.
            slots: how many tasks may run at once.
            cores: how many cores a task that runs alone may use.
            limits: bounds on the memory of tasks.
            fs: where the logs are; it is pickled for the tasks.
        """
        self._fs = fs
        self._runner = runner
        self._slots = slots
        self._cores = cores
        self._limits = limits or TaskLimits()

    def require_visible(self, directories: Sequence[Path]) -> None:
        """Checks that workers run tasks, and see these directories as this process does.

        Raises:
            EngineError: one does not; names it.
        """
        token = uuid.uuid4().hex[:12]
        marks = [d.absolute() / f"cordwood.seen.{token}{STAGED_SUFFIX}" for d in directories]
        fs = self._fs

        def look(task: int) -> Iterator[Row]:
            missing = [str(mark) for mark in marks if not fs.exists(mark)]
            yield Row(task, worker.ERROR, json.dumps(missing).encode())

        try:
            for mark in marks:
                fs.create(mark).close()
            rows = self._rows(4 * self._slots, look)
        except (OSError, NoSpaceError) as error:
            raise EngineError(f"the log directory cannot be written to: {error}") from error
        except SparkGaveUpError as error:
            raise EngineError(
                f"Spark's workers run no task: {error}. Each needs {sys.executable}, with "
                "cordwood[spark] of the same version as here"
            ) from error
        finally:
            for mark in marks:
                with suppress(OSError, NoSpaceError):
                    fs.remove(mark)
        missing = sorted({path for row in rows for path in json.loads(row.payload)})
        if missing:
            raise EngineError(
                f"a Spark worker cannot see {Path(missing[0]).parent}: the log directory must be "
                "on a file system that the driver and all workers share, under one path. --master "
                "local[*] cleans it here"
            )

    def execute(self, compactions: Sequence[LogCompaction], owner: Owner) -> None:
        """Executes compactions, and reports the results to their owner."""
        lanes = self._lanes_for(compactions)
        compactions = [
            self._within_limits(_shared(compaction, lanes)) for compaction in compactions
        ]
        whole, split = self._sort(compactions)
        if whole:
            with _telling(whole, owner):
                split += self._run_whole(whole, lanes, owner)
        for compaction in split:
            with _telling([compaction], owner):
                cores = min(self._cores, lanes)
                if compaction.erased is not None:  # it has no keys to be split by
                    self._run_on_cores(compaction, cores, owner)
                elif cores < 2 or not self._run_on_cores(compaction, cores, owner):
                    self._run_split(compaction, lanes, owner)

    def _within_limits(self, compaction: LogCompaction) -> LogCompaction:
        if self._limits.batch_bytes_max is None:
            return compaction
        return replace(compaction, batch_bytes_max=self._limits.batch_bytes_max)

    def _lanes_for(self, compactions: Sequence[LogCompaction]) -> int:
        """The number of tasks that may rewrite at once: fewer for large groups on limited space."""
        lanes = self._slots
        for compaction in compactions:
            space_max = compaction.attempt.limits.space_max
            if space_max is not None:
                largest = max(
                    sum(s.size_bytes for s in compaction.group(number))
                    for number in range(len(compaction.groups))
                )
                lanes = min(lanes, max(1, space_max // max(1, largest)))
        return lanes

    def _sort(
        self, compactions: Sequence[LogCompaction]
    ) -> tuple[list[LogCompaction], list[LogCompaction]]:
        total = sum(r.size_bytes for r in compactions)
        whole: list[LogCompaction] = []
        split: list[LogCompaction] = []
        for compaction in compactions:
            size = compaction.size_bytes
            small = size <= self._limits.whole_bytes or size * self._slots <= total
            (whole if small else split).append(compaction)
        return whole, split

    # ---- logs done by one task each

    def _run_whole(
        self, compactions: Sequence[LogCompaction], lanes: int, owner: Owner
    ) -> list[LogCompaction]:
        """Compacts logs in one task each; returns those whose keys do not fit, unchanged."""
        waves = self._waves(compactions) if lanes == self._slots else 1
        bins = _pack(compactions, lanes * waves)
        plans = [json.dumps([r.to_json() for r in packed]) for packed in bins]
        entries_max, fs = self._limits.entries_max, self._fs

        def run(task: int) -> Iterator[Row]:
            return worker.clean_whole(task, plans[task], 1, entries_max, fs)

        total = sum(_bytes_read(r) for r in compactions)
        owner.begin([r.name for r in compactions], "clean", total, 0)
        by_name = {r.name: r for r in compactions}
        full = []
        for row in self._rows(len(plans), run):
            found = json.loads(row.payload)
            compaction = by_name[found["round"]]
            if row.kind == worker.FULL:
                full.append(compaction)
            elif row.kind == worker.ERROR:
                owner.fail(compaction.name, failure_from_json(found))
            else:
                dirty = sum(s.size_bytes for s in compaction.dirty)
                owner.indexed(compaction.name, self._index_stats(dirty, **found["index"]))
        return full

    def _waves(self, compactions: Sequence[LogCompaction]) -> int:
        """The number of tasks for each slot: more of them even out wrong estimates of their time.

        Where there is little to do, the wait between two tasks would take longer than that.
        """
        total = sum(r.size_bytes for r in compactions)
        return min(_WAVES_MAX, max(1, total // (_TASK_BYTES_MIN * self._slots)))

    def _index_stats(
        self, bytes_read: int, *, elapsed_s: float, keys: int, cores: int = 1
    ) -> IndexStats:
        return IndexStats(
            bytes_read=bytes_read,
            elapsed_s=elapsed_s,
            keys=keys,
            utilization=min(1.0, keys / (cores * self._limits.entries_max)),
        )

    # ---- a large log done by one task on several cores

    def _run_on_cores(self, compaction: LogCompaction, cores: int, owner: Owner) -> bool:
        """Compacts a log on the cores of one task; False, and no change, if its keys do not fit."""
        plan, entries_max, fs = (
            json.dumps([compaction.to_json()]),
            self._limits.entries_max,
            self._fs,
        )

        def run(task: int) -> Iterator[Row]:
            return worker.clean_whole(task, plan, cores, entries_max, fs)

        owner.begin([compaction.name], "clean", _bytes_read(compaction, cores), 0)
        (row,) = self._rows(1, run)
        found = json.loads(row.payload)
        if row.kind == worker.FULL:
            return False
        if row.kind == worker.ERROR:
            owner.fail(compaction.name, failure_from_json(found))
        else:
            dirty = sum(s.size_bytes for s in compaction.dirty)
            owner.indexed(compaction.name, self._index_stats(dirty, **found["index"], cores=cores))
        return True

    # ---- logs split into chunks

    def _run_split(self, compaction: LogCompaction, lanes: int, owner: Owner) -> None:
        assert compaction.erased is None, "an erasure is not split"
        survivors = self._find_survivors(compaction, owner)
        if not owner.is_wanted(compaction.name):
            return
        specs = tasks.rewrite_specs(compaction, survivors)
        if compaction.is_verified and specs:
            specs = tasks.verified_specs(compaction, specs, self._find_evidence(compaction, owner))
        owner.skip(
            compaction.name,
            {
                number: tasks.unchanged_manifest(compaction, compaction.group(number), survivors)
                for number in range(compaction.groups_done, len(compaction.groups))
                if number not in specs
            },
        )
        numbers = sorted(specs)
        fs = self._fs
        count = min(lanes, len(numbers))
        work = [[specs[number] for number in numbers[i::count]] for i in range(count)]

        def run(task: int) -> Iterator[Row]:
            return worker.rewrite(task, compaction, work[task], fs)

        if not work:
            return
        total = sum(s.source.size_bytes for spec in specs.values() for s in spec.segments)
        owner.begin([compaction.name], "rewrite", total, 0)
        for error in _failures(self._rows(len(work), run)):
            owner.fail(compaction.name, error)

    def _find_survivors(self, compaction: LogCompaction, owner: Owner) -> tasks.Survivors:
        dirty = tasks.to_index(compaction)
        clean = tasks.still_to_do(compaction, compaction.clean)
        few = records_max(dirty) <= self._limits.entries_max
        if clean and few:
            return self._index_and_probe(compaction, owner, dirty, clean)
        parts = self._parts(dirty)
        chunks = [(chunk, False) for chunk in split_by_bytes(dirty, parts)]
        chunks += [(chunk, True) for chunk in split_by_bytes(clean, self._parts(clean))]
        shards = max(self._slots, -(-records_max([*dirty, *clean]) // self._limits.entries_max))
        plan, entries_max = json.dumps(compaction.to_json()), self._limits.entries_max
        seed, fs = compaction.seed, self._fs
        versions = compaction.rules.versions is not None

        def index(number: int) -> Iterator[Block]:
            segments, is_clean = chunks[number]
            return worker.index(plan, number, segments, is_clean, shards, entries_max, fs)

        def merge_shard(blocks: Sequence[Block]) -> Iterator[Row]:
            return worker.merge_shard(
                blocks, seed, [is_clean for _, is_clean in chunks], versions=versions
            )

        total = sum(s.size_bytes for s in [*dirty, *clean])
        owner.begin([compaction.name], "index", total, 0)
        begun = SystemClock().monotonic_s()
        with _errors_of_spark():
            rows = self._runner.merge(len(chunks), index, shards, merge_shard)
        _raise_errors(rows)
        self._tell_index(compaction, owner, rows, begun)
        return _survivors_from(rows)

    def _find_evidence(self, compaction: LogCompaction, owner: Owner) -> dict[int, SegmentEvidence]:
        """Has one task find the evidence, in as many passes as its memory asks for."""
        plan, entries_max = json.dumps(compaction.to_json()), self._limits.entries_max
        fs = self._fs

        def find(task: int) -> Iterator[Row]:
            return worker.evidence(task, plan, entries_max, fs)

        owner.begin([compaction.name], "verify", 2 * compaction.size_bytes, 0)
        rows = self._rows(1, find)
        _raise_errors(rows)
        return worker.evidence_from(rows)

    def _tell_index(
        self,
        compaction: LogCompaction,
        owner: Owner,
        rows: Sequence[Row],
        begun_s: float,
    ) -> None:
        """Keys of several tasks, or of a table that was spilled, count once each time."""
        counts = [json.loads(r.payload)["keys"] for r in rows if r.kind == worker.COUNT]
        fullest = max((n for keys in counts for n in keys), default=0)
        owner.indexed(
            compaction.name,
            IndexStats(
                bytes_read=sum(s.size_bytes for s in tasks.to_index(compaction)),
                elapsed_s=SystemClock().monotonic_s() - begun_s,
                keys=sum(sum(keys) for keys in counts),
                utilization=min(1.0, fullest / self._limits.entries_max),
            ),
        )

    def _index_and_probe(
        self,
        compaction: LogCompaction,
        owner: Owner,
        dirty: Sequence[SegmentSource],
        clean: Sequence[SegmentSource],
    ) -> tasks.Survivors:
        """Indexes a dirty section of few keys in one task, and probes the clean section in all."""
        plan, entries_max = json.dumps(compaction.to_json()), self._limits.entries_max
        fs = self._fs

        def index(_: int) -> Iterator[Row]:
            for block in worker.index(plan, 0, dirty, False, 1, entries_max, fs):
                yield Row(block.chunk, block.kind, block.payload)

        total = sum(s.size_bytes for s in [*dirty, *clean])
        owner.begin([compaction.name], "index", total, 0)
        begun = SystemClock().monotonic_s()
        rows = self._rows(1, index)
        _raise_errors(rows)
        self._tell_index(compaction, owner, rows, begun)
        entries = [r.payload for r in rows if r.kind == worker.ENTRIES]
        identities = np.concatenate(
            [np.empty((0, 4), dtype=np.uint64), *tasks.generations_of(entries)]
        )
        chunks = split_by_bytes(clean, self._parts(clean))

        def probe(number: int) -> Iterator[Row]:
            return worker.probe(plan, number, chunks[number], identities, fs)

        owner.begin([compaction.name], "probe", total, total // 10)
        found = self._rows(len(chunks), probe)
        _raise_errors(found)
        facts = [f for r in [*found, *rows] if r.kind == worker.FACTS for f in _facts(r)]
        return tasks.combine(facts)

    def _parts(self, segments: Sequence[SegmentSource]) -> int:
        total = sum(s.size_bytes for s in segments)
        waves = -(-total // (_CHUNK_BYTES_MAX * self._slots))
        return max(1, waves) * self._slots

    # ---- the machinery

    def _rows(self, count: int, task: Task) -> list[Row]:
        """Runs tasks to their end.

        Raises:
            SparkGaveUpError: Spark gave the job up.
        """
        with _errors_of_spark():
            return self._runner.run(count, task)


@contextmanager
def _errors_of_spark() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise SparkGaveUpError(f"Spark failed the job: {first_line_of(error)}") from error


@contextmanager
def _telling(compactions: Sequence[LogCompaction], owner: Owner) -> Iterator[None]:
    """Reports to their owner an error that stops all compactions."""
    try:
        yield
    except (OSError, CordwoodError) as error:
        for compaction in compactions:
            owner.fail(compaction.name, error)


def _bytes_read(compaction: LogCompaction, cores: int = 1) -> int:
    """The number of bytes that one task reads: to index and to write; to verify, on each core."""
    passes = 3 + cores if compaction.is_verified else 2
    return passes * compaction.size_bytes


def _shared(compaction: LogCompaction, lanes: int) -> LogCompaction:
    """A compaction whose limits are a task's share of those of the whole run."""
    attempt = compaction.attempt
    return replace(compaction, attempt=replace(attempt, limits=attempt.limits.shared(lanes)))


def _pack(compactions: Sequence[LogCompaction], bins: int) -> list[list[LogCompaction]]:
    """Compactions in at most `bins` lists of about the same number of bytes; each in their order.

    Each list gets the largest one that is left, while it is the smallest.
    """
    order = {compaction.name: number for number, compaction in enumerate(compactions)}
    packed: list[list[LogCompaction]] = [[] for _ in range(min(bins, len(compactions)))]
    loads = [0] * len(packed)
    for compaction in sorted(compactions, key=lambda r: (-r.size_bytes, r.name)):
        lightest = loads.index(min(loads))
        packed[lightest].append(compaction)
        loads[lightest] += compaction.size_bytes + 1
    return [sorted(each, key=lambda compaction: order[compaction.name]) for each in packed]


def _survivors_from(rows: Sequence[Row]) -> tasks.Survivors:
    _raise_errors(rows)
    chunks = {r.task: _facts(r) for r in rows if r.kind == worker.FACTS}
    for kind, apply in ((worker.DEAD, clear_dead), (worker.PINNED, set_pinned)):
        found: dict[int, list[Any]] = {}
        for row in rows:
            if row.kind == kind:
                found.setdefault(row.task, []).append(np.frombuffer(row.payload, dtype=np.uint32))
        for chunk, ordinals in found.items():
            apply(chunks[chunk], np.concatenate(ordinals))
    return tasks.combine([fact for chunk in sorted(chunks) for fact in chunks[chunk]])


def _facts(row: Row) -> list[SegmentFacts]:
    return facts_from_json(row.payload)


def _raise_errors(rows: Sequence[Row]) -> None:
    for error in _failures(rows):
        raise error


def _failures(rows: Sequence[Row]) -> list[CordwoodError | OSError]:
    """The errors of tasks; last those of tasks that ended because another one had failed."""
    found = [failure_from_json(json.loads(r.payload)) for r in rows if r.kind == worker.ERROR]
    return sorted(found, key=lambda error: isinstance(error, EngineError))
