"""A segment as a reader is given it: a file, and how much of it is valid."""

from __future__ import annotations

from dataclasses import dataclass

#: Memory that a reader may take for a batch, unless it is given less: the limit of any batch.
BATCH_BYTES_MAX = (1 << 31) - 1


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
