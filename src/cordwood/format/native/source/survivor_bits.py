"""Bits that mark retained records: one per record, lowest bit of a byte first."""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import COUNT
from cordwood.format.native.source.kernel import (
    Bytes,
    Ints,
    ReadOnlyBytes,
    Rows,
    Words,
    inlined,
    kernel,
)


@inlined
def set_bit(bits, index):
    """Sets one bit."""
    bits[index >> 3] |= np.uint8(1 << (index & 7))


@inlined
def get_bit(bits, index):
    """One bit, 0 or 1."""
    return (bits[index >> 3] >> np.uint8(index & 7)) & np.uint8(1)


@kernel
def set_bits(bits: Bytes, ordinals: Words) -> None:
    """Sets the bits at `ordinals` (uint64[n])."""
    for i in range(ordinals.shape[0]):
        set_bit(bits, np.int64(ordinals[i]))


@kernel
def count_bits(bits: Bytes, start: int, count: int) -> int:
    """The number of set bits among the `count` bits from `start`."""
    total = 0
    for i in range(start, start + count):
        total += get_bit(bits, i)
    return total


@kernel
def count_survivors(
    batches: Rows,
    rows: int,
    ordinals: Ints,
    keep: Bytes,
    nulls: ReadOnlyBytes,
    drop_nulls: ReadOnlyBytes,
    kept: Ints,
    kept_nulls: Ints,
) -> None:
    """The number of retained records of each batch, and how many of them have a null value.

    Args:
        drop_nulls: uint8[rows]: nonzero if the batch's tombstones are past their delete horizon;
            the bits of these tombstones are cleared in `keep`.
        kept: int64[rows], written.
        kept_nulls: int64[rows], written.
    """
    for i in range(rows):
        first = ordinals[i]
        survivors = 0
        tombstones = 0
        for bit in range(first, first + batches[i, COUNT]):
            if get_bit(keep, bit):
                if get_bit(nulls, bit):
                    if drop_nulls[i]:
                        keep[bit >> 3] &= np.uint8(0xFF ^ (1 << (bit & 7)))
                        continue
                    tombstones += 1
                survivors += 1
        kept[i] = survivors
        kept_nulls[i] = tombstones
