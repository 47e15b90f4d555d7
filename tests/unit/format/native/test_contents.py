"""The kernels that walk whole records, each against its plain twin in `cordwood.format`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents, kernels, key_table
from cordwood.format.record_batch import Record, RecordBatch, build_batch, parse_batch
from cordwood.model.errors import CorruptError
from support.scanned_batches import batches, records_in, scanned

Ints = npt.NDArray[np.int64]
SECRETS = Secrets.from_seed(3).words


def checked(data: bytes) -> Ints:
    buffer, table, spans = scanned(data)
    found = np.empty((len(table), contents.CHECKS), dtype=np.int64)
    kernels.check_batches(buffer, table, 0, len(table), spans, found)
    return found


@given(batches())
def test_records_are_checked_as_they_are_read(data: bytes) -> None:
    (found,) = checked(data).tolist()
    records = records_in(data)
    batch = parse_batch(data)
    assert isinstance(batch, RecordBatch)
    assert found[: contents.CHECK_MAX_TIMESTAMP] == [contents.SOUND, records[-1].offset]
    if batch.header.timestamp_type == "CreateTime":
        assert found[contents.CHECK_MAX_TIMESTAMP] == max(each.timestamp for each in records)


@given(batches(), st.data())
def test_a_changed_byte_is_refused_wherever_the_twin_refuses_it(
    data: bytes, chooses: st.DataObject
) -> None:
    changed = bytearray(data)
    changed[chooses.draw(st.integers(HEADER_BYTES, len(data) - 1))] = chooses.draw(
        st.integers(0, 255)
    )
    batch = parse_batch(bytes(changed))
    assert isinstance(batch, RecordBatch)
    try:
        offsets = [each.offset for each in batch.records()]
    except CorruptError:
        assert checked(bytes(changed))[0, contents.CHECK_STATUS] != contents.SOUND
    else:
        is_ascending = offsets == sorted(set(offsets)) and offsets[0] >= 50
        assert (checked(bytes(changed))[0, contents.CHECK_STATUS] == contents.SOUND) == is_ascending


@given(st.lists(batches(), min_size=1, max_size=3))
def test_contents_are_equal_where_records_are(parts: list[bytes]) -> None:
    data = b"".join(parts)
    buffer, table, spans = scanned(data)
    rows = np.empty((int(table[:, rows_of.COUNT].sum()), contents.WORDS), dtype=np.uint64)
    status, count = kernels.list_contents(buffer, table, 0, len(table), spans, SECRETS, rows)
    records = [each for part in parts for each in records_in(part)]
    assert (status, count) == (contents.SOUND, len(records))
    identities: dict[tuple[int, ...], tuple[object, ...]] = {}
    for row, record in zip(rows.tolist(), records, strict=True):
        assert row[contents.OFFSET] == record.offset
        assert row[contents.TIMESTAMP] == record.timestamp
        assert bool(row[contents.FLAGS] & contents.HAS_KEY) == (record.key is not None)
        assert bool(row[contents.FLAGS] & contents.HAS_NULL_VALUE) == (record.value is None)
        words = tuple(row[contents.CONTENT : contents.CONTENT + 3])
        content = record.key, record.value, tuple(record.headers)
        assert identities.setdefault(words, content) == content
    assert len(identities) == len({(r.key, r.value, tuple(r.headers)) for r in records})


@given(st.lists(batches(), min_size=1, max_size=4), st.integers(1, 3))
def test_the_newest_of_each_key_is_found_shard_by_shard(parts: list[bytes], shards: int) -> None:
    buffer, table, spans = scanned(b"".join(parts))
    records = [each for part in parts for each in records_in(part)]
    counts = table[:, rows_of.COUNT]
    ordinals = np.ascontiguousarray(np.cumsum(counts) - counts)
    newest, unkeyed, nulls = (np.zeros(64, dtype=np.uint8) for _ in range(3))
    for shard in range(shards):
        keys, used = key_table.new_table(64), np.zeros(1, dtype=np.int64)
        status, last = kernels.newest_of_shard(
            buffer, table, 0, len(table), spans, ordinals, keys, used, unkeyed, nulls, SECRETS,
            shard, shards,
        )  # fmt: skip
        assert (status, last) == (contents.SOUND, len(table))
        kernels.mark_newest(keys, newest)
    last_of = {record.key: number for number, record in enumerate(records)}
    last_of.pop(None, None)
    assert set(_set_bits(newest)) == set(last_of.values())
    assert _set_bits(unkeyed) == [n for n, each in enumerate(records) if each.key is None]
    assert _set_bits(nulls) == [n for n, each in enumerate(records) if each.value is None]


def _set_bits(bits: npt.NDArray[np.uint8]) -> list[int]:
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()


def test_a_full_table_is_reported_before_the_batch_that_does_not_fit() -> None:
    parts = [build_batch([Record(n, 0, b"%d" % n, b"v")], base_offset=n) for n in range(6)]
    buffer, table, spans = scanned(b"".join(parts))
    bits = np.zeros(8, dtype=np.uint8)
    keys, used = key_table.new_table(8), np.zeros(1, dtype=np.int64)
    found = kernels.newest_of_shard(
        buffer, table, 0, 6, spans, np.arange(6), keys, used, bits, bits.copy(), SECRETS, 0, 1
    )
    assert found == (contents.FULL, 4)
    assert used[0] == 4


@pytest.mark.parametrize("at", [-1, -2])
def test_a_damaged_record_is_named_by_its_batch(at: int) -> None:
    good = build_batch([Record(0, 0, b"a", b"b")], base_offset=0)
    bad = bytearray(build_batch([Record(1, 0, b"c", b"d")], base_offset=1))
    bad[at] = 0x7E
    buffer, table, spans = scanned(good + bytes(bad))
    rows = np.empty((2, contents.WORDS), dtype=np.uint64)
    status, row = kernels.list_contents(buffer, table, 0, 2, spans, SECRETS, rows)
    if at == -1:
        assert (status, row) == (contents.MALFORMED, 1)
    else:
        assert (status, row) == (contents.SOUND, 2)
