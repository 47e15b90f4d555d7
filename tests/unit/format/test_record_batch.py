from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.batch_header import BatchHeader, build_header, parse_header
from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_message
from cordwood.format.record_batch import (
    Header,
    Record,
    RecordBatch,
    build_batch,
    build_batch_of,
    build_empty_batch,
    iter_batches,
    may_expand_beyond,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError

TS = 1700000000000

# One record, no producer.
A = bytes.fromhex(
    "00000000000000000000003b00000000020f7768850000000000000000018bcfe568000000018bcfe56800ff"
    "ffffffffffffffffffffffffff0000000112000000026b04763100"
)
# Producer 23, a tombstone, headers.
B = bytes.fromhex(
    "000000000000000a0000005100000003022c27ee350000000000020000018bcfe568000000018bcfe5680a00"
    "0000000000001700050000000a000000031000000002610278000e000a02026201001c001404026300040268"
    "0231026e01"
)
# B with a delete horizon.
C = bytes.fromhex(
    "000000000000000a0000005a00000003027311566d0040000000020000018bd50bc40a0000018bcfe5680a00"
    "0000000000001700050000000a00000003160093f0b252000261027800140089f0b25202026201002200ffef"
    "b252040263000402680231026e01"
)
# B without its records.
D = bytes.fromhex(
    "000000000000000a00000031000000030257c5db4a000000000002ffffffffffffffff0000018bcfe5680a00"
    "0000000000001700050000000a00000000"
)

A_RECORDS = [Record(0, TS, b"k", b"v1")]
B_RECORDS = [
    Record(10, TS, b"a", b"x", sequence=10),
    Record(11, TS + 5, b"b", None, sequence=11),
    Record(12, TS + 10, b"c", b"", (Header("h", b"1"), Header("n", None)), sequence=12),
]


def parse(data: bytes) -> RecordBatch:
    ((position, batch),) = iter_batches(data)
    assert position == 0
    assert isinstance(batch, RecordBatch)
    return batch


def build_b(*, delete_horizon_ms: int | None = None) -> bytes:
    return build_batch(
        B_RECORDS,
        base_offset=10,
        producer_id=23,
        producer_epoch=5,
        base_sequence=10,
        partition_leader_epoch=3,
        delete_horizon_ms=delete_horizon_ms,
    )


def test_known_vectors_are_read() -> None:
    assert parse(A).records() == A_RECORDS
    for data in (B, C):
        batch = parse(data)
        assert batch.records() == B_RECORDS
        assert batch.is_valid()
        assert (batch.base_offset, batch.last_offset, batch.next_offset) == (10, 12, 13)
    assert parse(C).header.delete_horizon_ms == TS + 10 + 86_400_000
    assert parse(D).records() == []
    assert parse(D).is_valid()


def test_known_vectors_are_built() -> None:
    assert build_batch(A_RECORDS, base_offset=0, partition_leader_epoch=0) == A
    assert build_b() == B
    assert build_b(delete_horizon_ms=TS + 10 + 86_400_000) == C
    assert build_empty_batch(parse_header(B)) == D
    assert build_empty_batch(parse_header(C)) == D


def test_no_records_are_no_batch() -> None:
    assert build_batch([], base_offset=5) == b""


def test_a_compacted_batch_keeps_its_last_offset() -> None:
    batch = parse(build_batch(B_RECORDS[:1], base_offset=10, last_offset=12))
    assert batch.last_offset == 12
    assert batch.header.records_count == 1


def test_log_append_time_stands_for_every_timestamp() -> None:
    data = build_batch(
        B_RECORDS, base_offset=10, timestamp_type="LogAppendTime", log_append_time_ms=TS + 99
    )
    batch = parse(data)
    assert batch.timestamp_type == "LogAppendTime"
    assert {record.timestamp for record in batch.records()} == {TS + 99}
    assert build_empty_batch(batch.header)[22] == 0x08


def test_negative_timestamps_leave_the_maximum_unset() -> None:
    assert parse(build_batch([Record(0, -5, b"", b"")], base_offset=0)).max_timestamp == -1


def test_offsets_out_of_reach_are_refused() -> None:
    for offset in (4, 5 + (1 << 31)):
        with pytest.raises(ValueError, match="out of reach"):
            build_batch([Record(offset, 0, None, None)], base_offset=5)


def test_last_sequence_wraps() -> None:
    header = parse_header(B)._replace(base_sequence=(1 << 31) - 2)
    assert header.last_sequence == 0
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_attributes_of_every_kind_are_kept() -> None:
    data = build_batch(A_RECORDS, base_offset=0, is_transactional=True, is_control=True)
    header = parse_header(data)
    assert header.is_transactional
    assert header.is_control
    assert not header.has_delete_horizon
    assert not header.has_producer_id
    assert build_header(header) + data[61:] == data


def test_iteration_stops_silently_at_a_torn_tail() -> None:
    for tail in (b"", A[:16], A[:-1], B[:50]):
        assert [position for position, _ in iter_batches(A + B + tail)] == [0, len(A)]
    assert [position for position, _ in iter_batches(A + B, start=len(A))] == [len(A)]
    assert list(iter_batches(b"")) == []


def test_iteration_mixes_all_magics() -> None:
    old = build_legacy_message(offset=0, magic=1, key=b"k", value=b"v", timestamp=5)
    kinds = [type(batch) for _, batch in iter_batches(old + B)]
    assert kinds == [LegacyBatch, RecordBatch]


def test_impossible_lengths_and_magics_are_corrupt() -> None:
    for length in (13, 0, -1):
        data = A[:8] + length.to_bytes(4, "big", signed=True) + A[12:]
        with pytest.raises(CorruptError, match="less than the minimum of 14"):
            list(iter_batches(data))
    with pytest.raises(CorruptError, match="less than its header"):
        list(iter_batches(A[:8] + (48).to_bytes(4, "big") + A[12:]))
    for magic in (3, 255):
        with pytest.raises(UnsupportedVersionError):
            list(iter_batches(A[:16] + bytes([magic]) + A[17:]))
    with pytest.raises(UnsupportedVersionError):
        parse_header(A[:16] + b"\x01" + A[17:])
    with pytest.raises(CorruptError, match="cut off"):
        parse_header(A[:60])


def test_every_flipped_bit_after_the_epoch_is_noticed() -> None:
    for position in range(21, len(B)):
        data = bytearray(B)
        data[position] ^= 1
        batch = RecordBatch(parse_header(data), bytes(data))
        assert not batch.is_valid()
        with pytest.raises(CorruptError, match="CRC"):
            batch.require_valid()
    RecordBatch(parse_header(B), B).require_valid()


def with_count(count: int) -> RecordBatch:
    return RecordBatch(parse_header(B)._replace(records_count=count), B)


def test_a_false_count_of_records_is_corrupt() -> None:
    assert with_count(0).records() == []
    for count in (-1, 2, 4, (1 << 31) - 1):
        with pytest.raises(CorruptError):
            with_count(count).records()


def test_records_before_a_malformed_one_are_given() -> None:
    data = bytearray(B)
    data[70] = 0x7F  # the second record's length
    records = RecordBatch(parse_header(data), bytes(data)).iter_records()
    assert next(records) == B_RECORDS[0]
    with pytest.raises(CorruptError):
        next(records)


BYTES = st.none() | st.binary(max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], bytes]:
    base_offset = draw(st.integers(0, 1 << 60))
    deltas = sorted(draw(st.sets(st.integers(0, 1000), min_size=1, max_size=6)))
    base_sequence = draw(st.integers(-1, 1 << 20))
    records = [
        Record(
            base_offset + delta,
            draw(st.integers(-1, 1 << 45)),
            draw(BYTES),
            draw(BYTES),
            tuple(draw(st.lists(st.builds(Header, TEXT, BYTES), max_size=2))),
            -1 if base_sequence < 0 else base_sequence + delta,
        )
        for delta in deltas
    ]
    data = build_batch(
        records,
        base_offset=base_offset,
        codec=draw(st.sampled_from(list(Codec))),
        base_sequence=base_sequence,
        producer_id=draw(st.integers(-1, 1 << 60)),
        delete_horizon_ms=draw(st.none() | st.integers(0, 1 << 45)),
    )
    return records, data


@given(batches())
def test_round_trip(built: tuple[list[Record], bytes]) -> None:
    records, data = built
    batch = parse(data)
    assert batch.records() == records
    assert batch.is_valid()
    header = batch.header
    again = build_batch(
        batch.records(),
        base_offset=header.base_offset,
        codec=header.codec,
        base_sequence=header.base_sequence,
        producer_id=header.producer_id,
        delete_horizon_ms=header.delete_horizon_ms,
    )
    assert again == data


HEADERS = st.builds(
    BatchHeader,
    base_offset=st.integers(-(1 << 63), (1 << 63) - 1),
    batch_length=st.integers(-(1 << 31), (1 << 31) - 1),
    partition_leader_epoch=st.integers(-1, 100),
    magic=st.just(2),
    crc=st.integers(0, (1 << 32) - 1),
    attributes=st.integers(-(1 << 15), (1 << 15) - 1),
    last_offset_delta=st.integers(-(1 << 31), (1 << 31) - 1),
    base_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    max_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    producer_id=st.integers(-(1 << 63), (1 << 63) - 1),
    producer_epoch=st.integers(-(1 << 15), (1 << 15) - 1),
    base_sequence=st.integers(-(1 << 31), (1 << 31) - 1),
    records_count=st.integers(-(1 << 31), (1 << 31) - 1),
)


@given(HEADERS)
def test_headers_round_trip(header: BatchHeader) -> None:
    assert parse_header(b"xy" + build_header(header), 2) == header


@given(st.binary(max_size=150))
def test_hostile_payloads_are_corrupt(payload: bytes) -> None:
    for codec in range(8):
        header = parse_header(B)._replace(attributes=codec, records_count=2)
        with contextlib.suppress(CorruptError):
            RecordBatch(header, B[:61] + payload).records()


@given(st.binary(max_size=200))
def test_hostile_files_are_corrupt(data: bytes) -> None:
    try:
        for _, batch in iter_batches(data):
            batch.is_valid()
            batch.records()
    except CorruptError:
        pass


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_compressed_batch_that_is_larger_than_a_size_may_be_so(codec: Codec) -> None:
    payload_bytes = 1 << 20
    batch = build_batch([Record(0, TS, None, bytes(payload_bytes))], base_offset=0, codec=codec)
    assert may_expand_beyond(batch, payload_bytes)
    assert not may_expand_beyond(batch, 1 << 40)


def test_a_batch_without_a_codec_or_without_a_whole_header_does_not_expand() -> None:
    batch = build_batch([Record(0, TS, None, bytes(1000))], base_offset=0)
    assert not may_expand_beyond(batch, 0)
    packed = build_batch([Record(0, TS, None, bytes(1000))], base_offset=0, codec=Codec.GZIP)
    assert not may_expand_beyond(packed[:61], 0)


@given(
    st.lists(st.tuples(*[st.none() | st.binary(max_size=300)] * 2), min_size=1),
    st.sampled_from(Codec),
)
def test_batch_of_keys_and_values_is_that_of_their_records(
    entries: list[tuple[bytes | None, bytes | None]], codec: Codec
) -> None:
    records = [Record(number, TS, key, value) for number, (key, value) in enumerate(entries)]
    wanted = build_batch(records, base_offset=0, base_sequence=0, codec=codec)
    assert build_batch_of(entries, timestamp=TS, codec=codec, base_sequence=0) == wanted
