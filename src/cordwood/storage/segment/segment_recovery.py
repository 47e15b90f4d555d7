"""Recovers a segment from its start: checks each batch's size and CRC, rebuilds its indexes.

The walk stops at the first batch that is not whole or has a wrong CRC; what is before it is the
segment. Entries are a little less dense than those that appends leave: Kafka counts differently.

A whole batch with impossible offsets is no torn write, and ends the walk with an error. The one
exception is a header that lies in two sectors of which the first may have been lost in a crash.

Batches are checked one by one in plain Python. Where there are so many small ones that loading
compiled code pays, blocks of them are checked by `cordwood.storage.segment.native_recovery`; what
that does not take, it leaves to plain Python, so that both have the same result.

Source: org.apache.kafka.storage.internals.log.LogSegment.recover.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from cordwood.format.batch_header import CRC_START, HEADER_BYTES, MAGIC, BatchHeader, parse_header
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.crc32c import crc32c
from cordwood.format.record_batch import RecordBatch
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, ImpossibleOffsetError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.filesystem import File
from cordwood.storage.reading.batch_heads import BatchHead, marker_of, parse_head, read_batch
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.segment.segment_index import INT32_MAX

if TYPE_CHECKING:
    from cordwood.storage.segment.native_recovery import NativeWalk

BLOCK_BYTES = 256 << 10
#: A batch up to this size is read whole to check its CRC, a larger one in pieces of it.
WHOLE_BYTES = 8 << 20
_PATIENCE_MAX = 1 << 14
_CRC_V2 = struct.Struct(">I")
_NONE = -1
# What a disk writes wholly or not at all.
_SECTOR_BYTES = 512

#: Compiled code takes this long to load, counted in batches that are checked plainly meanwhile.
NATIVE_FROM_BATCHES = 300_000
#: The same once it has been loaded.
NATIVE_LOADED_FROM_BATCHES = 2_000
_NATIVE_MODULE = "cordwood.storage.segment.native_recovery"


class Completed(Protocol):
    """The end of a transaction; offsets inclusive, the last that of its marker."""

    @property
    def producer_id(self) -> int:
        """The producer id."""

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""

    @property
    def last_offset(self) -> int:
        """The offset of its marker."""

    @property
    def is_aborted(self) -> bool:
        """Whether it was aborted."""


C = TypeVar("C", bound=Completed)


class Producers(Protocol[C]):
    """The producer state, as a recovery updates it."""

    def replay(self, header: BatchHeader, marker: EndTxnMarker | None, /) -> C | None:
        """Applies a batch; returns the transaction that it ends."""

    def last_stable_offset(self, completed: C, /) -> int:
        """The last stable offset once that transaction has ended."""

    def complete_transaction(self, completed: C, /) -> object:
        """Notes the completed transaction."""

    def update_map_end_offset(self, offset: int, /) -> object:
        """Sets the offset up to which batches have been passed on, exclusive."""


class LeaderEpochs(Protocol):
    """The leader epochs, as a recovery reads and updates them."""

    @property
    def latest_epoch(self) -> int | None:
        """The largest."""

    def assign(self, epoch: int, start_offset: int, /) -> object:
        """Adds the start offset of an epoch."""


def impossible_offset(reason: str, *, path: Path, position: int) -> ImpossibleOffsetError:
    """The error for a whole batch with offsets that no append writes."""
    return ImpossibleOffsetError(
        f"a batch whose CRC is right has impossible offsets: {reason}. They were changed after the "
        "batch was written. The file is left as it is. Restore the partition's directory from a "
        "replica or a backup, or move it out of the log directory to begin with an empty "
        "partition. The batch is",
        path=str(path),
        position=position,
    )


#: Called for a batch with a producer id, and of the marker in it if it is a control batch.
OnBatch = Callable[[BatchHeader, EndTxnMarker | None], None]


class SegmentWalk:
    """A walk over one log file; see the module.

    `position` is behind the last batch that counts, in bytes, and `reason` says why the one after
    it does not; None at the end of the file, or before a batch that extends beyond it.
    `next_offset` is one past the last batch of magic 2, -1 without one; `last_offset` is the last
    of any batch, inclusive.
    """

    def __init__(
        self,
        file: File,
        end: int,
        builder: IndexBuilder,
        *,
        path: Path,
        checks_crc: bool = True,
        flushed_offset: int = 0,
        next_base_offset: int | None = None,
        on_batch: OnBatch | None = None,
        leader_epochs: LeaderEpochs | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            file: the log.
            end: how many bytes of it there are.
            builder: called for each batch.
            path: named in errors.
            checks_crc: check the CRC of each batch, not only its header.
            flushed_offset: batches below it were flushed, and are not torn by a crash.
            next_base_offset: exclusive bound of the offsets: the next segment's base.
            on_batch: called for batches with a producer id, as many as affect the
                state of producers.
            leader_epochs: called where epochs begin.
        """
        self.file = file
        self.end = end
        self.builder = builder
        self.path = path
        self.checks_crc = checks_crc
        self.flushed_offset = flushed_offset
        #: By how much an offset may be above the base offset.
        self.reach = INT32_MAX
        if next_base_offset is not None:
            self.reach = min(self.reach, next_base_offset - 1 - builder.base_offset)
        self.on_batch = on_batch
        self.leader_epochs = leader_epochs
        self.position = 0
        self.next_offset = _NONE
        self.last_offset = builder.base_offset - 1
        self.reason: CorruptError | None = None
        self._epoch = _NONE
        if leader_epochs is not None and leader_epochs.latest_epoch is not None:
            self._epoch = leader_epochs.latest_epoch
        self._block = b""
        self._block_start = 0

    def run(self, *, native: bool | None = None) -> None:
        """Walks to the end.

        Args:
            native: walk by compiled code, or not; None decides by what is left to do.

        Raises:
            SegmentOffsetOverflowError: a batch's offset is out of reach of the base offset.
            ImpossibleOffsetError: a whole batch has offsets that no append writes.
            InvalidOffsetError: offsets do not ascend, where CRCs are not checked.
            KafkaError: whatever `on_batch` raises.
        """
        compiled: NativeWalk | None = None
        steps = wait = 0
        patience = 1
        try:
            while True:
                if compiled is None and native is not False and (native or steps % 1024 == 0):
                    compiled = self._load_native(steps, is_wanted=bool(native))
                    native = native if compiled is not None or native is None else False
                if compiled is not None and wait == 0:
                    before = self.position
                    compiled.run()
                    # Where compiled code gets nowhere it is asked less and less often.
                    is_apt = self.position - before >= BLOCK_BYTES
                    patience = 1 if is_apt else min(2 * patience, _PATIENCE_MAX)
                    wait = patience
                if not self._step():
                    break
                steps += 1
                wait = max(0, wait - 1)
        except ImpossibleOffsetError:
            raise
        except CorruptError as error:
            self.reason = error.located(path=str(self.path), base_position=0)
        finally:
            _Effort.plain_batches += steps

    def _load_native(self, steps: int, *, is_wanted: bool) -> NativeWalk | None:
        if not is_wanted:
            average = self.position // steps if steps else HEADER_BYTES * 4
            left = (self.end - self.position) // max(1, average)
            is_loaded = _NATIVE_MODULE in sys.modules
            enough = NATIVE_LOADED_FROM_BATCHES if is_loaded else NATIVE_FROM_BATCHES
            done = 0 if is_loaded else _Effort.plain_batches + steps
            if not steps or left < NATIVE_LOADED_FROM_BATCHES or left + done < enough:
                return None
        try:
            from cordwood.storage.segment.native_recovery import NativeWalk  # noqa: PLC0415  # large
        except ImportError:
            return None
        return NativeWalk(self)

    # ---- one batch

    def _step(self) -> bool:
        """Processes the next batch; False if there is none.

        Raises:
            CorruptError: it is none.
        """
        head = self._next()
        if head is None:
            return False
        self.require_follows(head.base_offset, head.last_offset)
        self.require_in_range(head.last_offset)
        self.last_offset = head.last_offset
        self.builder.add(head.position, head.last_offset, head.max_timestamp)
        self.position += head.size_bytes
        if head.magic == MAGIC:
            self.next_offset = head.last_offset + 1
            self.note_epoch(head.leader_epoch, head.base_offset)
            if head.producer_id >= 0 and self.on_batch is not None:
                marker = self.marker_at(head) if head.is_control else None
                at = head.position - self._block_start
                if at + HEADER_BYTES <= len(self._block):
                    header = parse_header(self._block, at)
                else:
                    header = parse_header(self.file.read_at(HEADER_BYTES, head.position))
                self.on_batch(header, marker)
        return True

    def _next(self) -> BatchHead | None:
        """The batch at `position`, checked."""
        position = self.position
        remaining = self.end - position
        at = position - self._block_start
        if at + HEADER_BYTES > len(self._block):
            self._read_block(BLOCK_BYTES)
            at = 0
        available = len(self._block) - at
        if available < HEADER_BYTES:
            remaining = min(remaining, available)
        head = parse_head(self._block, at, position, remaining)
        if head is not None and self.checks_crc:
            self._check_crc(head, at)
        return head

    def _check_crc(self, head: BatchHead, at: int) -> None:
        start = CRC_START if head.magic == MAGIC else 16
        if at + head.size_bytes > len(self._block) and head.size_bytes <= WHOLE_BYTES:
            self._read_block(max(BLOCK_BYTES, head.size_bytes))
            at = 0
        if at + head.size_bytes <= len(self._block):
            view = memoryview(self._block)[at : at + head.size_bytes]
            stored_at = at + (17 if head.magic == MAGIC else 12)
            (stored,) = _CRC_V2.unpack_from(self._block, stored_at)
            computed = _crc(head.magic, view[start:], 0)
        else:
            (stored,) = _CRC_V2.unpack_from(self._block, at + (17 if head.magic == MAGIC else 12))
            computed = self._crc_in_pieces(head, start)
        if stored != computed:
            raise CorruptError(
                f"Record is corrupt (stored crc = {stored}, computed crc = {computed})",
                position=head.position,
            )

    def _crc_in_pieces(self, head: BatchHead, start: int) -> int:
        position, end = head.position + start, head.position + head.size_bytes
        crc = 0
        while position < end:
            piece = self.file.read_at(min(WHOLE_BYTES, end - position), position)
            if not piece:
                raise CorruptError("record batch is cut off", position=head.position)
            crc = _crc(head.magic, piece, crc)
            position += len(piece)
        return crc

    def _read_block(self, size_bytes: int) -> None:
        size = min(size_bytes, self.end - self.position)
        self._block_start = self.position
        self._block = self.file.read_at(size, self.position)

    # ---- what is made of it, for both ways

    def require_follows(self, base_offset: int, last_offset: int) -> None:
        """Refuses a batch that does not lie behind the one before, where CRCs are checked too.

        Raises:
            CorruptError: it does not, and a crash may have torn its header.
            ImpossibleOffsetError: it does not, for no such reason.

        Differs: Kafka continues with such offsets, or empties the segment where an index entry
            falls
        on the batch.
        """
        if self.checks_crc and not self.last_offset < base_offset <= last_offset:
            raise self._impossible(
                f"offsets {base_offset} to {last_offset} do not follow {self.last_offset}"
            )

    def _impossible(self, reason: str) -> CorruptError:
        """The error for the batch at `position`, whose CRC is right where CRCs are checked.

        A crash may lose any sector of what was not flushed: then the part of a header before the
        CRC may be lost where it lies in another sector. Else the base offset was changed later.
        """
        is_unflushed = self.last_offset + 1 >= self.flushed_offset
        crc_end = self.position + CRC_START - 1
        is_in_two = self.position // _SECTOR_BYTES != crc_end // _SECTOR_BYTES
        if not self.checks_crc or (is_unflushed and is_in_two):
            return CorruptError(reason, position=self.position)
        return impossible_offset(reason, path=self.path, position=self.position)

    def require_in_range(self, last_offset: int) -> None:
        """Refuses an offset that the indexes cannot hold.

        Raises:
            CorruptError, ImpossibleOffsetError: it is below the base offset, or not below the next
                segment's; or it is out of reach, and a crash may have torn the header.
            SegmentOffsetOverflowError: it is out of reach of the base offset. Whether that may be
                is for `split_overflowed` to say, which sees all batches.
        """
        base = self.builder.base_offset
        if last_offset < base:
            raise self._impossible(f"offset {last_offset} lies below the segment's base offset")
        if last_offset - base > self.reach:
            if not self.checks_crc or last_offset - base > INT32_MAX:
                self._raise_overflow(last_offset)
            raise self._impossible(
                f"offset {last_offset} is not below {base + self.reach + 1}, where the next "
                "segment begins"
            )

    def _raise_overflow(self, last_offset: int) -> None:
        base = self.builder.base_offset
        error = self._impossible(f"offset {last_offset} is out of reach of {base}")
        if self.checks_crc and not isinstance(error, ImpossibleOffsetError):
            raise error
        raise SegmentOffsetOverflowError(
            f"Detected offset overflow at offset {last_offset} in segment {self.path}",
            base_offset=base,
        )

    def note_epoch(self, epoch: int, base_offset: int) -> None:
        """Passes on a leader epoch, if it is the largest so far."""
        if epoch > self._epoch and self.leader_epochs is not None:
            self.leader_epochs.assign(epoch, base_offset)
            self._epoch = epoch

    @property
    def epoch(self) -> int:
        """The largest leader epoch so far, -1 for none."""
        return self._epoch

    def marker_at(self, head: BatchHead) -> EndTxnMarker | None:
        """The marker of a control batch.

        Raises:
            CorruptError: it holds something else.
        """
        batch = read_batch(self.file, head, path=self.path)
        assert isinstance(batch, RecordBatch), "its magic is 2"
        try:
            return marker_of(batch)
        except CorruptError as error:
            raise CorruptError(error.reason, position=head.position) from None


class _Effort:
    """Number of batches that all walks of this process have checked plainly."""

    plain_batches = 0


def _crc(magic: int, data: Buffer, before: int) -> int:
    return crc32c(data, value=before) if magic == MAGIC else zlib.crc32(data, before)
