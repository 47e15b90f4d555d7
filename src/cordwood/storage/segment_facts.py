"""The segments of a partition's directory, as a loader sees them: names, sizes, index entries.

Source: org.apache.kafka.storage.internals.log.LogLoader.loadSegmentFiles, LogSegment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.format.crc32c import crc32c
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
from cordwood.format.record_batch import (
    CRC_START,
    MAGIC,
    BatchHeader,
    LegacyBatch,
    RecordBatch,
    parse_batch,
    parse_header,
)
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, File, FileSystem

_PREFIX = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_HEADER_BYTES = 61
_UNKNOWN = -1
# A segment's indexes hold offsets relative to its base offset, and positions, as int32.
_OFFSETS_MAX = 1 << 31
_POSITION_MAX = (1 << 31) - 1
_READ_BYTES = 1 << 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSegments:
    """The segments of a directory by base offset, and what `repair` repairs."""

    segments: tuple[SegmentFacts, ...]
    warnings: tuple[str, ...]
    orphans: tuple[Path, ...]
    rebuilt: tuple[RebuiltIndexes, ...]

    def repair(self, *, fs: FileSystem = OS) -> None:
        """Removes the indexes without a log, and writes those that were missing."""
        for path in self.orphans:
            fs.remove(path)
        for indexes in self.rebuilt:
            indexes.write(fs=fs)


def load_segments(
    directory: Path, *, index_interval_bytes: int, fs: FileSystem = OS
) -> LoadedSegments:
    """The segments of a directory, as they are once `LoadedSegments.repair` has been called.

    Nothing is written: an index without its log is to be removed, and a log without its offset
    index has both indexes rebuilt.

    Raises:
        CorruptError: a file's name is no offset, or a log without index cannot be read.
        NotARegularFileError: something else has the name of a segment's file.
        OSError: a file cannot be reached.
    """
    warnings: list[str] = []
    names = fs.names_in(directory)
    logs = [name for name in names if is_log_file(name)]
    bases = {base_offset_of(name) for name in logs}
    orphans = []
    for name in names:
        if is_log_file(name) or is_index_file(name):
            fs.require_regular(directory / name)
        if is_index_file(name) and base_offset_of(name) not in bases:
            warnings.append(
                f"Found an orphaned index file {directory / name}, with no corresponding log file."
            )
            orphans.append(directory / name)
    segments = []
    rebuilt = []
    for name in logs:
        base = base_offset_of(name)
        indexes = None
        if not fs.exists(directory / segment_file_name(base, INDEX_SUFFIX)):
            if fs.facts_of(directory / name).size_bytes or name != logs[-1]:
                warnings.append(
                    f"Could not find offset index file corresponding to log file "
                    f"{directory / name}, recovering segment and rebuilding index files..."
                )
            indexes = rebuild_indexes(
                directory,
                base,
                index_interval_bytes=index_interval_bytes,
                is_active=name == logs[-1],
                fs=fs,
            )
            rebuilt.append(indexes)
        segments.append(_facts_of(directory, base, indexes, fs))
    return LoadedSegments(
        segments=tuple(segments),
        warnings=tuple(warnings),
        orphans=tuple(orphans),
        rebuilt=tuple(rebuilt),
    )


def _facts_of(
    directory: Path, base_offset: int, rebuilt: RebuiltIndexes | None, fs: FileSystem
) -> SegmentFacts:
    facts = fs.facts_of(directory / segment_file_name(base_offset, LOG_SUFFIX))
    if rebuilt is None:
        index = _tail(directory / segment_file_name(base_offset, INDEX_SUFFIX), 8, fs)
        time_index = _tail(directory / segment_file_name(base_offset, TIME_INDEX_SUFFIX), 12, fs)
    else:
        index = _last_of(rebuilt.index, 8)
        time_index = _last_of(rebuilt.time_index, 12)
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


def _last_of(data: bytes, entry_bytes: int) -> tuple[int, bytes]:
    return len(data) // entry_bytes, data[-entry_bytes:]


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
    Magic 0 and 1 entries are skipped.
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

    Raises:
        CorruptError: a batch has offsets that no append to this segment can have given it.

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
            _require_offsets(path, position, offset, offset + delta, next_offset, base_offset)
            next_offset = offset + delta + 1
            position += size
    return next_offset, position


def _require_offsets(
    path: Path, position: int, first: int, last: int, next_offset: int, base_offset: int
) -> None:
    """Checks that a batch follows the one before it, and is within its segment's reach."""
    if not next_offset <= first <= last < base_offset + _OFFSETS_MAX:
        raise CorruptError(
            f"a batch with the offsets {first} to {last}, where offsets from {next_offset} to "
            f"{base_offset + _OFFSETS_MAX - 1} can be",
            path=str(path),
            position=position,
        )


def next_offset_of(path: Path, base_offset: int, *, fs: FileSystem = OS) -> int:
    """The offset after the last batch of a log file, `base_offset` when it is empty."""
    end = fs.facts_of(path).size_bytes
    return end_of(path, base_offset, position=0, end=end, fs=fs)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltIndexes:
    """The offset and time index of a segment, made from its log and not yet written."""

    log: Path
    index: bytes
    time_index: bytes

    def write(self, *, fs: FileSystem = OS) -> None:
        """Writes both files."""
        model = fs.facts_of(self.log)
        for suffix, data in ((INDEX_SUFFIX, self.index), (TIME_INDEX_SUFFIX, self.time_index)):
            fs.replace_durably(self.log.with_suffix(suffix), data, model=model)


def rebuild_indexes(
    directory: Path,
    base_offset: int,
    *,
    index_interval_bytes: int,
    is_active: bool = False,
    fs: FileSystem = OS,
) -> RebuiltIndexes:
    """Makes the offset and time index of a segment from its log; nothing is written.

    An active segment counts up to its last whole batch; any other has to consist of whole batches.

    Raises:
        CorruptError: a batch cannot be read, its CRC is wrong, or its offsets are impossible.

    Source: LogSegment.recover.
    """
    log = directory / segment_file_name(base_offset, LOG_SUFFIX)
    size_bytes = fs.facts_of(log).size_bytes
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    newest = (_UNKNOWN, base_offset)
    next_offset = base_offset
    indexed_at = 0
    with closing(fs.open(log)) as file:
        position = 0
        while (batch := _checked_batch(file, log, position, size_bytes)) is not None:
            last_offset, max_timestamp = batch.last_offset, batch.max_timestamp
            # The first offset of a legacy set is known only once it is decompressed.
            first_offset = batch.base_offset if isinstance(batch, BatchHeader) else last_offset
            _require_offsets(log, position, first_offset, last_offset, next_offset, base_offset)
            next_offset = last_offset + 1
            if max_timestamp > newest[0]:
                newest = (max_timestamp, last_offset)
            if position - indexed_at > index_interval_bytes:
                offsets.append((last_offset, position))
                if newest[0] > (times[-1][0] if times else _UNKNOWN):
                    times.append(newest)
                indexed_at = position
            position += batch.size_bytes
    if position < size_bytes and not is_active:
        raise CorruptError(
            f"{size_bytes - position} bytes that are no whole batch, in a segment that is not the "
            "active one",
            path=str(log),
            position=position,
        )
    if newest[0] > (times[-1][0] if times else _UNKNOWN):
        times.append(newest)
    return RebuiltIndexes(
        log=log,
        index=build_offset_index(offsets, base_offset),
        time_index=build_time_index(times, base_offset),
    )


def _checked_batch(
    file: File, path: Path, position: int, end: int
) -> BatchHeader | LegacyBatch | None:
    """The batch at `position`, its CRC checked piece by piece; None where no whole one follows."""
    if position > _POSITION_MAX:
        raise CorruptError(
            f"segment of {end} bytes: Kafka's have {_POSITION_MAX} at most", path=str(path)
        )
    head = file.read_at(_HEADER_BYTES, position)
    if len(head) < _PREFIX.size:
        return None
    offset, length, _, magic = _PREFIX.unpack_from(head)
    size = length + 12
    if length < 14 or size > end - position:
        return None
    try:
        if magic != MAGIC or size < _HEADER_BYTES:
            batch = parse_batch(file.read_at(size, position))
            assert not isinstance(batch, RecordBatch), "one of magic 2 is as long as its header"
            if batch is not None:
                batch.require_valid()
            return batch
        header = parse_header(head)
        crc = crc32c(head[CRC_START:])
        done = len(head)
        while done < size:
            piece = file.read_at(min(_READ_BYTES, size - done), position + done)
            if not piece:
                return None
            crc = crc32c(piece, value=crc)
            done += len(piece)
        if crc != header.crc:
            raise CorruptError(
                f"record batch at offset {offset} has CRC {header.crc:#010x}, its bytes give "
                f"{crc:#010x}"
            )
    except CorruptError as error:
        raise error.located(path=str(path), base_position=position) from error
    return header
