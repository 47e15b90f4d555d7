"""The offset index and the time index of a segment, compared with its batches as these are walked.

An entry of an offset index names the last offset of a batch and a position from which a walk finds
it: that of the batch, or of one before it that was appended together with it, as Kafka 3 wrote. An
entry of a time index names the largest timestamp up to an offset.

Source: org.apache.kafka.storage.internals.log.LogSegment.append, OffsetIndex, TimeIndex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cordwood.cleanup.verification.batches import Piece
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.format import offset_index, time_index
from cordwood.format.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.block import Ints


class IndexCheck:
    """Checks both indexes of one segment, whose contents are read before its log is."""

    def __init__(
        self, log: Path, base_offset: int, files: dict[str, bytes], findings: Findings
    ) -> None:
        """Parses what there is of `files`, the contents by suffix."""
        self._findings = findings
        self._offset_path = log.with_suffix(INDEX_SUFFIX)
        self._time_path = log.with_suffix(TIME_INDEX_SUFFIX)
        self._offsets = self._parsed(
            self._offset_path,
            files.get(INDEX_SUFFIX),
            offset_index.ENTRY_BYTES,
            lambda data: offset_index.parse_offset_index(data, base_offset),
            Rule.OFFSET_INDEX_ORDER,
        )
        self._times = self._parsed(
            self._time_path,
            files.get(TIME_INDEX_SUFFIX),
            time_index.ENTRY_BYTES,
            lambda data: time_index.parse_time_index(data, base_offset),
            Rule.TIME_INDEX_ORDER,
        )
        is_damaged = any(each.path == str(self._time_path) for each in findings.found)
        self._has_times = TIME_INDEX_SUFFIX in files and not is_damaged
        self._at_offset = self._at_time = 0
        #: Entries by offset whose position was a batch's, and whose own batch is yet to come.
        self._awaited: dict[int, int] = {}
        self._newest = -1

    def _parsed(
        self,
        path: Path,
        data: bytes | None,
        entry_bytes: int,
        parse: Callable[[bytes], Sequence[tuple[int, int]]],
        rule: Rule,
    ) -> Ints:
        entries: Sequence[tuple[int, int]] = ()
        if data is not None and len(data) % entry_bytes:
            self._findings.add(
                Rule.INDEX_SIZE,
                path,
                f"{len(data)} bytes are no multiple of the {entry_bytes} of an entry",
                position=len(data) // entry_bytes * entry_bytes,
            )
        elif data is not None:
            try:
                entries = parse(data)
            except CorruptError as error:
                self._findings.add(rule, path, error.reason, position=error.position)
        return np.array(entries, dtype=np.int64).reshape(-1, 2)

    def take(self, piece: Piece) -> None:
        """Compares the entries that point into some batches, which follow those before."""
        self._take_offsets(piece)
        self._take_times(piece)

    def _take_offsets(self, piece: Piece) -> None:
        entries = self._offsets
        first = self._at_offset
        last = int(np.searchsorted(entries[:, 1], piece.end))
        self._at_offset = max(first, last)
        if self._awaited:
            for offset in [each for each in self._awaited if each <= int(piece.lasts[-1])]:
                number = self._awaited.pop(offset)
                row = int(np.searchsorted(piece.lasts, offset))
                if int(piece.lasts[row]) != offset:
                    self._bad_offset(number, "where no batch ends")
        for number in range(first, last):
            offset, position = (int(value) for value in entries[number])
            row = int(np.searchsorted(piece.positions, position, side="right")) - 1
            if row < 0 or int(piece.positions[row]) != position:
                self._bad_offset(number, "where no batch begins")
            elif int(piece.lasts[row]) > offset:
                self._bad_offset(number, f"of a batch that ends at {piece.lasts[row]}")
            elif int(piece.lasts[row]) < offset:
                later = int(np.searchsorted(piece.lasts, offset))
                if later == len(piece.lasts):
                    self._awaited[offset] = number
                elif int(piece.lasts[later]) != offset:
                    self._bad_offset(number, "but no batch ends at that offset")

    def _bad_offset(self, number: int, why: str, rule: Rule = Rule.OFFSET_INDEX_ENTRY) -> None:
        offset, position = (int(value) for value in self._offsets[number])
        self._findings.add(
            rule,
            self._offset_path,
            f"an entry for offset {offset} at byte {position} of the log, {why}",
            position=number * offset_index.ENTRY_BYTES,
            offset=offset,
        )

    def _take_times(self, piece: Piece) -> None:
        newest = np.maximum.accumulate(np.concatenate(([self._newest], piece.timestamps)))
        entries = self._times
        first = self._at_time
        last = int(np.searchsorted(entries[:, 1], int(piece.lasts[-1]), side="right"))
        self._at_time = max(first, last)
        self._newest = int(newest[-1])
        for number in range(first, last):
            timestamp, offset = (int(value) for value in entries[number])
            row = int(np.searchsorted(piece.lasts, offset))
            if int(newest[row + 1]) != timestamp:
                self._bad_time(
                    number, f"up to which the largest maximum timestamp is {newest[row + 1]}"
                )

    def _bad_time(self, number: int, why: str, rule: Rule = Rule.TIME_INDEX_ENTRY) -> None:
        timestamp, offset = (int(value) for value in self._times[number])
        self._findings.add(
            rule,
            self._time_path,
            f"an entry of timestamp {timestamp} for offset {offset}, {why}",
            position=number * time_index.ENTRY_BYTES,
            offset=offset,
        )

    def finish(self, *, size_bytes: int, last_offset: int, is_closed: bool) -> None:
        """Says what of the indexes lies beyond the log, of which all batches were sound.

        The last entry of a time index is the largest timestamp once its segment is closed: a Kafka
        takes it for the age of the segment.

        Source: LogSegment.onBecomeInactive, LogSegment.largestTimestamp.
        """
        newest = int(self._times[-1, 0]) if len(self._times) else -1
        if is_closed and self._has_times and newest < self._newest:
            self._findings.add(
                Rule.TIME_INDEX_ENTRY,
                self._time_path,
                f"its last timestamp is {newest}, and the largest of the segment {self._newest}",
                position=len(self._times) * time_index.ENTRY_BYTES,
                offset=last_offset,
            )
        for number in range(self._at_offset, len(self._offsets)):
            self._bad_offset(number, f"which has {size_bytes} bytes", rule=Rule.OFFSET_INDEX_BEYOND)
        for number in self._awaited.values():
            self._bad_offset(number, f"but the last offset is {last_offset}")
        for number in range(self._at_time, len(self._times)):
            self._bad_time(
                number, f"but the last offset is {last_offset}", rule=Rule.TIME_INDEX_BEYOND
            )
