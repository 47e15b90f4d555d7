"""A segment as a reader is given it: a file, and how much of it is valid."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.format.record_bound import RECORD_BYTES_MAX, payload_bytes_max
from cordwood.model.errors import OversizedRecordError

#: Memory that a reader may take for a batch, unless it is given less: the limit of any batch.
BATCH_BYTES_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """The limits of a reader that decompresses a batch.

    `batch_bytes_max` is the memory that it may take for one, `record_bytes_max` the largest record
    in a compressed one: max.decompressed.message.bytes.
    """

    batch_bytes_max: int = BATCH_BYTES_MAX
    record_bytes_max: int = RECORD_BYTES_MAX

    def payload_bytes_max(self, count: int) -> int:
        """The bytes of `count` records, decompressed, at which a reader ends."""
        return min(self.batch_bytes_max, payload_bytes_max(count, self.record_bytes_max))


#: Those of a reader that does not know its topic's settings.
WIDEST = ReadBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSource:
    """One segment to read: its file, and how many bytes of it are valid.

    `next_base_offset` is the base of the segment after it, exclusive bound of its offsets.
    """

    path: str
    base_offset: int
    next_base_offset: int
    size_bytes: int
    modified_ns: int

    def oversized(self, position: int, offset: int, reason: str) -> OversizedRecordError:
        """The error for a record that is larger than its topic allows, in a compressed batch of it.

        The batch is at byte `position`; `offset` is its base offset, or that of an old message.
        """
        return OversizedRecordError(
            f"{reason.removesuffix('.')}, in the batch of offset {offset}",
            path=self.path,
            position=position,
            remedy="Raise max.decompressed.message.bytes of the topic",
        )
