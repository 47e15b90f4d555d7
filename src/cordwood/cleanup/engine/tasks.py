"""The work of a compaction, cut into tasks that know no engine: plain values in, plain values out.

A task may run twice, or die: it writes only staged files under a name of its own, and says what it
made in a manifest that appears at once or not at all. It never waits for anything but the owner of
the log putting its last group in place, which is what bounds the extra space.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.access.announcements import (
    announce,
    progress_path,
    require_wanted,
    staging_errors,
    write_progress,
)
from cordwood.cleanup.engine.output import Output
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.survivors import Progress, SegmentFacts, Spill, Walk, no_progress
from cordwood.cleanup.plan.compaction_values import Manifest, RewrittenSegment, SegmentEvidence
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec, SurvivingSegment
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.cleanup.verification.evidence import Scope, find_evidence
from cordwood.cleanup.verification.group import verify_group
from cordwood.format.native import key_table
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.errors import EngineError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import StagedSegment

_WAIT_S = 0.005
_THROTTLE_STEP_S = 0.2
# What a task did not use of its rate for longer is lost, as in Kafka's Throttler.
_THROTTLE_WINDOW_S = 0.3
_WAIT_MAX_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """The final bits of every segment of a compaction, by base offset, and what they amount to.

    `keys` is how many the dirty section has, 0 where that was not counted.
    """

    facts: dict[int, SegmentFacts]
    keys: int = 0

    def unchanged(self, group: Sequence[SegmentSource]) -> bool:
        """Whether a group is one segment that loses nothing and needs no stamp."""
        if len(group) != 1:
            return False
        facts = self.facts[group[0].base_offset]
        return (
            not facts.special
            and count_set(facts.keep) == facts.records
            and not any(removable_by_age(facts.expired, facts.pinned))
        )


def removable_by_age(expired: bytes, pinned: bytes) -> bytes:
    """The bits of the records that a rule removes and that are not pinned."""
    left = int.from_bytes(expired, "little") & ~int.from_bytes(pinned, "little")
    return left.to_bytes(len(expired), "little")


def count_set(bits: bytes) -> int:
    """How many bits are set."""
    return int.from_bytes(bits, "little").bit_count()


def walk_of(
    compaction: LogCompaction, progress: Progress = no_progress, *, fs: FileSystem = OS
) -> Walk:
    """A walk over a compaction's segments."""
    return Walk(
        first_dirty=compaction.first_dirty,
        aborted=AbortedTransactions(compaction.aborted),
        secrets=Secrets.from_seed(compaction.seed),
        batch_bytes_max=compaction.batch_bytes_max,
        progress=progress,
        rules=compaction.rules,
        fs=fs,
    )


def index_chunk(
    compaction: LogCompaction,
    segments: Sequence[SegmentSource],
    *,
    shards: int,
    entries_max: int,
    clean: bool,
    progress: Progress = no_progress,
    fs: FileSystem = OS,
) -> Generator[Spill, None, list[SegmentFacts]]:
    """Yields the keys of some consecutive segments by shard, and returns the segments' facts.

    With `clean`, the keys of records below the first dirty offset, to be looked up; else those of
    records at or above it.
    """
    walk = walk_of(compaction, progress, fs=fs)
    step = walk.spill_clean if clean else walk.index
    return (yield from step(segments, entries_max=entries_max, shards=shards))


def probe_chunk(
    compaction: LogCompaction,
    segments: Sequence[SegmentSource],
    identities: npt.NDArray[np.uint64],
    *,
    progress: Progress = no_progress,
    fs: FileSystem = OS,
) -> list[SegmentFacts]:
    """The facts of some clean segments, looked up among the keys of the dirty section."""
    walk = walk_of(compaction, progress, fs=fs)
    walk.load_entries(identities)
    return walk.probe(segments)


def still_to_do(
    compaction: LogCompaction, segments: Sequence[SegmentSource]
) -> list[SegmentSource]:
    """Those of `segments` behind the groups that are committed; none if all are."""
    if compaction.groups_done >= len(compaction.groups):
        return []
    if not compaction.groups_done:
        return list(segments)
    done = compaction.groups[compaction.groups_done - 1][-1]
    return [s for s in segments if s.base_offset > done]


def to_index(compaction: LogCompaction) -> list[SegmentSource]:
    """The segments whose keys are indexed.

    Where records have versions, those of groups in place are, too: one there may beat one in a
    group that is left.
    """
    if compaction.rules.versions is not None:
        return list(compaction.segments)
    return still_to_do(compaction, compaction.dirty)


def combine(facts: Sequence[SegmentFacts]) -> Survivors:
    """Joins the facts of both sections; a segment that lies in both has its bits united."""
    by_base: dict[int, SegmentFacts] = {}
    for fact in facts:
        other = by_base.get(fact.base_offset)
        if other is None:
            by_base[fact.base_offset] = fact
            continue
        mine = np.frombuffer(other.keep, dtype=np.uint8)
        theirs = np.frombuffer(fact.keep, dtype=np.uint8)
        by_base[fact.base_offset] = replace(
            other,
            keep=(mine | theirs).tobytes(),
            special=other.special or fact.special,
            expired=other.expired or fact.expired,
            unkeyed=max(other.unkeyed, fact.unkeyed),
        )
    return Survivors(facts=by_base)


def rewrite_specs(compaction: LogCompaction, survivors: Survivors) -> dict[int, RewriteSpec]:
    """The input of each remaining group, by number, except unchanged groups."""
    specs = {}
    before = TransactionSummary.from_json(compaction.before)
    left = still_to_do(compaction, compaction.segments)
    for number in range(compaction.groups_done, len(compaction.groups)):
        group = compaction.group(number)
        while left and left[0].base_offset < group[0].base_offset:  # it is read, and stays
            before = before.followed_by(survivors.facts[left.pop(0).base_offset].transactions)
        left = left[len(group) :]
        facts = [survivors.facts[s.base_offset] for s in group]
        if not survivors.unchanged(group):
            specs[number] = RewriteSpec(
                compaction=compaction,
                staged=StagedSegment(
                    directory=compaction.directory,
                    base_offset=group[0].base_offset,
                    token=compaction.attempt.token,
                ),
                segments=tuple(
                    SurvivingSegment(
                        source=source,
                        keep=fact.keep,
                        nulls=fact.nulls,
                        pinned=fact.pinned,
                        expired=removable_by_age(fact.expired, fact.pinned),
                        unkeyed=fact.unkeyed,
                        aborted=fact.aborted,
                    )
                    for source, fact in zip(group, facts, strict=True)
                ),
                before=before,
                after=before,
            )
        for fact in facts:
            before = before.followed_by(fact.transactions)
        if number in specs:
            specs[number] = replace(specs[number], after=before)
    return specs


def verified_specs(
    compaction: LogCompaction,
    specs: dict[int, RewriteSpec],
    evidence: Mapping[int, SegmentEvidence],
) -> dict[int, RewriteSpec]:
    """The same specs with the evidence for their segments: what they write will be compared."""
    return {
        number: replace(
            spec, evidence=tuple(evidence[s.base_offset] for s in compaction.group(number))
        )
        for number, spec in specs.items()
    }


def evidence_of(
    compaction: LogCompaction,
    progress: Sequence[Progress] = (no_progress,),
    *,
    entries_max: int,
    fs: FileSystem = OS,
) -> dict[int, SegmentEvidence]:
    """The evidence for all segments that are not replaced yet; ends when it is not wanted.

    It is found by a thread for each `progress`.

    Raises:
        EngineError: the owner of the log gave up the compaction.
        CorruptError: a segment is damaged.
        OSError: a segment cannot be read.
    """
    directory = Path(compaction.directory)

    def counting(read: Progress) -> Progress:
        def count(size_bytes: int) -> None:
            require_wanted(directory, compaction.attempt.token, fs=fs)
            read(size_bytes)

        return count

    return find_evidence(
        Scope.of(compaction),
        to_index(compaction)
        if compaction.rules.versions
        else still_to_do(compaction, compaction.segments),
        entries_max=entries_max,
        progress=[counting(read) for read in progress],
        fs=fs,
    )


def unchanged_manifest(
    compaction: LogCompaction, group: Sequence[SegmentSource], survivors: Survivors
) -> Manifest:
    """The manifest of a group that stays as it is."""
    facts = survivors.facts[group[0].base_offset]
    return Manifest(
        base_offset=group[0].base_offset,
        token=compaction.attempt.token,
        unchanged=True,
        segments=(
            RewrittenSegment(base_offset=group[0].base_offset, log_bytes=group[0].size_bytes),
        ),
        bytes_before=group[0].size_bytes,
        records_before=facts.records,
        records_after=facts.records,
        batches_before=facts.batches,
        batches_after=facts.batches,
    )


def size_estimate(spec: RewriteSpec) -> int:
    """About how many bytes a group takes when rewritten; seldom less than it does take."""
    total = 0
    for segment in spec.segments:
        records = 8 * len(segment.keep)
        share = count_set(segment.keep) / records if records else 1.0
        total += int(segment.source.size_bytes * min(1.0, share * 1.1 + 0.02))
    return total


def require_room(spec: RewriteSpec, fs: FileSystem) -> None:
    """Checks that there is space for a rewritten group.

    Raises:
        NoSpaceError: there is not; nothing was started.
    """
    wanted = size_estimate(spec)
    free = fs.free_bytes(Path(spec.staged.directory))
    space_max = spec.compaction.attempt.limits.space_max
    allowed = free if space_max is None else min(free, space_max)
    if wanted > allowed:
        why = "are free" if allowed == free else "may be used (--max-extra-bytes)"
        raise NoSpaceError(
            f"the group of segments at {spec.staged.base_offset} takes about {wanted} bytes when "
            f"rewritten, and {allowed} {why}; it was not started"
        )


class Publisher:
    """Rewrites the groups of one attempt at a compaction, and announces each.

    At most two groups are not in place yet at any time.

    While one group is being written, the one before it is made durable and announced in a thread of
    its own, and the one before that has been put in place. With `one_at_a_time` every group is put
    in place before the next is begun.
    """

    def __init__(
        self,
        directory: Path,
        attempt: str,
        *,
        progress: Progress = no_progress,
        wrote: Progress = no_progress,
        fs: FileSystem = OS,
    ) -> None:
        self._directory = directory
        self._attempt = attempt
        self._fs = fs
        self._rewriter = GroupRewriter(progress, wrote, fs=fs)
        self._finisher = ThreadPoolExecutor(max_workers=1)
        self._under_way: list[Future[Path]] = []

    def publish(self, spec: RewriteSpec) -> None:
        """Rewrites one group.

        Raises:
            EngineError: the owner of the log gave up the compaction, or is gone.
            CorruptError: a source is damaged.
            NoSpaceError, StagingError: a staged file cannot be written.
            OSError: a source cannot be read.
        """
        spec = replace(
            spec, staged=replace(spec.staged, token=spec.staged.token + uuid.uuid4().hex[:8])
        )
        self._wait_until_left(0 if spec.compaction.one_at_a_time else 1)
        if not spec.compaction.attempt.is_measured:
            require_room(spec, self._fs)
        output = self._rewriter.write(spec)
        self._under_way.append(self._finisher.submit(self._finish, spec, output))

    def close(self) -> None:
        """Waits until every group is in place.

        Raises:
            As `publish` does.
        """
        try:
            self._wait_until_left(0)
        finally:
            self.end()

    def end(self) -> None:
        """Returns when nothing more will be staged or announced; also after an error."""
        self._finisher.shutdown(wait=True)

    def _wait_until_left(self, count: int) -> None:
        """Waits until no more than `count` groups are not in place yet."""
        clock = SystemClock()
        deadline = clock.monotonic_s() + _WAIT_MAX_S
        while len(self._under_way) > count:
            require_wanted(self._directory, self._attempt, fs=self._fs)
            oldest = self._under_way[0]
            if oldest.done() and not self._fs.exists(oldest.result()):
                del self._under_way[0]
                continue
            if clock.monotonic_s() > deadline:
                raise EngineError("the owner of the compaction has ended")
            pause(_WAIT_S)

    def _finish(self, spec: RewriteSpec, output: Output) -> Path:
        manifest = output.finish()
        if spec.evidence:
            with staging_errors(self._directory):
                verify_group(spec, manifest, fs=self._fs)
        return announce(self._directory, manifest, fs=self._fs)


class ProgressFile:
    """Counts the bytes a task has worked through, in a file that its driver looks at.

    The file stays when the task ends, so that the driver counts what was done.

    With `bytes_per_s` it makes the task wait when what it has read and written is ahead of its
    time. A task that was slow to begin, or had to wait, does not go faster afterwards. A task whose
    compaction is given up meanwhile ends.

    Source: org.apache.kafka.storage.internals.utils.Throttler, with its window of 300 ms.
    """

    def __init__(
        self,
        directory: str,
        attempt: str,
        phase: str,
        *,
        bytes_per_s: int | None = None,
        fs: FileSystem = OS,
        clock: Clock | None = None,
    ) -> None:
        self._directory = Path(directory)
        self._attempt = attempt
        self._fs = fs
        self._path = progress_path(self._directory, phase)
        self._bytes = 0
        self._clock = clock or SystemClock()
        self._bytes_per_s = bytes_per_s
        # When all that was moved is in time; None before the first move.
        self._in_time_at_s: float | None = None
        self._written_at = 0.0
        self._is_discarded = False

    def __call__(self, count: int) -> None:
        """Counts `count` bytes more that were read.

        Raises:
            EngineError: the owner of the log gave up the compaction.
        """
        self._bytes += count
        now = self._clock.monotonic_s()
        if now - self._written_at > 0.2:
            self._written_at = now
            self._require_wanted()
            write_progress(self._path, self._bytes, fs=self._fs)
        self._keep_pace(count)

    def wrote(self, count: int) -> None:
        """Counts `count` bytes that were written, for the pace alone.

        Raises:
            EngineError: the owner of the log gave up the compaction.
        """
        self._keep_pace(count)

    def _keep_pace(self, count: int) -> None:
        if not self._bytes_per_s:
            return
        now_s = self._clock.monotonic_s()
        since_s = now_s if self._in_time_at_s is None else self._in_time_at_s
        self._in_time_at_s = max(since_s, now_s - _THROTTLE_WINDOW_S) + count / self._bytes_per_s
        while (ahead_s := self._in_time_at_s - self._clock.monotonic_s()) > 0:
            self._require_wanted()
            pause(min(ahead_s, _THROTTLE_STEP_S))

    def _require_wanted(self) -> None:
        require_wanted(self._directory, self._attempt, fs=self._fs)

    def close(self) -> None:
        """Reports the rest. The file goes with the other staged ones, at once if nobody looks.

        After `discard` there is nothing to report.
        """
        if self._is_discarded:
            return
        try:
            self._require_wanted()
        except EngineError:
            self._remove()
        else:
            write_progress(self._path, self._bytes, fs=self._fs)

    def discard(self) -> None:
        """Takes back what was reported: the work is done again from its beginning."""
        self._is_discarded = True
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError, NoSpaceError):
            self._fs.remove(self._path)


def facts_to_json(facts: Sequence[SegmentFacts]) -> bytes:
    """Facts as a task sends them."""
    return json.dumps(
        [
            {
                "base_offset": f.base_offset,
                "records": f.records,
                "batches": f.batches,
                "unkeyed": f.unkeyed,
                "aborted": f.aborted,
                "special": f.special,
                "keep": base64.b64encode(f.keep).decode(),
                "nulls": base64.b64encode(f.nulls).decode(),
                "pinned": base64.b64encode(f.pinned).decode(),
                "expired": base64.b64encode(f.expired).decode(),
                "transactions": f.transactions.to_json(),
            }
            for f in facts
        ]
    ).encode()


def facts_from_json(data: bytes) -> list[SegmentFacts]:
    """The inverse of `facts_to_json`."""

    def one(value: dict[str, Any]) -> SegmentFacts:
        return SegmentFacts(
            **value
            | {
                "keep": base64.b64decode(value["keep"]),
                "nulls": base64.b64decode(value["nulls"]),
                "pinned": base64.b64decode(value["pinned"]),
                "expired": base64.b64decode(value["expired"]),
                "transactions": TransactionSummary.from_json(value["transactions"]),
            }
        )

    return [one(value) for value in json.loads(data)]


def clear_dead(facts: Sequence[SegmentFacts], dead: npt.NDArray[np.uint64]) -> None:
    """Clears, in the facts of a chunk, the bits of superseded records by ordinal."""
    for fact, gone in _bits_of(facts, dead):
        fact.keep = (np.frombuffer(fact.keep, dtype=np.uint8) & ~gone).tobytes()


def set_pinned(facts: Sequence[SegmentFacts], pinned: npt.NDArray[np.uint64]) -> None:
    """Sets, in the facts of a chunk, the bits of pinned records by ordinal, and no others."""
    for fact, bits in _bits_of(facts, pinned):
        fact.pinned = bits.tobytes()


def _bits_of(
    facts: Sequence[SegmentFacts], ordinals: npt.NDArray[np.uint64]
) -> Iterator[tuple[SegmentFacts, npt.NDArray[np.uint8]]]:
    """The bits of some ordinals of a chunk, for each of its segments."""
    total = 0
    starts = []
    for fact in facts:
        starts.append(total)
        total += -(-fact.records // 8) * 8
    mask = np.zeros(total, dtype=np.bool_)
    mask[ordinals.astype(np.int64)] = True
    packed = np.packbits(mask, bitorder="little")
    for fact, start in zip(facts, starts, strict=True):
        yield fact, packed[start // 8 : start // 8 + len(fact.keep)]


def entries_of(block: bytes | memoryview) -> npt.NDArray[np.uint64]:
    """A block of entries as an array of shape (n, 4)."""
    return np.frombuffer(block, dtype=np.uint64).reshape(-1, key_table.SLOT_WORDS)


def versions_of(block: bytes | memoryview) -> npt.NDArray[np.uint64]:
    """A block of entries of versions as an array of shape (n, 6)."""
    return np.frombuffer(block, dtype=np.uint64).reshape(-1, key_table.VERSIONED_SLOT_WORDS)


def generations_of(blocks: Sequence[bytes]) -> Iterator[npt.NDArray[np.uint64]]:
    """Blocks of entries as arrays of shape (n, 4)."""
    for block in blocks:
        yield entries_of(block)
