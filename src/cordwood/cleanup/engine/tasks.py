"""The work of a compaction, cut into tasks that know no engine: plain values in, plain values out.

A task may run twice, or die: it writes only staged files under a name of its own, and says what it
made in a manifest that appears at once or not at all. It never waits for anything but the owner of
the log putting its last group in place, which is what bounds the extra space.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.access.announcements import (
    require_wanted,
)
from cordwood.cleanup.engine.segment_facts import SegmentFacts, count_set, removable_by_age
from cordwood.cleanup.engine.survivors import Progress, Spill, Walk, no_progress
from cordwood.cleanup.plan.compaction_values import Manifest, RewrittenSegment, SegmentEvidence
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec, SurvivingSegment
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.cleanup.verification.evidence import Scope, find_evidence
from cordwood.format.native import key_table
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import StagedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Final bits of every segment of a compaction, by base offset, and the numbers of records.

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


def walk_of(
    compaction: LogCompaction, progress: Progress = no_progress, *, fs: FileSystem = OS
) -> Walk:
    """A walk over a compaction's segments."""
    return Walk(
        first_dirty=compaction.first_dirty,
        aborted=AbortedTransactions(compaction.aborted),
        secrets=Secrets.from_seed(compaction.seed),
        bounds=compaction.bounds,
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
    """The segments behind the groups that are committed; none if all are."""
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
