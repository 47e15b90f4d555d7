"""Captures a log as a frozen view for planners, with the handles that later stages need.

What a log has in memory is taken from there. Of an online log, a segment's indexes and times are
looked up only where a planner asks for them; the log's lock is held for as long as it takes to note
offsets, the list of segments and the producers. Segments below the active one do not change, and
what the list holds stays readable. An offline log is read once, and its view is made of plain
values: ten thousand of them fit into memory.

Source: org.apache.kafka.storage.internals.log.UnifiedLog (lastRecordsOfActiveProducers,
collectAbortedTransactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cordwood.cleanup.access.due_reader import DueReader, KnownDue
from cordwood.cleanup.access.offline.log import OfflineLog
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.rules.due import NOTHING_DUE, DueMoments
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.segment.log_segment import LogSegment


class SegmentInUse:
    """A segment of an online log, as a `CleanedSegment`; its size is that of when it was looked at.

    A property that a file has to be asked for may raise what the file system raises.
    """

    __slots__ = ("_due", "_segment", "base_offset", "size_bytes")

    def __init__(self, segment: LogSegment, due: DueReader | None = None) -> None:
        self._segment = segment
        self._due = due
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
    def appended_ms(self) -> int:
        """Upper bound (ms) of the time at which the newest record was appended."""
        return self._segment.appended_ms

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
        """Time (ms) of the last write to the segment's log file."""
        return self._segment.last_modified_ms

    @property
    def due(self) -> DueMoments:
        """The due moments of the segment; the first call reads it."""
        if self._due is None:
            return NOTHING_DUE
        return self._due.of_online(self._segment, self.size_bytes)


def view_of(log: PartitionLog, cleaner_checkpoint: int | None) -> LogView:
    """A log at this moment.

    Args:
        log: to look at.
        cleaner_checkpoint: the line of its directory's cleaner-offset-checkpoint, if any.
    """
    return _Noted(log).view(cleaner_checkpoint)


class _Noted:
    """The state of a log at one moment; the rest of a view is computed without the lock."""

    def __init__(self, log: PartitionLog) -> None:
        with log.lock:
            self.segments = log.segments
            self.directory = log.directory
            self.truncation_count = log.offsets.truncation_count
            self._partition = log.topic_partition
            self._config = log.config
            self._log_start_offset = log.log_start_offset
            self._log_end_offset = log.log_end_offset
            self._high_watermark = log.high_watermark
            self._last_stable_offset = log.last_stable_offset
            self._holds = log.holds
            self._metadata_version = log.context.metadata_version()
            self._fs = log.context.fs

    def view(self, cleaner_checkpoint: int | None) -> LogView:
        due = DueReader.of(self._config, fs=self._fs)
        return LogView(
            topic_partition=self._partition,
            segments=tuple([SegmentInUse(each, due) for each in self.segments]),
            log_start_offset=self._log_start_offset,
            log_end_offset=self._log_end_offset,
            high_watermark=self._high_watermark,
            last_stable_offset=self._last_stable_offset,
            cleaner_checkpoint=cleaner_checkpoint,
            config=self._config,
            holds=self._holds,
            metadata_version=self._metadata_version,
        )


def capture(
    log: PartitionLog, *, end: int | None = None, cleaner_checkpoint: int | None = None
) -> Captured:
    """Captures the segments below `end`, and the state that decides about their records.

    Producers are those of this moment. One whose newest batch lies in the compaction leaves that
    batch's header there; whatever it appends meanwhile goes to segments behind the compaction.

    Args:
        log: to look at.
        end: the first uncleanable offset, the base of a segment; None for all segments.
        cleaner_checkpoint: the line of its directory's cleaner-offset-checkpoint, if any.

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
    view, segments = noted.view(cleaner_checkpoint), noted.segments
    wanted = tuple([each for each in segments if end is None or each.base_offset < end])
    return Captured(
        view=view,
        directory=noted.directory.absolute(),
        sources=tuple(
            [
                SegmentSource(
                    # Processes with other working directories read it.
                    path=str(segment.path.absolute()),
                    base_offset=segment.base_offset,
                    next_base_offset=view.next_base(number),
                    size_bytes=segment.size_bytes,
                    modified_ns=fs.facts_of(segment.path).modified_ns,
                )
                for number, segment in enumerate(wanted)
            ]
        ),
        producers=producers,
        aborted=_aborted_in(segments),
        model=fs.facts_of(segments.active.path),
        truncation_count=noted.truncation_count,
        segments=wanted,
    )


def _aborted_in(segments: Iterable[LogSegment]) -> tuple[AbortedTransaction, ...]:
    found = {entry for segment in segments for entry in segment.indexes.transactions.all_aborted()}
    return tuple(sorted(found, key=lambda entry: entry.last_offset))


def capture_offline(
    offline: OfflineLog,
    *,
    cleaner_checkpoint: int | None,
    holds: tuple[str, ...] = (),
    consumed: Consumed = NOTHING_KNOWN,
    other: LogConfig | None = None,
    due: KnownDue | None = None,
) -> Captured:
    """An offline log as plain values, which need neither the log nor its files.

    Args:
        offline: the log.
        cleaner_checkpoint: the line of its directory's cleaner-offset-checkpoint, if any.
        holds: the ids of its legal holds.
        consumed: what groups have consumed of it.
        other: settings for which planners need what is read, too; for due moments see `due_of`.
        due: what earlier calls have read of its segments; added to.

    Raises:
        CorruptError: an index cannot be read, or a segment whose records are looked at.
        OSError: a file cannot be reached.
    """
    captured = capture(offline.log, cleaner_checkpoint=cleaner_checkpoint)
    config = offline.log.config
    configs = (config,) if other is None else (config, other)
    is_compacted = any(each.compact for each in configs)
    needs_first = is_compacted or any(each.cordwood_segment_roll_idle for each in configs)
    moments = [NOTHING_DUE] * len(captured.sources) if holds else due_of(captured, config, due)
    segments = [
        SegmentView(
            base_offset=segment.base_offset,
            size_bytes=offline.facts_of(captured.segments[number]).size_bytes,
            index_bytes=segment.index_bytes if is_compacted else 0,
            time_index_bytes=segment.time_index_bytes if is_compacted else 0,
            largest_record_timestamp=segment.largest_record_timestamp,
            first_batch_timestamp=segment.first_batch_timestamp if needs_first else -1,
            modified_ms=source.modified_ns // 1_000_000,
            due=moments[number],
        )
        for number, (segment, source) in enumerate(
            zip(captured.view.segments, captured.sources, strict=True)
        )
    ]
    return replace(
        captured,
        view=replace(captured.view, segments=tuple(segments), holds=holds, consumed=consumed),
        segments=(),
        warnings=offline.warnings,
        beyond_end=offline.beyond_end,
    )


def with_due(view: LogView, moments: Sequence[DueMoments]) -> LogView:
    """The view of an offline log with other due moments of its segments."""
    segments = []
    for number, due in enumerate(moments):
        segment = view.segments[number]
        assert isinstance(segment, SegmentView), "an offline log has values for segments"
        segments.append(replace(segment, due=due))
    return replace(view, segments=tuple(segments))


def due_of(
    captured: Captured, config: LogConfig, known: KnownDue | None = None
) -> list[DueMoments]:
    """The due moments of the segments of an offline log, as far as they matter.

    Args:
        captured: the log.
        config: its settings, or others.
        known: what earlier calls with these settings have read; added to.

    Raises:
        CorruptError: a segment whose records are looked at is damaged.
        OSError: a file cannot be reached.
    """
    found = [NOTHING_DUE] * len(captured.sources)
    reader = DueReader.of(config)
    if reader is None:
        return found
    known = {} if known is None else known
    checkpoint = captured.view.cleaner_checkpoint or 0
    for number, source in enumerate(captured.sources):
        # Without rules on records only tombstones of the clean section matter.
        if reader.rule.removals or source.next_base_offset <= checkpoint:
            if source not in known:
                known[source] = reader.read(source)
            found[number] = known[source]
    return found
