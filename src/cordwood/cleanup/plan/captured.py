"""A log as it was captured: the input of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.cleanup.rules.log_view import LogView
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.filesystem import FileFacts
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.segment.log_segment import LogSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A view, and what the stages behind the planners need beside it.

    `sources` are the segments that may be rewritten, by base offset: of an offline log all of them.
    `model` is the file whose owner and mode new files take. `truncation_count` is the log's, and
    `segments` those of `sources` that an online log has in use: a commit compares both. `warnings`
    and `beyond_end` are those of `OfflineLog`.
    """

    view: LogView
    directory: Path
    sources: tuple[SegmentSource, ...]
    producers: tuple[ProducerEntry, ...]
    aborted: tuple[AbortedTransaction, ...]
    model: FileFacts
    truncation_count: int = 0
    segments: tuple[LogSegment, ...] = ()
    warnings: tuple[str, ...] = ()
    beyond_end: int | None = None

    @property
    def aborted_above_start(self) -> list[AbortedTransaction]:
        """The aborted transactions that a cleaning knows of.

        Of those that ended below the log start offset, Kafka's cleaner takes data for committed.

        Source: org.apache.kafka.storage.internals.log.LocalLog.collectAbortedTransactions.
        """
        return [each for each in self.aborted if each.last_offset >= self.view.log_start_offset]

    def seen_as(self, view: LogView) -> Captured:
        """The log with another view; its sources are those whose segments are in it."""
        bases = {segment.base_offset for segment in view.segments}
        sources = tuple(source for source in self.sources if source.base_offset in bases)
        return replace(self, view=view, sources=sources)
