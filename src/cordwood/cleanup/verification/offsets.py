"""Offsets that no batch of a log has, and whether a compaction can have taken them.

A leader gives out offsets without a gap, retention takes segments from the front alone, and a
truncation from the end. So offsets are missing in the middle of a log only where a compaction has
removed whole batches, or where files are damaged. A compaction leaves traces: the partition's line
in the cleaner checkpoint, up to which it has come; batches that lack records, or have a delete
horizon. A replica may also have got from its leader what that had compacted: then only the batches
bear a trace.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.append, Cleaner.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cordwood.cleanup.verification.batches import Piece
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.format.batch_header import DELETE_HORIZON_BIT
from cordwood.format.native import batches as rows_of
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.storage.reading.block import Ints

#: producer.id.expiration.ms of a broker that does not set it.
_PRODUCER_EXPIRATION_MS = 86_400_000
_GAPS_MAX = 100
#: So many gaps are no damage to a file: a compaction of batches of one record leaves them.
_SCATTERED = 16
#: Behind damage any number of offsets may be missing.
_ANY = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """Facts of a partition from the cluster's metadata.

    Args:
        topic_id: of its topic.
        is_compacted: whether cleanup.policy has `compact`; None if the topic does not say.
        is_alone: the cluster has no other broker, from which a compacted log could come.
        is_tiered: older segments lie in remote storage.
        record_bytes_max: max.decompressed.message.bytes of its topic.
    """

    topic_id: uuid.UUID | None = None
    is_compacted: bool | None = None
    is_alone: bool = True
    is_tiered: bool = False
    record_bytes_max: int = RECORD_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Traces of the cleanings of a log.

    Args:
        cleaned_to: its line in the cleaner checkpoint, exclusive; None without one.
        cleaned_at_ms: when the checkpoint was written last.
        facts: what the metadata say.
        is_settled: its broker has stopped in good order: no cleaning has come beyond its line.
        is_whole: whether it is the partition's own directory, and not one that is marked.
    """

    cleaned_to: int | None = None
    cleaned_at_ms: int | None = None
    facts: PartitionFacts = field(default_factory=PartitionFacts)
    is_settled: bool = True
    is_whole: bool = True

    @property
    def known_from_ms(self) -> int | None:
        """A compaction knew the producers whose last timestamp is later; None without one."""
        if self.cleaned_to is None or self.cleaned_at_ms is None:
            return None
        return self.cleaned_at_ms - _PRODUCER_EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class _Gap:
    """Offsets from `first` up to `end`, exclusive, behind byte `position` of a segment."""

    first: int
    end: int
    log: Path
    position: int


@dataclass(slots=True)
class _Tally:
    """Gaps that are not listed: where the first begins, where the last ends, and how many."""

    first: int = -1
    end: int = -1
    ranges: int = 0
    offsets: int = 0

    def add(self, first: int, end: int) -> None:
        self.ranges += first != self.end
        self.first = first if self.first < 0 else min(self.first, first)
        self.end = max(self.end, end)
        self.offsets += end - first

    def __str__(self) -> str:
        if self.ranges == 1:
            return f"offsets {self.first:,} to {self.end - 1:,} were"
        return (
            f"{self.offsets:,} offsets in {self.ranges:,} ranges, from {self.first:,} to "
            f"{self.end - 1:,}, were"
        )


class OffsetCheck:
    """Follows the offsets of one log, batch by batch, in bounded memory."""

    def __init__(
        self,
        removals: Removals,
        findings: Findings,
        *,
        base_offset: int,
        orphans: Sequence[int] = (),
    ) -> None:
        """The log begins at `base_offset`; `orphans` are base offsets of indexes without a log."""
        self._base_offset = base_offset
        self._orphans = orphans
        self._lost_logs: list[int] = []
        self._removals = removals
        self._findings = findings
        self._next = base_offset
        self._log, self._end = Path(), 0
        self._is_lost = False
        self._missing = 0
        #: Those that end above the line of the cleaner checkpoint; what is too many is counted.
        self._above: list[_Gap] = []
        self._unknown = _Tally()
        self._thin_to = -1

    def begin_segment(self, log: Path, base_offset: int) -> None:
        """A segment begins: one before it must have ended there."""
        if self._is_lost:
            self._next, self._is_lost = base_offset, False
        if base_offset > self._next:
            self._note(_Gap(self._next, base_offset, self._log, self._end))
            self._missing += base_offset - self._next
            self._next = base_offset
        self._log, self._end = log, 0

    def take(self, piece: Piece) -> Ints:
        """Follows some sound batches; gives how many offsets are missing in front of each."""
        table = piece.block.table
        bases, lasts = table[:, rows_of.BASE_OFFSET], piece.lasts
        before = np.concatenate(([self._next - 1], lasts[:-1]))
        missing = np.maximum(bases - before - 1, 0)
        for row in np.flatnonzero(missing).tolist():
            self._note(
                _Gap(int(before[row]) + 1, int(bases[row]), self._log, int(piece.positions[row]))
            )
        if piece.block.legacy is not None:
            # Neither old messages nor an erasure of them leave a trace.
            self._thin_to = int(lasts[-1])
        else:
            thin = table[:, rows_of.COUNT] != lasts - bases + 1
            thin |= (table[:, rows_of.ATTRIBUTES] & DELETE_HORIZON_BIT) != 0
            if thin.any():
                self._thin_to = int(lasts[np.flatnonzero(thin)[-1]])
        self._next, self._end = int(lasts[-1]) + 1, piece.end
        total = self._missing + np.cumsum(missing)
        self._missing = int(total[-1])
        return total

    def take_beside_damage(self, piece: Piece) -> Ints:
        """Follows batches of a segment with damage, in front of which any offset may be missing."""
        self._next, self._end = int(piece.lasts.max()) + 1, piece.end
        self._missing += _ANY
        return np.full(len(piece.lasts), self._missing, dtype=np.int64)

    def lose_sight(self) -> None:
        """The rest of the segment cannot be read."""
        self._is_lost = True
        self._missing += _ANY

    def _note(self, gap: _Gap) -> None:
        orphans = self._orphans[
            bisect_left(self._orphans, gap.first) : bisect_left(self._orphans, gap.end)
        ]
        if orphans:
            # Whatever has removed a segment has removed its indexes.
            self._lost_logs += orphans
            return
        cleaned_to = self._removals.cleaned_to
        if self._above and self._above[-1].end == gap.first:
            last = self._above[-1]
            self._above[-1] = _Gap(last.first, gap.end, last.log, last.position)
        elif (cleaned_to is not None and gap.end <= cleaned_to) or len(self._above) == _GAPS_MAX:
            self._unknown.add(gap.first, gap.end)
        else:
            self._above.append(gap)

    # ---- the verdict

    def finish(self, end: int) -> list[int]:
        """Says which offsets are missing, and which of them are unknown.

        Args:
            end: of the log, exclusive.

        Returns:
            The base offsets of segments of which the indexes are there, and the log is gone.
        """
        for gap in self._above:
            if self._may_be_compacted(gap):
                self._unknown.add(gap.first, gap.end)
            else:
                self._findings.add(
                    Rule.OFFSETS_MISSING,
                    gap.log,
                    f"offsets {gap.first:,} to {gap.end - 1:,} are missing, and nothing says that "
                    "a compaction took them",
                    position=gap.position,
                    offset=gap.first,
                )
        if self._unknown.ranges:
            self._findings.add(
                Rule.OFFSETS_UNKNOWN,
                self._log.parent,
                f"cannot tell whether {self._unknown} compacted away",
                offset=self._unknown.first,
            )
        if self._removals.is_settled:
            at = bisect_left(self._orphans, self._base_offset), bisect_left(self._orphans, end)
            self._lost_logs += [*self._orphans[: at[0]], *self._orphans[at[1] :]]
        return self._lost_logs

    def _may_be_compacted(self, gap: _Gap) -> bool:
        removals = self._removals
        facts = removals.facts
        if not removals.is_whole or gap.first <= self._thin_to:
            return True
        if facts.is_compacted is False:
            return False
        if not removals.is_settled or not facts.is_alone:
            return True
        return removals.cleaned_to is None and (
            self._thin_to >= 0 or len(self._above) >= _SCATTERED
        )
