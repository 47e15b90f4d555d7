from __future__ import annotations

import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.columns import gather, interleave

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(INT64, INT32)))
def test_columns_of_wide_and_narrow_fields_are_what_struct_reads(
    entries: list[tuple[int, int]],
) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    wide = gather(data, typecode="q", start=0, stride=12)
    narrow = gather(data, typecode="i", start=8, stride=12)
    assert list(zip(wide, narrow, strict=True)) == entries
    assert interleave(wide, narrow) == data


@given(st.lists(st.tuples(INT32, INT32)), st.binary(max_size=7))
def test_a_cut_off_entry_at_the_end_gives_no_element(
    entries: list[tuple[int, int]], rest: bytes
) -> None:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries) + rest
    assert list(gather(data, typecode="i", start=4, stride=8)) == [entry[1] for entry in entries]


def test_views_are_read_like_bytes() -> None:
    data = struct.pack(">iiii", 1, 2, 3, 4)
    assert gather(memoryview(data), typecode="i", start=0, stride=8) == array("i", [1, 3])


def test_nothing_gives_nothing() -> None:
    assert gather(b"", typecode="q", start=0, stride=12) == array("q")
    assert interleave(array("q"), array("i")) == b""
