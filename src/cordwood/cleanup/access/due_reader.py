"""The due moments of segments, each of which is read once.

A closed segment only changes by being replaced by another. Of one that is appended to only what is
new is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.rules.due import NOTHING_DUE, DueMoments, DueRule
from cordwood.configs.log_config import LogConfig
from cordwood.storage.append.payload import read_bounds
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import ReadBounds, SegmentSource
from cordwood.storage.segment.log_segment import LogSegment

#: What was read of the segments of an offline log, by their files as they were then.
KnownDue = dict[SegmentSource, DueMoments]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """The moments of the first `size_bytes` of a segment."""

    rule: DueRule
    size_bytes: int
    moments: DueMoments


class DueReader:
    """Reads due moments of the segments of a log, by the settings of its topic."""

    def __init__(self, rule: DueRule, *, bounds: ReadBounds, fs: FileSystem = OS) -> None:
        """Takes the rule of a topic, and the bounds of what is decompressed."""
        self.rule = rule
        self._bounds = bounds
        self._fs = fs

    @classmethod
    def of(cls, config: LogConfig, *, fs: FileSystem = OS) -> DueReader | None:
        """The reader for a topic; None if no setting asks for due moments."""
        rule = DueRule.of(config)
        if rule is None:
            return None
        return cls(rule, bounds=read_bounds(config), fs=fs)

    def read(self, source: SegmentSource, *, start: int = 0) -> DueMoments:
        """The due moments of a segment, or of what is behind byte `start` of it.

        Raises:
            CorruptError: it is damaged.
            OSError: it cannot be read.
        """
        if start >= source.size_bytes:
            return NOTHING_DUE
        from cordwood.cleanup.access.due_scan import scan_due  # noqa: PLC0415  # large

        return scan_due(source, self.rule, start=start, bounds=self._bounds, fs=self._fs)

    def of_online(self, segment: LogSegment, size_bytes: int) -> DueMoments:
        """The due moments of the first `size_bytes` of a segment, which a note at it remembers.

        Those of a segment that is gone are NOTHING_DUE. Raises as `read`.
        """
        note = segment.content_note
        known, start = NOTHING_DUE, 0
        if isinstance(note, _Note) and note.rule == self.rule and note.size_bytes <= size_bytes:
            known, start = note.moments, note.size_bytes
            if start == size_bytes:
                return known
        source = SegmentSource(
            path=str(segment.path),
            base_offset=segment.base_offset,
            next_base_offset=segment.base_offset,
            size_bytes=size_bytes,
            modified_ns=0,
        )
        try:
            moments = known.earliest(self.read(source, start=start))
        except FileNotFoundError:  # replaced or deleted meanwhile
            return NOTHING_DUE
        if segment.content_note is note:  # else it was truncated, or another thread was quicker
            segment.content_note = _Note(rule=self.rule, size_bytes=size_bytes, moments=moments)
        return moments
