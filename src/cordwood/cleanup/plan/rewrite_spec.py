"""The rewrite of one group of a compaction: the input of its task."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, SegmentEvidence
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import StagedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivingSegment:
    """A segment to be copied from, with the bits of `SegmentFacts` in their final state.

    `expired` are the records that go because they have expired; empty where there is none.
    """

    source: SegmentSource
    keep: bytes
    nulls: bytes
    unkeyed: int
    aborted: int
    pinned: bytes = b""
    expired: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSpec:
    """The input of a task that rewrites a group of a compaction.

    `before` and `after` are the state of the transactions at both ends of the group. If there is
    `evidence`, for each of the segments, the output is compared with them before it is announced.
    """

    compaction: LogCompaction
    staged: StagedSegment
    segments: tuple[SurvivingSegment, ...]
    before: TransactionSummary
    after: TransactionSummary
    evidence: tuple[SegmentEvidence, ...] = ()

    @property
    def erases(self) -> bool:
        """Whether the bits alone decide.

        Markers, tombstones, the transaction index and the headers of all batches stay then.
        """
        return self.compaction.erased is not None

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that the group may have a part of."""
        first = self.segments[0].source.base_offset
        end = self.segments[-1].source.next_base_offset
        return tuple(
            each
            for each in self.compaction.aborted
            if each.last_offset >= first and each.first_offset < end
        )

    def aborted_in(self, source: SegmentSource) -> list[AbortedTransaction]:
        """The aborted transactions whose marker is in a segment: its transaction index."""
        offsets = range(source.base_offset, source.next_base_offset)
        return [e for e in self.compaction.aborted if e.last_offset in offsets]

    @property
    def segment_bytes_max(self) -> int:
        """The largest number of bytes of batches in a segment of the output.

        Sources that are larger than `segment_bytes` already may stay as large as they are.
        """
        sources = sum(each.source.size_bytes for each in self.segments)
        return min(SEGMENT_BYTES_MAX, max(self.compaction.segment_bytes, sources))
