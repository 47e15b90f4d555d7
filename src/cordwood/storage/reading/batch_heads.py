"""Batches of a log file by their headers, block by block: nothing is decoded, no CRC is checked.

What a header says is believed only as far as it fits the file: a length is at least a batch's
least, and the batch ends within the file. A walk therefore always gets on, and always stops.

Source: org.apache.kafka.common.record.FileLogInputStream, FileRecords.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordwood.format.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_BYTES_MIN,
    BatchHeader,
    parse_header,
)
from cordwood.format.control_record import EndTxnMarker, parse_end_txn_marker
from cordwood.format.legacy import LEGACY_OVERHEAD_V0, LegacyBatch
from cordwood.format.record_batch import CONTROL_RECORDS_BYTES_MAX, RecordBatch, parse_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import File

#: How much of a log is read at a time to find a batch among small ones, and among large ones.
READ_BYTES = 8 << 10
HEADER_READ_BYTES = 64
LARGE_BATCH_BYTES = 4 << 10
WALK_FIRST_BYTES = 8 << 10
WALK_BYTES = 64 << 10

# base offset, length, leader epoch, magic, attributes, last offset delta, maximum timestamp,
# producer id; in magic 0 and 1 only the first two and the magic mean that.
_HEAD = struct.Struct(">qiib4xhi8xqq")
_PREFIX = struct.Struct(">qi4xb")
_SHORT = struct.Struct(">qi4xb6xi")
_LEGACY_TIMESTAMP = struct.Struct(">q")
_LEGACY_BYTES_MIN = LOG_OVERHEAD_BYTES + LEGACY_OVERHEAD_V0
_CODEC_MASK = 0x07
_NONE = -1

assert _HEAD.size == 51
assert _SHORT.size == 27
assert _PREFIX.size == MAGIC_BYTES_MIN


class BatchPosition(NamedTuple):
    """Position of a batch in its log file; both offsets are inclusive."""

    base_offset: int
    last_offset: int
    position: int
    size_bytes: int


class FileRange(NamedTuple):
    """Bytes of an open file, to be read or to be sent from it; they stay readable while held."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """The bytes."""
        return self.file.read_at(self.size_bytes, self.position)


class BatchHead(NamedTuple):
    """The fields of a batch header that a walk reads; -1: no timestamp, epoch or producer.

    In magic 0 and 1 `base_offset` is that of the message too, of a compressed one that of its last
    record.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    magic: int
    attributes: int
    producer_id: int

    @property
    def is_control(self) -> bool:
        """Whether it holds control records."""
        return self.magic == MAGIC and bool(self.attributes & CONTROL_BIT)


def parse_head(block: bytes, at: int, position: int, remaining: int) -> BatchHead | None:
    """The batch at `block[at]`, or None if it extends beyond the end of the file.

    Args:
        block: bytes of the file; those of the batch's header, as far as the file has them.
        at: where in the block it begins.
        position: where in the file that is.
        remaining: bytes of the file from there on.

    Raises:
        CorruptError: no batch begins there.
    """
    if remaining >= HEADER_BYTES:
        base_offset, length, epoch, magic, attributes, delta, timestamp, producer = (
            _HEAD.unpack_from(block, at)
        )
        size = length + LOG_OVERHEAD_BYTES
        if magic == MAGIC and HEADER_BYTES <= size <= remaining:
            last_offset = base_offset + delta
            return BatchHead(
                position, size, base_offset, last_offset, timestamp, epoch, magic, attributes,
                producer,
            )  # fmt: skip
    return _parse_odd_head(block, at, position, remaining)


def _parse_odd_head(block: bytes, at: int, position: int, remaining: int) -> BatchHead | None:
    """Parses a head that is not of a whole batch of magic 2."""
    if remaining < MAGIC_BYTES_MIN:
        return None
    base_offset, length, magic = _PREFIX.unpack_from(block, at)
    if length < LEGACY_OVERHEAD_V0:
        raise CorruptError(
            f"Found record size {length} smaller than minimum record overhead "
            f"({LEGACY_OVERHEAD_V0})",
            position=position,
        )
    if not 0 <= magic <= MAGIC:
        raise CorruptError(f"record batch of magic {magic}", position=position)
    size = length + LOG_OVERHEAD_BYTES
    if size > remaining:
        return None
    if magic == MAGIC:
        raise CorruptError(
            f"Record batch is corrupt (the size {size} is smaller than the minimum allowed "
            f"overhead {HEADER_BYTES})",
            position=position,
        )
    timestamp = _NONE
    if magic == 1 and size >= _LEGACY_BYTES_MIN:
        (timestamp,) = _LEGACY_TIMESTAMP.unpack_from(block, at + 18)
    attributes = block[at + 17]
    return BatchHead(
        position, size, base_offset, base_offset, timestamp, _NONE, magic, attributes, _NONE
    )


def iter_heads(
    file: File, position: int, end: int, *, path: Path, is_strict: bool = True
) -> Iterator[BatchHead]:
    """Every batch from `position` (a batch's start) to `end` of a log file.

    Args:
        file: the log, at least `end` bytes long.
        position: in bytes.
        end: exclusive.
        path: named in errors.
        is_strict: an impossible batch, or one that extends beyond the end, is an error; else it
            only ends the walk.

    Raises:
        CorruptError: as above; a file shorter than `end` has such a batch.
    """
    block = b""
    start = position  # where in the file the block begins
    read_bytes = WALK_FIRST_BYTES  # who walks on is given more at a time
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(block):
            block, start, at = file.read_at(min(read_bytes, end - position), position), position, 0
        try:
            head = parse_head(block, at, position, _remaining(block, at, end - position))
            if head is None and is_strict:
                raise _beyond_end(position, end)
        except CorruptError as error:
            if is_strict:
                raise error.located(path=str(path), base_position=0) from None
            return
        if head is None:
            return
        yield head
        position += head.size_bytes
        read_bytes = WALK_BYTES if head.size_bytes < WALK_BYTES else HEADER_READ_BYTES


def _remaining(block: bytes, at: int, remaining: int) -> int:
    """Bytes of the file behind `block[at]`; fewer if the file has been truncated.

    A block that does not hold all of a header was read up to the end of the file.
    """
    available = len(block) - at
    return remaining if available >= HEADER_BYTES else min(remaining, available)


def find_offset(
    file: File,
    position: int,
    end: int,
    target_offset: int,
    *,
    path: Path,
    entry_offset: int | None = None,
    read_bytes: int = READ_BYTES,
) -> BatchPosition | None:
    """The first batch from `position` on whose last offset is at least the target.

    Args:
        file: the log, at least `end` bytes long.
        position: a batch's start, in bytes.
        end: exclusive.
        target_offset: inclusive.
        path: named in errors.
        entry_offset: what an index says of `position`: a batch from there on ends at that offset,
            which is at most the target.
        read_bytes: how much to read first; how large the batches are decides about the rest.

    Raises:
        CorruptError: a batch on the way is impossible or extends beyond `end`, or none ends at
            `entry_offset`.
    """
    unpack = _SHORT.unpack_from
    wanted = target_offset if entry_offset is None else entry_offset
    while position < end:
        block = file.read_at(min(read_bytes, end - position), position)
        if len(block) < _SHORT.size:  # a message of magic 0 without key and value takes 26 bytes
            block = block.ljust(_SHORT.size, b"\0")
        at, limit = 0, len(block) - _SHORT.size
        while at <= limit:
            base_offset, length, magic, delta = unpack(block, at)
            size = length + LOG_OVERHEAD_BYTES
            if magic == MAGIC and HEADER_BYTES <= size <= end - position:
                last_offset = base_offset + delta
            else:
                base_offset, last_offset, _, size = _odd_batch(file, position, end, path)
            if last_offset >= wanted:
                if entry_offset is not None:
                    if last_offset != entry_offset:
                        raise _wrong_entry(entry_offset, path, position)
                    entry_offset, wanted = None, target_offset
                if last_offset >= wanted:
                    return BatchPosition(base_offset, last_offset, position, size)
            at += size
            position += size
        read_bytes = HEADER_READ_BYTES if size >= LARGE_BATCH_BYTES else READ_BYTES
    if entry_offset is not None:
        raise _wrong_entry(entry_offset, path, position)
    return None


def _odd_batch(file: File, position: int, end: int, path: Path) -> BatchPosition:
    """Handles data at `position` that is no ordinary batch: an old message, or damage.

    Raises:
        CorruptError: it is damage.
    """
    block = file.read_at(min(HEADER_BYTES, end - position), position)
    try:
        head = parse_head(block, 0, position, _remaining(block, 0, end - position))
        if head is None:
            raise _beyond_end(position, end)
    except CorruptError as error:
        raise error.located(path=str(path), base_position=0) from None
    base_offset = head.base_offset
    if head.magic < MAGIC and head.attributes & _CODEC_MASK:
        base_offset = read_batch(file, head, path=path).base_offset
    return BatchPosition(base_offset, head.last_offset, position, head.size_bytes)


def _beyond_end(position: int, end: int) -> CorruptError:
    return CorruptError(f"record batch extends beyond the log's end at {end}", position=position)


def _wrong_entry(offset: int, path: Path, position: int) -> CorruptError:
    return CorruptError(
        f"offset index entry {offset} is not where a batch ends", path=str(path), position=position
    )


def iter_producer_batches(
    file: File,
    position: int,
    end: int,
    *,
    start_offset: int,
    end_offset: int,
    path: Path,
    is_strict: bool = True,
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """Headers of the batches that have a producer id, and the markers of control batches.

    Args:
        file: the log, at least `end` bytes long.
        position: a batch's start, in bytes.
        end: exclusive.
        start_offset: batches that end below it are skipped.
        end_offset: those that begin at or above it, too.
        path: named in errors.
        is_strict: as of `iter_heads`.

    Raises:
        CorruptError: a batch on the way cannot be, or a control batch holds no marker.
    """
    for head in iter_heads(file, position, end, path=path, is_strict=is_strict):
        if head.base_offset >= end_offset:
            return
        if head.producer_id < 0 or head.last_offset < start_offset:
            continue
        marker = None
        if head.is_control:
            batch = read_batch(file, head, path=path)
            assert isinstance(batch, RecordBatch), "its magic is 2"
            marker = _located_marker(batch, head, path)
        yield parse_header(file.read_at(HEADER_BYTES, head.position)), marker


def _located_marker(batch: RecordBatch, head: BatchHead, path: Path) -> EndTxnMarker | None:
    try:
        return marker_of(batch)
    except CorruptError as error:
        raise CorruptError(error.reason, path=str(path), position=head.position) from None


def read_batch(file: File, head: BatchHead, *, path: Path) -> RecordBatch | LegacyBatch:
    """A whole batch; its CRC is not checked.

    Raises:
        CorruptError: it cannot be read, or the file is too short.
    """
    try:
        batch = parse_batch(file.read_at(head.size_bytes, head.position))
    except CorruptError as error:
        raise error.located(path=str(path), base_position=head.position) from None
    if batch is None:
        raise CorruptError("record batch is cut off", path=str(path), position=head.position)
    return batch


def marker_of(batch: RecordBatch) -> EndTxnMarker | None:
    """The transaction marker that a control batch holds; None if a clean has taken it away.

    Raises:
        CorruptError: it holds something else.
    """
    record = next(batch.iter_records(size_max=CONTROL_RECORDS_BYTES_MAX), None)
    return None if record is None else parse_end_txn_marker(record.key, record.value)
