"""The segments of a partition's directory, as a loader sees them: names, sizes, index entries.

Source: org.apache.kafka.storage.internals.log.LogLoader.loadSegmentFiles, LogSegment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    is_index_file,
    is_log_file,
    segment_file_name,
)
from cordwood.format.offset_index import build_offset_index
from cordwood.format.record_batch import BatchHeader, parse_batch, parse_header
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem

_PREFIX = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_HEADER_BYTES = 61
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """One segment as it lies on disk.

    `index_entries` and `time_index_entries` count what the index files hold. `largest_timestamp`
    (ms) is the time index's last, -1 when it says none.
    """

    directory: Path
    base_offset: int
    size_bytes: int
    modified_ns: int
    index_entries: int
    time_index_entries: int
    largest_timestamp: int
    last_indexed_position: int
    fs: FileSystem = field(default=OS, repr=False, compare=False)

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """One of its files."""
        return self.directory / segment_file_name(self.base_offset, suffix)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """What its transaction index holds; nothing when there is none.

        Raises:
            CorruptError: the index is damaged.
        """
        path = self.path(TXN_INDEX_SUFFIX)
        try:
            return parse_transaction_index(self.fs.read_bytes(path))
        except FileNotFoundError:
            return []
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def first_batch_timestamp(self) -> int:
        """The maximum timestamp of its first batch (ms), -1 for an empty segment."""
        for _, header in headers_from(self.path(), 0, self.size_bytes, fs=self.fs):
            return header.max_timestamp
        return _UNKNOWN


def load_segments(
    directory: Path,
    *,
    index_interval_bytes: int,
    read_only: bool = False,
    fs: FileSystem = OS,
) -> tuple[list[SegmentFacts], list[str]]:
    """The segments of a directory by base offset, and what had to be mended.

    An index without its log is removed; a log without its offset index gets all indexes anew.
    With `read_only` this is only said, not done.

    Raises:
        CorruptError: a file's name is no offset, or a log without index cannot be read.
    """
    warnings: list[str] = []
    names = fs.names_in(directory)
    logs = [name for name in names if is_log_file(name)]
    bases = {base_offset_of(name) for name in logs}
    for name in names:
        if is_index_file(name) and base_offset_of(name) not in bases:
            warnings.append(
                f"Found an orphaned index file {directory / name}, with no corresponding log file."
            )
            if not read_only:
                fs.remove(directory / name)
    segments = []
    for name in logs:
        base = base_offset_of(name)
        index = directory / segment_file_name(base, INDEX_SUFFIX)
        if not fs.exists(index):
            if fs.facts_of(directory / name).size_bytes or name != logs[-1]:
                warnings.append(
                    f"Could not find offset index file corresponding to log file "
                    f"{directory / name}, recovering segment and rebuilding index files..."
                )
            if not read_only:
                rebuild_indexes(directory, base, index_interval_bytes=index_interval_bytes, fs=fs)
        segments.append(open_segment(directory, base, fs=fs))
    return segments, warnings


def open_segment(directory: Path, base_offset: int, *, fs: FileSystem = OS) -> SegmentFacts:
    """One segment, by the facts of its files."""
    facts = fs.facts_of(directory / segment_file_name(base_offset, LOG_SUFFIX))
    index = _tail(directory / segment_file_name(base_offset, INDEX_SUFFIX), 8, fs)
    time_index = _tail(directory / segment_file_name(base_offset, TIME_INDEX_SUFFIX), 12, fs)
    return SegmentFacts(
        directory=directory,
        base_offset=base_offset,
        size_bytes=facts.size_bytes,
        modified_ns=facts.modified_ns,
        index_entries=index[0],
        time_index_entries=time_index[0],
        largest_timestamp=struct.unpack(">qi", time_index[1])[0] if time_index[0] else _UNKNOWN,
        last_indexed_position=struct.unpack(">ii", index[1])[1] if index[0] else 0,
        fs=fs,
    )


def _tail(path: Path, entry_bytes: int, fs: FileSystem) -> tuple[int, bytes]:
    """(number of entries, the last one) of an index file, padding zeros left out.

    A broker that stopped hard leaves its newest indexes at full size, zero behind the entries.
    """
    zero = bytes(entry_bytes)
    try:
        opened = fs.open(path)
    except FileNotFoundError:
        return 0, zero
    with closing(opened) as file:
        low, high = 0, file.size() // entry_bytes
        while low < high:
            middle = (low + high) // 2
            if file.read_at(entry_bytes, middle * entry_bytes) == zero:
                high = middle
            else:
                low = middle + 1
        if low:
            return low, file.read_at(entry_bytes, (low - 1) * entry_bytes)
    return 0, zero


def headers_from(
    path: Path, position: int, end: int, *, fs: FileSystem = OS
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each magic 2 batch from `position` on.

    Stops where a batch would extend beyond `end`, or is none: what a loader takes for the end.
    Magic 0 and 1 entries are passed over.
    """
    with closing(fs.open(path)) as file:
        while end - position >= _PREFIX.size:
            head = file.read_at(_HEADER_BYTES, position)
            if len(head) < _PREFIX.size:
                return
            _, length, _, magic = _PREFIX.unpack_from(head)
            size = length + 12
            if length < 14 or position + size > end or magic not in {0, 1, 2}:
                return
            if magic == 2:
                if len(head) < _HEADER_BYTES or size < _HEADER_BYTES:
                    return
                yield position, parse_header(head)
            position += size


def end_of(
    path: Path, base_offset: int, *, position: int, end: int, fs: FileSystem = OS
) -> tuple[int, int]:
    """(next offset, position after the last whole batch) of a log file, read from `position`.

    Source: LogSegment.readNextOffset.
    """
    next_offset = base_offset
    with closing(fs.open(path)) as file:
        while end - position >= _PREFIX.size:
            head = file.read_at(_HEADER_BYTES, position)
            if len(head) < _PREFIX.size:
                break
            offset, length, _, magic = _PREFIX.unpack_from(head)
            size = length + 12
            if length < 14 or position + size > end or magic not in {0, 1, 2}:
                break
            delta = 0
            if magic == 2 and len(head) >= 27:
                delta = struct.unpack_from(">i", head, 23)[0]
            next_offset = offset + delta + 1
            position += size
    return next_offset, position


def next_offset_of(path: Path, base_offset: int, *, fs: FileSystem = OS) -> int:
    """The offset after the last batch of a log file, `base_offset` when it is empty."""
    end = fs.facts_of(path).size_bytes
    return end_of(path, base_offset, position=0, end=end, fs=fs)[0]


def rebuild_indexes(
    directory: Path, base_offset: int, *, index_interval_bytes: int, fs: FileSystem = OS
) -> None:
    """Makes the offset and time index of a segment from its log.

    Raises:
        CorruptError: a batch's CRC is wrong; nothing was written.

    Source: LogSegment.recover.
    """
    log = directory / segment_file_name(base_offset, LOG_SUFFIX)
    facts = fs.facts_of(log)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    newest = (_UNKNOWN, base_offset)
    indexed_at = 0
    with closing(fs.open(log)) as file:
        position = 0
        while position < facts.size_bytes:
            head = file.read_at(_PREFIX.size, position)
            if len(head) < _PREFIX.size:
                break
            size = _PREFIX.unpack(head)[1] + 12
            whole = 26 <= size <= facts.size_bytes
            batch = parse_batch(file.read_at(size, position)) if whole else None
            if batch is None:
                break
            try:
                batch.require_valid()
            except CorruptError as error:
                raise error.located(path=str(log), base_position=position) from error
            if batch.max_timestamp > newest[0]:
                newest = (batch.max_timestamp, batch.last_offset)
            if position - indexed_at > index_interval_bytes:
                offsets.append((batch.last_offset, position))
                if newest[0] > (times[-1][0] if times else _UNKNOWN):
                    times.append(newest)
                indexed_at = position
            position += size
    if newest[0] > (times[-1][0] if times else _UNKNOWN):
        times.append(newest)
    for suffix, data in (
        (INDEX_SUFFIX, build_offset_index(offsets, base_offset)),
        (TIME_INDEX_SUFFIX, build_time_index(times, base_offset)),
    ):
        path = directory / segment_file_name(base_offset, suffix)
        fs.replace_durably(path, data, model=facts)
