"""Columns of fixed-size entries: big-endian fields at a fixed stride, to and from arrays.

Each byte of a field is copied for all entries at once, so there is no loop over entries.
"""

from __future__ import annotations

import sys
from array import array
from typing import Literal

from cordwood.format.varint import Buffer


def gather(buffer: Buffer, *, typecode: Literal["i", "q"], start: int, stride: int) -> array[int]:
    """The integers at `start`, `start + stride`, ... of `buffer`; a partial last one is left out.

    `typecode` is the type code of the array and gives the field width: "i" 4 bytes, "q" 8 bytes.
    """
    column = array(typecode)
    width = column.itemsize
    count = (len(buffer) - start - width) // stride + 1
    if count <= 0:
        return column
    data = bytearray(count * width)
    for byte in range(width):
        place = width - 1 - byte if sys.byteorder == "little" else byte
        first = start + byte
        data[place::width] = buffer[first : first + (count - 1) * stride + 1 : stride]
    column.frombytes(data)
    return column


def interleave(*columns: array[int]) -> bytes:
    """Entries made of one field of each column, in that order; the columns are equally long."""
    stride = sum(column.itemsize for column in columns)
    data = bytearray(len(columns[0]) * stride)
    start = 0
    for column in columns:
        width = column.itemsize
        raw = column.tobytes()
        for byte in range(width):
            place = width - 1 - byte if sys.byteorder == "little" else byte
            data[start + byte :: stride] = raw[place::width]
        start += width
    return bytes(data)
