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

from cordwood.cleanup.access.announcements import announce, end_attempt
from cordwood.cleanup.engine.merge import Versions, merge_versions
from cordwood.cleanup.engine.publisher import Publisher
from cordwood.cleanup.engine.search.bits import facts_without
from cordwood.cleanup.engine.segment_facts import SegmentFacts, clear_dead, set_pinned
from cordwood.cleanup.engine.survivors import Progress, Spill, Walk, no_progress
from cordwood.cleanup.engine.tasks import (
    Survivors,
    combine,
    evidence_of,
    rewrite_specs,
    still_to_do,
    to_index,
    unchanged_manifest,
    verified_specs,
    walk_of,
)
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction, split_by_bytes
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import SegmentSource

_T = TypeVar("_T")
_R = TypeVar("_R")


class Lane(NamedTuple):
    """Callbacks of one thread, with the number of bytes that it has read, or written."""

    read: Progress = no_progress
    wrote: Progress = no_progress


_ONE_LANE: Final = (Lane(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """Number of keys in a dirty section, and the time until its survivors were known."""

    elapsed_s: float
    keys: int


class WholeCompaction:
    """A compaction in one task: `index`, `rewrite`, `finish`; and `end`, whatever has happened.

    Between `rewrite` and `finish` the last groups are made durable and put in place. A task that
    has another compaction to do gathers its keys meanwhile.
    """

    def __init__(
        self,
        compaction: LogCompaction,
        lanes: Sequence[Lane] = _ONE_LANE,
        *,
        fs: FileSystem = OS,
    ) -> None:
        """Takes a lane for each thread, and where the log is."""
        self._compaction = compaction
        self._lanes = lanes
        self._fs = fs
        self._survivors = Survivors(facts={})
        self._entries_max = 0
        self._publishers: list[Publisher] = []

    def index(self, entries_max: int) -> Indexed:
        """Finds out which records survive; writes nothing.

        Args:
            entries_max: how many keys each thread may hold.

        Raises:
            TableFullError: there are more.
            EngineError: the owner of the log gave up the compaction, or is gone.
            CorruptError: a segment is damaged.
            OSError: a segment cannot be read.
        """
        clock = SystemClock()
        begun = clock.monotonic_s()
        self._entries_max = entries_max
        self._survivors = find_survivors(
            self._compaction, self._lanes, entries_max=entries_max, fs=self._fs
        )
        return Indexed(elapsed_s=clock.monotonic_s() - begun, keys=self._survivors.keys)

    def rewrite(self) -> None:
        """Writes every group; returns when all but the last of each thread are in place.

        Groups that stay as they are are announced, too.

        Raises:
            EngineError, CorruptError, OSError: as `index`.
            NoSpaceError, StagingError: a staged file cannot be written.
        """
        compaction, survivors = self._compaction, self._survivors
        specs = rewrite_specs(compaction, survivors)
        if compaction.is_verified and specs:
            reading = [lane.read for lane in self._lanes]
            evidence = evidence_of(compaction, reading, entries_max=self._entries_max, fs=self._fs)
            specs = verified_specs(compaction, specs, evidence)
        directory = Path(compaction.directory)
        for number in range(compaction.groups_done, len(compaction.groups)):
            if number not in specs:
                manifest = unchanged_manifest(compaction, compaction.group(number), survivors)
                announce(directory, manifest, fs=self._fs)
        numbers = sorted(specs)
        shares = {}
        for first, lane in enumerate(self._lanes[: len(numbers)]):
            publisher = publisher_of(compaction, lane, fs=self._fs)
            self._publishers.append(publisher)
            shares[publisher] = [specs[number] for number in numbers[first :: len(self._lanes)]]

        def publish(publisher: Publisher) -> None:
            for spec in shares[publisher]:
                publisher.publish(spec)

        self._each(publish)

    def finish(self) -> None:
        """Returns when every group is in place. Raises as `rewrite`."""
        self._each(Publisher.close)

    def end(self) -> None:
        """Returns when nothing more will be staged or announced."""
        for publisher in self._publishers:
            publisher.end()

    def _each(self, step: Callable[[Publisher], None]) -> None:
        """Does something with all publishers side by side.

        Raises:
            The first error: those after it say that the compaction was given up.
        """
        errors: list[Exception] = []

        def attempt(publisher: Publisher) -> None:
            try:
                step(publisher)
            except (CordwoodError, OSError) as error:
                errors.append(error)
                # The other threads wait for this one's groups: have them end.
                with suppress(OSError, CordwoodError):
                    directory = Path(self._compaction.directory)
                    end_attempt(directory, self._compaction.attempt.token, fs=self._fs)

        _side_by_side(attempt, self._publishers)
        if errors:
            raise errors[0]


def publish_all(
    compaction: LogCompaction,
    specs: Sequence[RewriteSpec],
    lane: Lane,
    *,
    fs: FileSystem = OS,
) -> None:
    """Rewrites groups one after the other; returns when all are in place. Raises as `Publisher`."""
    publisher = publisher_of(compaction, lane, fs=fs)
    try:
        for spec in specs:
            publisher.publish(spec)
        publisher.close()
    finally:
        publisher.end()


def publisher_of(compaction: LogCompaction, lane: Lane, *, fs: FileSystem = OS) -> Publisher:
    """Publishes groups of a compaction."""
    return Publisher(
        Path(compaction.directory),
        compaction.attempt.token,
        progress=lane.read,
        wrote=lane.wrote,
        fs=fs,
    )


def find_survivors(
    compaction: LogCompaction,
    lanes: Sequence[Lane] = _ONE_LANE,
    *,
    entries_max: int,
    fs: FileSystem = OS,
) -> Survivors:
    """Indexes and probes; arguments and errors are those of `WholeCompaction.index`.

    Of an erasure, which knows its offsets, nothing has to be indexed.
    """
    if compaction.erased is not None:
        return _bits_of_erasure(compaction, lanes, fs=fs)
    dirty = split_by_bytes(to_index(compaction), len(lanes)) or [()]
    clean = split_by_bytes(still_to_do(compaction, compaction.clean), len(lanes))
    walks = [walk_of(compaction, lane.read, fs=fs) for lane in lanes]

    def index(work: tuple[Walk, Sequence[SegmentSource]]) -> list[SegmentFacts]:
        walk, segments = work
        return _returned(walk.index(segments, entries_max=entries_max, spills=False))

    indexed = _side_by_side(index, list(zip(walks, dirty, strict=False)))
    if compaction.rules.versions is not None:
        keys = _merge_versions(compaction, walks[: len(indexed)], indexed)
        return replace(combine([fact for facts in indexed for fact in facts]), keys=keys)
    *older, (newest, _) = zip(walks, indexed, strict=False)
    for walk, facts in reversed(older):
        clear_dead(facts, newest.add_older(walk.release_entries()))
    for walk in walks:
        walk.table = newest.table
    lookups = list(zip(walks, clean, strict=False))
    probed = _side_by_side(lambda work: work[0].probe(work[1]), lookups)
    every = [fact for facts in [*probed, *indexed] for fact in facts]
    return replace(combine(every), keys=int(newest.used[0]))


def _merge_versions(
    compaction: LogCompaction, walks: Sequence[Walk], indexed: Sequence[list[SegmentFacts]]
) -> int:
    """Settles which records of several chunks have the highest versions; how many keys there are.

    That of the only chunk knows already.
    """
    if len(walks) < 2:
        return int(walks[0].used[0])
    chunks = [Versions(number, walk.release_entries()) for number, walk in enumerate(walks)]
    expected = max(len(chunk.entries) for chunk in chunks)
    verdicts = merge_versions(chunks, Secrets.from_seed(compaction.seed), expected=expected)
    keys = 0
    for chunk, facts, (dead, pinned) in zip(chunks, indexed, verdicts, strict=True):
        clear_dead(facts, dead)
        set_pinned(facts, pinned)
        keys += len(chunk.entries) - len(dead)
    return keys


def _bits_of_erasure(
    compaction: LogCompaction, lanes: Sequence[Lane], *, fs: FileSystem
) -> Survivors:
    chunks = split_by_bytes(still_to_do(compaction, compaction.segments), len(lanes))
    found = _side_by_side(
        lambda work: facts_without(compaction, work[1], progress=work[0].read, fs=fs),
        list(zip(lanes, chunks, strict=False)),
    )
    return combine([fact for facts in found for fact in facts])


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
