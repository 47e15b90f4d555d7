"""The two walks over records agree on any bytes, and with the plain parser on what is a record."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cordwood.format.batch_header import HEADER_BYTES, build_header, parse_header
from cordwood.format.record_batch import Header, Record, RecordBatch, build_batch
from cordwood.format.varint import encode_varint
from cordwood.model.errors import CorruptError
from cordwood.storage.append import record_walk
from cordwood.storage.append.record_walk import RecordSummary, walk_plainly, why_malformed
from support.random_log import Contents, random_log

SEEDS = st.integers(0, 2**40)


@pytest.fixture(scope="module", autouse=True)
def _native_walk_is_loaded() -> None:
    record_walk.prepare()


def walk_both(payload: bytes, count: int) -> RecordSummary:
    """Walks in both ways, which must agree."""
    native = record_walk._native.walk
    assert native is not None
    plain = walk_plainly(payload, count)
    if payload:
        assert native(payload, count) == plain
        assert native(bytearray(payload), count) == plain
    return plain


def parsed(payload: bytes, count: int) -> list[Record] | None:
    """The batch parser's result for the same bytes, based at 0; None if it refuses them."""
    header = parse_header(build_batch([Record(0, 0, None, None)], base_offset=0))
    header = header._replace(base_timestamp=0, records_count=count, last_offset_delta=0)
    try:
        return RecordBatch(header, build_header(header) + payload).records()
    except CorruptError:
        return None


def check(payload: bytes, count: int) -> bool:
    """Whether the records are well-formed: all three readers have to agree on that."""
    summary = walk_both(payload, count)
    records = parsed(payload, count)
    assert summary.ok == (records is not None)
    if records is None:
        assert 0 <= summary.first_bad <= count
        assert why_malformed(payload, count)
        return False
    assert summary == RecordSummary(
        ok=True,
        first_bad=-1,
        min_timestamp_delta=min(record.timestamp for record in records),
        max_timestamp_delta=max(record.timestamp for record in records),
        null_keys=sum(record.key is None for record in records),
        sequential_offsets=[record.offset for record in records] == list(range(count)),
    )
    return True


def well_formed(rng: random.Random) -> tuple[bytes, int]:
    """A payload of records of every shape, and how many they are."""
    records = []
    offset = 0
    for _ in range(rng.choice([1, 2, 5, 40])):
        headers = tuple(
            Header("h" * rng.choice([0, 1, 70]), rng.choice([None, b"", b"x" * 90]))
            for _ in range(rng.choice([0, 0, 1, 3, 70]))
        )
        key, value = (
            rng.choice([None, b"", b"k", b"k" * 64, b"k" * 8192, b"k" * 20_000]) for _ in "kv"
        )
        timestamp = rng.choice([0, 63, -64, 64, 1 << 40, (1 << 63) - 1, -(1 << 63)])
        records.append(Record(offset, timestamp, key, value, headers))
        offset += rng.choice([1, 1, 1, 1, 64, 8192, 1 << 26])
    data = build_batch(records, base_offset=0, delete_horizon_ms=0)
    return data[HEADER_BYTES:], len(records)


@given(SEEDS)
def test_records_of_every_shape_are_read(seed: int) -> None:
    assert check(*well_formed(random.Random(seed)))


@given(SEEDS)
def test_records_of_random_logs_are_read(seed: int) -> None:
    log = random_log(seed, Contents(batches=6, roll=0.0, legacy=False, records_max=40))
    for data in log.segments[0].batches:
        header = parse_header(data)
        if header.records_count:
            assert walk_both(RecordBatch(header, data).payload(), header.records_count).ok


@given(seed=SEEDS, flips=st.integers(1, 4))
def test_flipped_bytes_are_judged_alike(seed: int, flips: int) -> None:
    rng = random.Random(seed)
    payload, count = well_formed(rng)
    changed = bytearray(payload)
    for _ in range(flips):
        # Sizes and counts are near the start of records; a random byte is mostly inside a value.
        position = rng.randrange(min(len(changed), rng.choice([16, 128, 1 << 20])))
        changed[position] = rng.choice(
            [rng.randrange(256), changed[position] ^ (1 << rng.randrange(8)), 0xFF, 0x80, 0]
        )
    check(bytes(changed), count)


@given(seed=SEEDS, count=st.integers(-2, 60))
def test_wrong_counts_are_judged_alike(seed: int, count: int) -> None:
    payload, right = well_formed(random.Random(seed))
    summary = walk_both(payload, count)
    assert summary.ok == (count == right)
    if count > 0:
        check(payload, count)


@given(seed=SEEDS)
def test_payloads_cut_off_anywhere_are_judged_alike(seed: int) -> None:
    rng = random.Random(seed)
    payload, count = well_formed(rng)
    assert not check(payload[: rng.randrange(len(payload))], count)
    assert not check(payload + rng.randbytes(rng.randint(1, 9)), count)


@given(payload=st.binary(max_size=60), count=st.integers(1, 5))
@example(payload=b"\x80" * 11, count=1)
@example(payload=b"\xff\xff\xff\xff\x0f", count=1)
def test_any_bytes_are_judged_alike(payload: bytes, count: int) -> None:
    check(payload, count)


@given(body=st.lists(st.sampled_from([0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0xFF]), max_size=24))
def test_any_body_of_a_right_size_is_judged_alike(body: list[int]) -> None:
    payload = encode_varint(len(body)) + bytes(body)
    check(payload, 1)
    check(payload * 2, 2)
