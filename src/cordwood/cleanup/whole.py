"""A whole compaction in one task, on as many cores as the task may use.

The dirty section is cut into a chunk for each core. A thread indexes each chunk into a table of its
own; then the tables are compared, newest chunk first, and no key leaves the process. Groups of
segments are rewritten by as many threads. Compiled code runs without the interpreter's lock, so
the threads run side by side.

Keys have to fit the task's memory. How many there are is not known before they are indexed, so the
attempt ends with `TableFullError` when there are too many; the log is then done in several tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from cordwood.cleanup.announcements import announce, end_attempt
from cordwood.cleanup.compaction_values import SegmentSource
from cordwood.cleanup.log_compaction import LogCompaction, split_by_bytes
from cordwood.cleanup.rewrite import RewriteSpec
from cordwood.cleanup.survivors import (
    Progress,
    SegmentFacts,
    Spill,
    Walk,
    no_progress,
)
from cordwood.cleanup.tasks import (
    Publisher,
    Survivors,
    clear_dead,
    combine,
    rewrite_specs,
    still_to_do,
    unchanged_manifest,
    walk_of,
)
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem

_T = TypeVar("_T")
_R = TypeVar("_R")


class Lane(NamedTuple):
    """What one of the threads calls with the number of bytes that it has read, or written."""

    read: Progress = no_progress
    wrote: Progress = no_progress


_ONE_LANE: Final = (Lane(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """How many keys a dirty section has, and how long it took to know what survives them."""

    elapsed_s: float
    keys: int


def clean_whole(
    compaction: LogCompaction,
    lanes: Sequence[Lane] = _ONE_LANE,
    *,
    entries_max: int | None = None,
    fs: FileSystem = OS,
) -> Indexed:
    """Compacts: every group is announced, also one that stays as it is.

    Args:
        compaction: what is to be done.
        lanes: one for each thread.
        entries_max: how many keys each thread may hold; None for any number.
        fs: where the log is.

    Raises:
        TableFullError: there are more; nothing was staged.
        EngineError: the owner of the log gave up the compaction, or is gone.
        CorruptError: a segment is damaged.
        NoSpaceError, StagingError: a staged file cannot be written.
        OSError: a segment cannot be read.
    """
    clock = SystemClock()
    begun = clock.monotonic_s()
    survivors = find_survivors(compaction, lanes, entries_max=entries_max, fs=fs)
    indexed = Indexed(elapsed_s=clock.monotonic_s() - begun, keys=survivors.keys)
    specs = rewrite_specs(compaction, survivors)
    directory = Path(compaction.directory)
    for number in range(compaction.groups_done, len(compaction.groups)):
        if number not in specs:
            manifest = unchanged_manifest(compaction, compaction.group(number), survivors)
            announce(directory, manifest, fs=fs)
    numbers = sorted(specs)
    work = [
        (lane, [specs[number] for number in numbers[first :: len(lanes)]])
        for first, lane in enumerate(lanes[: len(numbers)])
    ]
    errors: list[Exception] = []

    def rewrite(work: tuple[Lane, list[RewriteSpec]]) -> None:
        lane, groups = work
        try:
            publish_all(compaction, groups, lane, fs=fs)
        except (CordwoodError, OSError) as error:
            errors.append(error)
            # The other threads wait for this one's groups: have them end.
            with suppress(OSError, CordwoodError):
                end_attempt(directory, compaction.attempt, fs=fs)

    _side_by_side(rewrite, work)
    if errors:
        raise errors[0]  # those that come after it say that the compaction was given up
    return indexed


def publish_all(
    compaction: LogCompaction,
    specs: Sequence[RewriteSpec],
    lane: Lane,
    *,
    fs: FileSystem = OS,
) -> None:
    """Rewrites groups one after the other; returns when all are in place. Raises as `Publisher`."""
    publisher = Publisher(
        Path(compaction.directory), compaction.attempt, progress=lane.read, wrote=lane.wrote, fs=fs
    )
    try:
        for spec in specs:
            publisher.publish(spec)
        publisher.close()
    finally:
        publisher.end()


def find_survivors(
    compaction: LogCompaction,
    lanes: Sequence[Lane] = _ONE_LANE,
    *,
    entries_max: int | None = None,
    fs: FileSystem = OS,
) -> Survivors:
    """Index and probe; arguments and errors are those of `clean_whole`."""
    dirty = split_by_bytes(still_to_do(compaction, compaction.dirty), len(lanes)) or [()]
    clean = split_by_bytes(still_to_do(compaction, compaction.clean), len(lanes))
    walks = [walk_of(compaction, lane.read, fs=fs) for lane in lanes]

    def index(work: tuple[Walk, Sequence[SegmentSource]]) -> list[SegmentFacts]:
        walk, segments = work
        return _returned(walk.index(segments, entries_max=entries_max, spills=False))

    indexed = _side_by_side(index, list(zip(walks, dirty, strict=False)))
    *older, (newest, _) = zip(walks, indexed, strict=False)
    for walk, facts in reversed(older):
        clear_dead(facts, newest.add_older(walk.release_entries()))
    for walk in walks:
        walk.table = newest.table
    lookups = list(zip(walks, clean, strict=False))
    probed = _side_by_side(lambda work: work[0].probe(work[1]), lookups)
    every = [fact for facts in [*probed, *indexed] for fact in facts]
    return replace(combine(every), keys=int(newest.used[0]))


def _side_by_side(function: Callable[[_T], _R], work: Sequence[_T]) -> list[_R]:
    """The results of a function for each piece of work, in a thread for each.

    Raises:
        The error of the first piece that fails, when all have ended.
    """
    if len(work) < 2:
        return [function(each) for each in work]
    with ThreadPoolExecutor(len(work), thread_name_prefix="compaction") as pool:
        futures = [pool.submit(function, each) for each in work]
        wait(futures)
    return [future.result() for future in futures]


def _returned(steps: Generator[Spill, None, list[SegmentFacts]]) -> list[SegmentFacts]:
    """The result of a walk that keeps all keys in memory, and so yields nothing."""
    try:
        next(steps)
    except StopIteration as stop:
        facts: list[SegmentFacts] = stop.value
        return facts
    raise AssertionError("a walk without a limit spilled")
