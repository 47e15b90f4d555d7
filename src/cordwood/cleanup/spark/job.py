"""Rounds on Spark: index, merge and rewrite as DataFrames of a few large rows.

A log whose keys fit one task's memory is done by one task, whole; several such logs run side by
side. A larger one is indexed in chunks; the keys of each chunk go through the shuffle as blocks of
32 bytes a key, a row a shard; a merge of each shard says which records a newer one supersedes. Only
keys' identities, bits and counts travel: records stay in their files, which tasks read and write
themselves.

Only the DataFrame API is used, so that a local session, a cluster and Spark Connect run the same.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from cordwood.cleanup import tasks
from cordwood.cleanup.announcements import CANCEL_NAME, progress_bytes
from cordwood.cleanup.commit import RoundCommitter
from cordwood.cleanup.rewrite import RewriteSpec
from cordwood.cleanup.round import Round, records_max, split_by_bytes
from cordwood.cleanup.round_values import SegmentSource
from cordwood.cleanup.survivors import ENTRY_BYTES, Secrets, SegmentFacts, merge
from cordwood.model.clock import SystemClock, pause
from cordwood.model.errors import CordwoodError, CorruptError, EngineError, NoSpaceError
from cordwood.storage.replace import STAGED_SUFFIX

_POLL_S = 0.01
# Facts and errors pass the merge as a shard of their own.
_ASIDE = -1
_ENTRIES, _FACTS, _ERROR, _DEAD = range(4)
_KINDS: dict[str, type[CordwoodError]] = {
    "no space": NoSpaceError,
    "engine": EngineError,
    "corrupt": CorruptError,
}
_BLOCK_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("chunk", pa.int32()),
        ("generation", pa.int32()),
        ("kind", pa.int8()),
        ("payload", pa.binary()),
    ]
)
_BLOCK_DDL = "shard int, chunk int, generation int, kind byte, payload binary"
_RESULT_SCHEMA = pa.schema([("task", pa.int32()), ("kind", pa.int8()), ("payload", pa.binary())])
_RESULT_DDL = "task int, kind byte, payload binary"

#: Keys a task holds before it spills; a table of so many takes 64 MiB.
ENTRIES_MAX = 1_015_808
#: Logs of up to so many bytes are never split.
_WHOLE_BYTES = 64 << 20
_CHUNK_BYTES_MAX = 2 << 30
# A process with its libraries and buffers; what a key takes in a half-full table and in blocks.
_PROCESS_BYTES = 220 << 20
_BYTES_A_KEY = 120
_ENTRIES_FLOOR, _ENTRIES_CEILING = 1 << 17, 1 << 22
_SLACK_ENTRIES = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the memory of tasks.

    `entries_max` is how many keys a task holds; `whole_bytes` the size up to which a log is done by
    one task even where others are idle.
    """

    entries_max: int = ENTRIES_MAX
    whole_bytes: int = _WHOLE_BYTES

    @classmethod
    def within(cls, memory_bytes: int, slots: int) -> Limits:
        """Limits for which the driver and `slots` workers together stay within `memory_bytes`."""
        each = memory_bytes // (slots + 1) - _PROCESS_BYTES
        wanted = max(_ENTRIES_FLOOR, min(_ENTRIES_CEILING, each // _BYTES_A_KEY))
        # A table doubles when it is half full: fill it just short of that.
        doublings = (wanted + _SLACK_ENTRIES).bit_length() - 1
        return cls(entries_max=(1 << doublings) - _SLACK_ENTRIES)


@dataclass(slots=True)
class Watch:
    """Tells a driver's caller what goes on: (round's name, phase, bytes done, bytes in all)."""

    report: Callable[[str, str, int, int], None] = lambda *_: None


class SparkEngine:
    """Runs rounds on a Spark session; several threads may run some at once."""

    def __init__(
        self, session: Any, *, slots: int, limits: Limits | None = None, watch: Watch | None = None
    ) -> None:
        self._session = session
        self._slots = slots
        self._limits = limits or Limits()
        self._watch = watch or Watch()
        session.conf.set("spark.sql.shuffle.partitions", str(slots))

    def require_visible(self, directories: Sequence[Path]) -> None:
        """Checks that workers see these directories as this process does.

        Raises:
            EngineError: one does not; names it.
        """
        token = uuid.uuid4().hex[:12]
        marks = [d.resolve() / f"cordwood.seen.{token}{STAGED_SUFFIX}" for d in directories]
        paths = [str(mark) for mark in marks]

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                missing = [path for path in paths if not Path(path).exists()]
                for task in batch.column(0).to_pylist():
                    yield _result(task, _ERROR, json.dumps(missing).encode())

        try:
            for mark in marks:
                mark.touch()
            rows = self._tasks(4 * self._slots, look).toArrow().to_pylist()
        except OSError as error:
            raise EngineError(f"the log directory cannot be written to: {error}") from error
        finally:
            for mark in marks:
                mark.unlink(missing_ok=True)
        missing = sorted({path for row in rows for path in json.loads(row["payload"])})
        if missing:
            raise EngineError(
                f"a Spark worker cannot see {Path(missing[0]).parent}: the log directory must be "
                "on a file system that the driver and all workers share, under one path. --master "
                "local[*] cleans it here"
            )

    def run(self, committers: Sequence[RoundCommitter]) -> None:
        """Runs every round; afterwards each committer is done or has an error in its result."""
        lanes = self._lanes_for([c.round for c in committers])
        for committer in committers:
            committer.round = _shared(committer.round, lanes)
        whole, split = self._sort(committers)
        if whole:
            self._run_whole(whole, lanes)
        for committer in split:
            self._run_split(committer, lanes)

    def _lanes_for(self, rounds: Sequence[Round]) -> int:
        """How many tasks may rewrite at once: fewer where space is limited and groups are large."""
        lanes = self._slots
        for round_ in rounds:
            if round_.space_max is not None:
                largest = max(
                    sum(s.size_bytes for s in round_.group(number))
                    for number in range(len(round_.groups))
                )
                lanes = min(lanes, max(1, round_.space_max // max(1, largest)))
        return lanes

    def _sort(
        self, committers: Sequence[RoundCommitter]
    ) -> tuple[list[RoundCommitter], list[RoundCommitter]]:
        total = sum(c.round.size_bytes for c in committers)
        whole: list[RoundCommitter] = []
        split: list[RoundCommitter] = []
        for committer in committers:
            size = committer.round.size_bytes
            fits = records_max(committer.round.dirty) <= self._limits.entries_max
            small = size <= self._limits.whole_bytes or size * self._slots <= total
            (whole if fits and small else split).append(committer)
        return whole, split

    # ---- logs done by one task each

    def _run_whole(self, committers: list[RoundCommitter], lanes: int) -> None:
        rounds = [c.round for c in committers]
        bins = _pack(rounds, 2 * self._slots if lanes == self._slots else lanes)
        plans = [json.dumps([r.to_json() for r in rounds]) for rounds in bins]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from _clean_whole(task, plans[task])

        total = sum(c.round.size_bytes for c in committers)
        rows = self._supervise(self._tasks(len(plans), run), committers, "clean", 2 * total)
        by_name = {c.round.name: c for c in committers}
        for row in rows:
            if row["kind"] == _ERROR:
                failure = json.loads(row["payload"])
                result = by_name[failure["round"]].result
                # A task that was told to end has nothing new to say.
                result.error = result.error or _error_of(failure)
        for committer in committers:
            if not committer.done and committer.result.error is None:
                committer.result.error = EngineError("its task ended without a word")

    # ---- logs split into chunks

    def _run_split(self, committer: RoundCommitter, lanes: int) -> None:
        round_ = committer.round
        try:
            survivors = self._find_survivors(committer)
        except (OSError, CordwoodError) as error:
            committer.result.error = committer.result.error or error
        if committer.result.error is not None:
            return
        specs = tasks.rewrite_specs(round_, survivors)
        committer.skip(
            {
                number: tasks.unchanged_manifest(round_, round_.group(number), survivors)
                for number in range(round_.groups_done, len(round_.groups))
                if number not in specs
            }
        )
        numbers = sorted(specs)
        throttle = round_.throttle_bytes
        count = min(lanes, len(numbers))
        work = [[specs[number] for number in numbers[i::count]] for i in range(count)]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from _rewrite(task, work[task], throttle)

        if not work:
            self._poll([committer])
            return
        total = sum(s.source.size_bytes for spec in specs.values() for s in spec.segments)
        rows = self._supervise(self._tasks(len(work), run), [committer], "rewrite", total)
        for row in rows:
            if row["kind"] == _ERROR and committer.result.error is None:
                committer.result.error = _error_of(json.loads(row["payload"]))

    def _find_survivors(self, committer: RoundCommitter) -> tasks.Survivors:
        round_ = committer.round
        dirty = tasks.still_to_do(round_, round_.dirty)
        clean = tasks.still_to_do(round_, round_.clean)
        few = records_max(dirty) <= self._limits.entries_max
        if clean and few:
            return self._index_and_probe(committer, dirty, clean)
        parts = self._parts(dirty)
        chunks = [(chunk, False) for chunk in split_by_bytes(dirty, parts)]
        chunks += [(chunk, True) for chunk in split_by_bytes(clean, self._parts(clean))]
        shards = max(self._slots, -(-records_max([*dirty, *clean]) // self._limits.entries_max))
        plan, entries_max = json.dumps(round_.to_json()), self._limits.entries_max
        seed = round_.seed

        def index(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    segments, is_clean = chunks[number]
                    yield from _index(plan, number, segments, is_clean, shards, entries_max)

        def merge_shard(table: pa.Table) -> pa.Table:
            return _merge(table, seed, [is_clean for _, is_clean in chunks])

        frame = self._tasks(len(chunks), index, _BLOCK_DDL)
        merged = frame.groupBy("shard").applyInArrow(merge_shard, _RESULT_DDL)
        total = sum(s.size_bytes for s in [*dirty, *clean])
        rows = self._supervise(merged, [committer], "index", total)
        return _survivors_from(rows)

    def _index_and_probe(
        self,
        committer: RoundCommitter,
        dirty: Sequence[SegmentSource],
        clean: Sequence[SegmentSource],
    ) -> tasks.Survivors:
        """For a dirty section of few keys: one task indexes it, all look up the clean section."""
        plan, entries_max = json.dumps(committer.round.to_json()), self._limits.entries_max

        def index(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                yield from _index(plan, 0, dirty, False, 1, entries_max)

        total = sum(s.size_bytes for s in [*dirty, *clean])
        rows = self._supervise(self._tasks(1, index, _BLOCK_DDL), [committer], "index", total)
        _raise_errors(rows)
        entries = [r["payload"] for r in rows if r["kind"] == _ENTRIES]
        identities = np.concatenate(
            [np.empty((0, 4), dtype=np.uint64), *tasks.generations_of(entries)]
        )
        chunks = split_by_bytes(clean, self._parts(clean))

        def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _probe(plan, number, chunks[number], identities)

        found = self._supervise(
            self._tasks(len(chunks), probe), [committer], "probe", total, done=total // 10
        )
        _raise_errors(found)
        facts = [f for r in [*found, *rows] if r["kind"] == _FACTS for f in _facts(r)]
        return tasks.combine(facts)

    def _parts(self, segments: Sequence[SegmentSource]) -> int:
        total = sum(s.size_bytes for s in segments)
        rounds = -(-total // (_CHUNK_BYTES_MAX * self._slots))
        return max(1, rounds) * self._slots

    # ---- the machinery

    def _tasks(
        self,
        count: int,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        ddl: str = _RESULT_DDL,
    ) -> Any:
        """A frame made by `count` tasks; each is given its number."""
        return self._session.range(0, count, 1, count).mapInArrow(function, ddl)

    def _supervise(
        self,
        frame: Any,
        committers: Sequence[RoundCommitter],
        phase: str,
        total: int,
        done: int = 0,
    ) -> list[dict[str, Any]]:
        """Runs a frame to its end while groups are put in place as they are announced.

        Raises:
            EngineError: Spark gave the job up.
        """
        clock = SystemClock()
        name = committers[0].round.name if len(committers) == 1 else f"{len(committers)} partitions"
        directories = sorted({Path(c.round.directory) for c in committers})
        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-job")
        future: Future[pa.Table] = pool.submit(frame.toArrow)
        pool.shutdown(wait=False)
        shown_at = 0.0
        while not future.done():
            moved = self._poll(committers)
            now = clock.monotonic_s()
            if now - shown_at > 0.25:
                shown_at = now
                counted = sum(progress_bytes(d, phase) for d in directories)
                self._watch.report(name, phase, min(done + counted, total), total)
            if not moved:
                pause(_POLL_S)
        self._poll(committers)
        try:
            rows: list[dict[str, Any]] = future.result().to_pylist()
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            for committer in committers:
                if not committer.done and committer.result.error is None:
                    committer.result.error = EngineError(f"Spark gave the job up: {first}")
            raise EngineError(f"Spark gave the job up: {first}") from error
        self._watch.report(name, phase, total, total)
        return rows

    def _poll(self, committers: Sequence[RoundCommitter]) -> bool:
        moved = False
        for committer in committers:
            if committer.done or committer.result.error is not None:
                continue
            try:
                moved |= committer.poll()
            except (OSError, CordwoodError) as error:
                committer.give_up(error)
        return moved


def _shared(round_: Round, lanes: int) -> Round:
    """A round whose limits are a task's share of those of the whole run."""
    space, rate = round_.space_max, round_.throttle_bytes
    return replace(
        round_,
        space_max=None if space is None else space // lanes,
        throttle_bytes=None if rate is None else max(1, rate // lanes),
    )


def _pack(rounds: Sequence[Round], bins: int) -> list[list[Round]]:
    """Rounds in at most `bins` lists of about the same number of bytes, largest first."""
    packed: list[list[Round]] = [[] for _ in range(min(bins, len(rounds)))]
    loads = [0] * len(packed)
    for round_ in sorted(rounds, key=lambda r: (-r.size_bytes, r.name)):
        lightest = loads.index(min(loads))
        packed[lightest].append(round_)
        loads[lightest] += round_.size_bytes + 1
    return packed


def _survivors_from(rows: list[dict[str, Any]]) -> tasks.Survivors:
    _raise_errors(rows)
    chunks = {r["task"]: _facts(r) for r in rows if r["kind"] == _FACTS}
    dead: dict[int, list[Any]] = {}
    for row in rows:
        if row["kind"] == _DEAD:
            dead.setdefault(row["task"], []).append(np.frombuffer(row["payload"], dtype=np.uint32))
    for chunk, ordinals in dead.items():
        tasks.clear_dead(chunks[chunk], np.concatenate(ordinals))
    return tasks.combine([fact for chunk in sorted(chunks) for fact in chunks[chunk]])


def _facts(row: dict[str, Any]) -> list[SegmentFacts]:
    return tasks.facts_from_json(row["payload"])


def _raise_errors(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["kind"] == _ERROR:
            raise _error_of(json.loads(row["payload"]))


def _result(task: int, kind: int, payload: bytes) -> pa.RecordBatch:
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
    """A task's error as it travels; what the log's owner makes of it depends on its kind."""
    system = [error.errno, error.strerror, str(error.filename)] if _is_of_system(error) else None
    kind = next((kind for kind, known in _KINDS.items() if isinstance(error, known)), "")
    return json.dumps({"round": name, "error": str(error), "kind": kind, "system": system}).encode()


def _is_of_system(error: Exception) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno is not None


def _error_of(failure: dict[str, Any]) -> CordwoodError | OSError:
    if failure["system"] is not None:
        return OSError(*failure["system"])
    return _KINDS.get(failure["kind"], CordwoodError)(failure["error"])


def _clean_whole(task: int, plan: str) -> Iterator[pa.RecordBatch]:
    """Index, probe and rewrite of some small logs, one after the other."""
    for value in json.loads(plan):
        round_ = Round.from_json(value)
        progress = _progress(round_, "clean")
        try:
            tasks.clean_whole(round_, progress)
        except (CordwoodError, OSError) as error:
            yield _result(task, _ERROR, _failure(round_.name, error))
        finally:
            progress.close()


def _progress(round_: Round, phase: str) -> tasks.ProgressFile:
    return tasks.ProgressFile(round_.directory, phase, bytes_per_s=round_.throttle_bytes)


def _rewrite(
    task: int, specs: Sequence[RewriteSpec], throttle: int | None
) -> Iterator[pa.RecordBatch]:
    progress = tasks.ProgressFile(specs[0].staged.directory, "rewrite", bytes_per_s=throttle)
    publisher = tasks.Publisher(progress)
    try:
        for spec in specs:
            publisher.publish(spec)
        publisher.close()
    except (CordwoodError, OSError) as error:
        yield _result(task, _ERROR, _failure("", error))
        # The other tasks of the round wait for this one's groups: let them go.
        (Path(specs[0].staged.directory) / CANCEL_NAME).touch()
    finally:
        publisher.end()
        progress.close()


def _index(
    plan: str,
    number: int,
    segments: Sequence[SegmentSource],
    clean: bool,
    shards: int,
    entries_max: int,
) -> Iterator[pa.RecordBatch]:
    round_ = Round.from_json(json.loads(plan))
    progress = _progress(round_, "index")
    steps = tasks.index_chunk(
        round_, segments, shards=shards, entries_max=entries_max, clean=clean, progress=progress
    )
    try:
        while True:
            spill = next(steps)
            for shard in range(shards):
                entries = spill.entries[spill.starts[shard] : spill.starts[shard + 1]]
                if len(entries):
                    yield _block(shard, number, spill.generation, _ENTRIES, entries)
    except StopIteration as stop:
        yield _block(_ASIDE, number, 0, _FACTS, tasks.facts_to_json(stop.value))
    except (CordwoodError, OSError) as error:
        yield _block(_ASIDE, number, 0, _ERROR, _failure(round_.name, error))
    finally:
        progress.close()


def _probe(
    plan: str, number: int, segments: Sequence[SegmentSource], identities: Any
) -> Iterator[pa.RecordBatch]:
    round_ = Round.from_json(json.loads(plan))
    progress = _progress(round_, "probe")
    try:
        facts = tasks.probe_chunk(round_, segments, identities, progress=progress)
    except (CordwoodError, OSError) as error:
        yield _result(number, _ERROR, _failure(round_.name, error))
        return
    finally:
        progress.close()
    yield _result(number, _FACTS, tasks.facts_to_json(facts))


def _merge(table: pa.Table, seed: int, is_clean: Sequence[bool]) -> pa.Table:
    """One shard: the dirty section's blocks newest first, then the clean section's."""
    rows = table.select(["chunk", "generation", "kind"]).to_pylist()
    payloads = table.column("payload")
    out = []
    blocks = []
    for at, row in enumerate(rows):
        if row["kind"] == _ENTRIES:
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
                {"task": -chunk, "kind": _DEAD, "payload": ordinals.astype(np.uint32).tobytes()}
            )
    return pa.Table.from_pylist(out, schema=_RESULT_SCHEMA)
