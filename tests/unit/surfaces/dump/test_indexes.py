from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.offset_index import build_offset_index, lookup_offset
from cordwood.format.transaction_index import ENTRY_BYTES
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.surfaces.dump.indexes import (
    OffsetIndexFile,
    offset_entries,
    time_entries,
    transaction_entries,
)


@given(st.sets(st.integers(0, 5000), max_size=40), st.integers(0, 5000), st.booleans())
def test_lookup_agrees_with_the_plain_one(offsets: set[int], target: int, is_long: bool) -> None:
    # Beyond 1024 entries Kafka searches the end of an index first.
    every = sorted({*offsets, *range(2000, 4000)} if is_long else offsets)
    entries = [(offset, number + 1) for number, offset in enumerate(every)]
    index = OffsetIndexFile(0, build_offset_index(entries, 0))
    assert index.lookup(target) == lookup_offset(entries, target, 0)


def test_zeros_at_the_end_are_no_entries() -> None:
    index = OffsetIndexFile(5, build_offset_index([(7, 1), (9, 2)], 5) + bytes(24))
    assert list(offset_entries(index)) == [(7, 1), (9, 2)]
    assert index.count == 5
    data = bytes.fromhex("000000000000000900000002") + bytes(24)
    assert list(time_entries(5, data)) == [(9, 7)]


def test_transaction_indexes_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    path.write_bytes(bytes(ENTRY_BYTES - 1))
    with pytest.raises(CorruptError, match="within an entry"):
        transaction_entries(path)
    for version in (b"\0\1", b"\xff\xff"):
        path.write_bytes(version + bytes(ENTRY_BYTES - 2))
        with pytest.raises(UnsupportedVersionError):
            transaction_entries(path)
