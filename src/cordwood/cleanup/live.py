"""A running log as the planners see it, and retention of one.

What a log has in memory is taken from there; a segment's indexes and times are looked up only where
a planner asks for them. The log's lock is held for as long as it takes to note offsets, the list of
segments and the producers; segments below the active one do not change, and what the list holds
stays readable.

Source: org.apache.kafka.storage.internals.log.UnifiedLog (deleteOldSegments,
lastRecordsOfActiveProducers, collectAbortedTransactions).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import groupby

from cordwood.cleanup.capture import Captured
from cordwood.cleanup.log_view import LogView
from cordwood.cleanup.retention import LOG_START, TIME, Expired, plan_retention
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment_facts import SegmentFacts

_log = logging.getLogger(__name__)
_future_timestamps = logging.getLogger(f"{__name__}.future_timestamps")


class LiveSegment:
    """A segment of a running log, as a `CleanedSegment`; its size is that of when it was looked at.

    A property that a file has to be asked for may raise what the file system raises.
    """

    __slots__ = ("_segment", "base_offset", "size_bytes")

    def __init__(self, segment: LogSegment) -> None:
        self._segment = segment
        self.base_offset = segment.base_offset
        self.size_bytes = segment.size_bytes

    @property
    def largest_record_timestamp(self) -> int:
        """The largest timestamp of a record (ms), -1 when none has one."""
        return self._segment.largest_record_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, else the modification time (ms)."""
        return self._segment.largest_timestamp

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of its offset index."""
        return self._segment.offset_index.size_bytes

    @property
    def time_index_bytes(self) -> int:
        """Bytes of the entries of its time index."""
        return self._segment.time_index.size_bytes

    @property
    def first_batch_timestamp(self) -> int:
        """The maximum timestamp of its first batch (ms), 2^63 - 1 when there is none."""
        return self._segment.first_batch_timestamp()

    @property
    def modified_ms(self) -> int:
        """When its log was last written to (ms)."""
        return self._segment.last_modified_ms


def live_view(log: PartitionLog, cleaner_checkpoint: int | None) -> LogView:
    """A running log at this moment.

    Args:
        log: to look at.
        cleaner_checkpoint: the line of its directory's cleaner-offset-checkpoint, if any.
    """
    return _Noted(log).view(cleaner_checkpoint)


class _Noted:
    """What of a log has to be seen at one moment; the rest of a view is made of it without lock."""

    def __init__(self, log: PartitionLog) -> None:
        with log.lock:
            self.segments = log.segments
            self.directory = log.directory
            self.generation = log.generation
            self._partition = log.topic_partition
            self._config = log.config
            self._log_start_offset = log.log_start_offset
            self._log_end_offset = log.log_end_offset
            self._high_watermark = log.high_watermark
            self._last_stable_offset = log.last_stable_offset

    def view(self, cleaner_checkpoint: int | None) -> LogView:
        return LogView(
            topic_partition=self._partition,
            segments=tuple([LiveSegment(segment) for segment in self.segments]),
            log_start_offset=self._log_start_offset,
            log_end_offset=self._log_end_offset,
            high_watermark=self._high_watermark,
            last_stable_offset=self._last_stable_offset,
            cleaner_checkpoint=cleaner_checkpoint,
            config=self._config,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSources:
    """What a round over a running log is planned on, and the segments it is about.

    `generation` is the log's: it is another once the log has been cut off.
    """

    captured: Captured
    segments: tuple[LogSegment, ...]
    generation: int


def capture_live(log: PartitionLog, *, end: int) -> LiveSources:
    """Looks at the segments below `end`, and all that decides about their records.

    Producers are those of this moment. One whose newest batch lies in the round leaves that batch's
    header there; whatever it appends meanwhile goes to segments behind the round.

    Args:
        log: to look at.
        end: the first uncleanable offset, the base of a segment.

    Raises:
        StorageError: the log is closed.
        CorruptError: an index cannot be read.
        OSError: a file cannot be reached.
    """
    fs = log.context.fs
    with log.lock:
        log.require_open()
        noted = _Noted(log)
        producers = tuple(log.producer_state.entries())
    view, segments = noted.view(None), noted.segments
    sources = tuple([segment for segment in segments if segment.base_offset < end])
    facts = tuple(
        [
            SegmentFacts(
                directory=noted.directory,
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                modified_ns=fs.facts_of(segment.path).modified_ns,
                index_entries=segment.offset_index.entries,
                time_index_entries=segment.time_index.entries,
                largest_timestamp=segment.largest_record_timestamp,
                last_indexed_position=segment.offset_index.last_entry.position,
                fs=fs,
            )
            for segment in sources
        ]
    )
    aborted = {e for segment in segments for e in segment.transaction_index.all_aborted()}
    captured = Captured(
        view=view,
        segments=facts,
        active_bytes=view.active.size_bytes,
        producers=producers,
        aborted=tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
        model=fs.facts_of(segments.active.path),
        warnings=(),
    )
    return LiveSources(captured=captured, segments=sources, generation=noted.generation)


def retain(log: PartitionLog, now_ms: int) -> int:
    """Deletes what the log's settings no longer keep; how many segments went.

    The oldest segment that stays is the last that is looked at.

    Raises:
        StorageError: the log is closed, or the disk refused.

    Source: UnifiedLog.deleteOldSegments.
    """
    with log.lock, log.guard("deleting old segments of"):
        log.require_open()
        plan = plan_retention(log, now_ms=now_ms)
        prefix = f"[UnifiedLog partition={log.topic_partition}, dir={log.log_dir}]"
        for warning in plan.warnings:
            _future_timestamps.warning("%s %s", prefix, warning)
        count = 0
        for _, group in groupby(plan.expired, key=lambda expired: expired.rule):
            expired = list(group)
            segments = [log.segments[number] for number in range(len(expired))]
            count += log.delete_segments(
                len(expired),
                reason=expired[0].text,
                lines=[f"{prefix} {line}" for line in _lines(expired, segments)],
            )
        return count


def _lines(expired: list[Expired], segments: list[LogSegment]) -> list[str]:
    """Kafka's words for what goes by one rule."""
    if expired[0].rule == LOG_START:
        names = ",".join(map(str, segments))
        return [f"Deleting segments due to {expired[0].text}: {names}"]
    end = "" if expired[0].rule == TIME else "."
    return [
        f"Deleting segment {segment} due to {gone.text}{end}"
        for gone, segment in zip(expired, segments, strict=True)
    ]
