"""Cuts logs into slices: runs of whole batches of one segment, which tasks read by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.rules.log_view import LogView
from cordwood.format.batch_header import HEADER_BYTES, MAGIC
from cordwood.format.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from cordwood.format.native import batches as rows_of
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.frames.options import SLICE_BYTES, parse_options
from cordwood.frames.survey import captured_logs
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.batch_heads import parse_head
from cordwood.storage.reading.block import Block
from cordwood.storage.reading.segment_reader import CrcCheck, SegmentReader
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.time_index import TimeIndex

#: The remedy where files are not those that were cut.
_PLAN_AGAIN: Final = "If a compaction has replaced the segment meanwhile, start the read again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The batches of a segment that begin at byte `start` or later, and before `source.size_bytes`.

    Its records are those with offsets from `first_offset` to before `end_offset`, and timestamps of
    `first_ms` or later; -1 for all. Batches of
    `aborted` transactions are left out, and what else `isolation` does not see. A compressed record
    is no larger than `record_bytes_max`.

    `base_offset` is that of the batch at `start`, None if it is not known: by it a reader sees that
    a compacted segment is there in place of the one that was cut. `next_offset` is that of the
    batch behind the last one, None where the segment ends, or the wanted offsets.
    """

    partition: TopicPartition
    source: SegmentSource
    start: int
    first_offset: int
    end_offset: int
    first_ms: int
    aborted: tuple[AbortedTransaction, ...]
    isolation: Isolation
    record_bytes_max: int
    base_offset: int | None = None
    next_offset: int | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes that are read, at most."""
        return self.source.size_bytes - self.start


def blocks_of(
    part: Slice, reader: SegmentReader, *, crc: CrcCheck = CrcCheck.REFUSE
) -> Iterator[Block]:
    """The batches of a slice, in order.

    Raises:
        CorruptError: a batch cannot be read, or another one is at the start of the slice than when
            it was cut; names the file and the position.
        OSError: the file cannot be read.
    """
    is_known = part.base_offset is not None
    for block in reader.blocks(part.source, start=part.start, crc=crc):
        if is_known and block.legacy is None:
            found = int(block.table[0, rows_of.BASE_OFFSET])
            if found != part.base_offset:
                raise CorruptError(
                    f"the batch of offset {found} where that of {part.base_offset} was",
                    path=part.source.path,
                    position=part.start,
                    remedy=_PLAN_AGAIN,
                )
        is_known = False
        yield block


def visible_end(view: LogView, isolation: Isolation) -> int:
    """The offset that a reader does not see any more, nor any after it."""
    match isolation:
        case Isolation.ALL:
            return view.log_end_offset
        case Isolation.READ_UNCOMMITTED:
            return view.high_watermark
        case Isolation.READ_COMMITTED:
            return min(view.high_watermark, view.last_stable_offset)


def slices_of(
    captured: Captured,
    wanted: Wanted,
    isolation: Isolation,
    *,
    slice_bytes: int = SLICE_BYTES,
    fs: FileSystem = OS,
) -> Iterator[Slice]:
    """The slices of a log that may hold wanted records, in the order of offsets.

    Indexes are searched in place, by some twenty small reads each.

    Args:
        captured: the log.
        wanted: which records.
        isolation: which of these a reader sees.
        slice_bytes: a slice is not much larger, unless a batch is.
        fs: where the files are.

    Raises:
        CorruptError: an entry of an index can be none, or leads to no batch.
        OSError: an index or a segment cannot be read.
    """
    view = captured.view
    first, end = wanted.first_offset, min(wanted.end_offset, visible_end(view, isolation))
    if isolation is not Isolation.ALL:
        first = max(first, view.log_start_offset)
    for source, segment in zip(captured.sources, view.segments, strict=True):
        if source.base_offset >= end or source.next_base_offset <= first or not source.size_bytes:
            continue
        if wanted.first_ms > segment.largest_timestamp:
            continue
        aborted: tuple[AbortedTransaction, ...] = ()
        if isolation is Isolation.READ_COMMITTED:
            aborted = tuple(
                each
                for each in captured.aborted
                if each.first_offset < source.next_base_offset
                and each.last_offset >= source.base_offset
            )
        whole = Slice(
            partition=view.topic_partition,
            source=source,
            start=0,
            first_offset=first,
            end_offset=end,
            first_ms=wanted.first_ms,
            aborted=aborted,
            isolation=isolation,
            record_bytes_max=view.config.max_decompressed_message_bytes,
        )
        yield from _cut(_narrowed(whole, wanted, fs), slice_bytes, fs)


def committed_below(captured: Captured, end: int) -> Captured:
    """The log, of which records below `end` are known to be committed, and their transactions."""
    view = captured.view
    return captured.seen_as(
        replace(
            view,
            high_watermark=max(view.high_watermark, end),
            last_stable_offset=max(view.last_stable_offset, end),
        )
    )


def slices_again(part: Slice, first_offset: int) -> list[Slice] | None:
    """The records of a slice from an offset on, cut again in the log as it is now.

    Those that a compaction has removed meanwhile are missing. None if others are, or the log.
    """
    source = part.source
    first = max(first_offset, source.base_offset, part.base_offset or 0)
    end = min(part.end_offset, source.next_base_offset)
    if part.next_offset is not None:
        end = min(end, part.next_offset)
    try:
        (captured,) = captured_logs(
            parse_options({"path": str(Path(source.path).parent)}), Wanted()
        )
    except (CordwoodError, OSError, ValueError):
        return None
    view = captured.view
    if view.log_start_offset > first or view.log_end_offset < end:
        return None
    wanted = Wanted(first_offset=first, end_offset=end, first_ms=part.first_ms)
    return list(slices_of(committed_below(captured, end), wanted, part.isolation))


def end_within(slices: Sequence[Slice], bytes_max: int, *, fs: FileSystem = OS) -> int:
    """The offset before which the slices of a log have about so many bytes.

    At least an interval of the offset index lies before it. The slices are those of whole segments,
    in the order of offsets.

    Raises:
        OSError: an index cannot be read.
    """
    assert slices, "there is something to read"
    reached: int | None = None
    for each in slices:
        source, end = each.source, min(each.end_offset, each.source.next_base_offset)
        if each.size_bytes > bytes_max:
            found, following = _offset_index(source, fs).around_position_on_disk(
                each.start + bytes_max
            )
            first = max(each.first_offset, source.base_offset)
            if found.offset > first:
                return min(found.offset, end)
            if reached is None:
                return min(following.offset, end) if following is not None else end
            return reached
        bytes_max -= each.size_bytes
        reached = end
    assert reached is not None, "a slice was passed"
    return reached


def _narrowed(whole: Slice, wanted: Wanted, fs: FileSystem) -> Slice:
    """The slice without what its indexes show to be before or behind the wanted records."""
    source, first = whole.source, whole.first_offset
    if wanted.first_ms > 0:
        times = TimeIndex(_beside(source, TIME_INDEX_SUFFIX), source.base_offset, fs=fs)
        # No record up to the offset of an entry is later than the entry.
        first = max(first, times.lookup(wanted.first_ms - 1).offset)
    offsets = _offset_index(source, fs)
    start, end = 0, source.size_bytes
    if first > source.base_offset:
        start = min(offsets.lookup_on_disk(first).position, end)
    if whole.end_offset < source.next_base_offset:
        end = max(offsets.end_on_disk(whole.end_offset, size_bytes=end), start)
    base_offset = _base_at(source, start, fs)
    if base_offset is not None and base_offset > first:
        raise CorruptError(
            f"the batch of offset {base_offset} where the index has offset {first}",
            path=source.path,
            position=start,
            remedy=_PLAN_AGAIN,
        )
    return replace(
        whole, source=replace(source, size_bytes=end), start=start, base_offset=base_offset
    )


def _cut(whole: Slice, slice_bytes: int, fs: FileSystem) -> Iterator[Slice]:
    source = whole.source
    parts = max(whole.size_bytes // slice_bytes, 1)
    first = max(whole.first_offset, source.base_offset)
    count = min(whole.end_offset, source.next_base_offset) - first
    start, base_offset, offsets = whole.start, whole.base_offset, _offset_index(source, fs)
    for part in range(1, parts):
        position = offsets.lookup_on_disk(first + count * part // parts).position
        if not start < position < source.size_bytes:
            continue
        next_offset = _base_at(source, position, fs)
        if next_offset is not None:
            cut = replace(source, size_bytes=position)
            yield replace(
                whole, source=cut, start=start, base_offset=base_offset, next_offset=next_offset
            )
            start, base_offset = position, next_offset
    if start < source.size_bytes:
        yield replace(whole, start=start, base_offset=base_offset)


def _base_at(source: SegmentSource, position: int, fs: FileSystem) -> int | None:
    """The base offset of the batch at a position; None where it is not to be compared.

    The first batch of a file needs not be, and in old message formats it is that of another record.
    """
    if not 0 < position < source.size_bytes:
        return None
    with closing(fs.open(Path(source.path))) as file:
        data = file.read_at(HEADER_BYTES, position)
    try:
        head = parse_head(data, 0, position, source.size_bytes - position)
    except CorruptError as error:
        raise error.located(path=source.path) from error
    return head.base_offset if head is not None and head.magic == MAGIC else None


def _offset_index(source: SegmentSource, fs: FileSystem) -> OffsetIndex:
    return OffsetIndex(_beside(source, INDEX_SUFFIX), source.base_offset, fs=fs)


def _beside(source: SegmentSource, suffix: str) -> Path:
    return Path(source.path).with_suffix(suffix)
