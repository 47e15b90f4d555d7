"""The bound on one record of a compressed batch."""

from __future__ import annotations

import pytest

from cordwood.format import compression
from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_wrapper
from cordwood.format.record_batch import Record, RecordBatch, build_batch, parse_batch
from cordwood.format.record_bound import (
    RECORD_BYTES_MAX,
    payload_bytes_max,
    require_record_within,
    require_records_within,
    sizes_to_look_at,
)
from cordwood.format.varint import Buffer, encode_varint
from cordwood.model.errors import BatchTooLargeError, OversizedRecordError

COMPRESSED = [codec for codec in Codec if codec]
MIB = 1 << 20


def batch_of(codec: Codec, *values: int) -> RecordBatch:
    """A batch of a record of so many zeros for each number."""
    records = [Record(i, 1, None, bytes(value)) for i, value in enumerate(values)]
    batch = parse_batch(build_batch(records, base_offset=0, codec=codec))
    assert isinstance(batch, RecordBatch)
    return batch


def test_records_within_the_bound_take_a_number_more_each() -> None:
    assert payload_bytes_max(3, 1000) == 3 * 1005
    assert payload_bytes_max(-1, 1000) == 0
    assert RECORD_BYTES_MAX == 2147483639


def test_the_bound_is_on_the_size_that_a_record_declares() -> None:
    require_record_within(1000, 1000)
    with pytest.raises(OversizedRecordError) as found:
        require_record_within(1001, 1000)
    assert found.value.reason == (
        "Invalid record size: 1001 exceeds the configured maximum record size of 1000."
    )


def test_only_records_of_the_batch_count_up_to_a_malformed_one() -> None:
    three = encode_varint(2) + b"ab" + encode_varint(3000)
    require_records_within(three, 1, 1000)
    with pytest.raises(OversizedRecordError, match="3000 exceeds"):
        require_records_within(three, 2, 1000)
    require_records_within(encode_varint(-1) + encode_varint(3000), 2, 1000)
    require_records_within(encode_varint(2) + b"a", 2, 1000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_is_refused_for_one_record(codec: Codec) -> None:
    batch = batch_of(codec, 10, 5000, 10)
    body = next(size for size in range(5000, 5100) if _is_read(batch, size))
    assert [len(r.value or b"") for r in batch.iter_records(record_bytes_max=body)] == [
        10,
        5000,
        10,
    ]
    expected = f"Invalid record size: {body} exceeds the configured maximum record size of 5000."
    with pytest.raises(OversizedRecordError) as found:
        list(batch.iter_records(record_bytes_max=5000))
    assert found.value.reason == expected


def _is_read(batch: RecordBatch, record_bytes_max: int) -> bool:
    try:
        return bool(list(batch.iter_records(record_bytes_max=record_bytes_max)))
    except OversizedRecordError:
        return False


def test_a_large_stream_is_looked_at_step_by_step_where_there_is_a_bound() -> None:
    assert sizes_to_look_at(100 * MIB, 1000) == [16 * MIB, 64 * MIB, 100 * MIB]
    assert sizes_to_look_at(16 * MIB, 1000) == [16 * MIB]
    assert sizes_to_look_at(1000 * MIB, RECORD_BYTES_MAX) == [1000 * MIB]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_is_not_decompressed_far_beyond_the_bound(codec: Codec) -> None:
    batch = batch_of(codec, MIB)
    # Not a block of snappy fits, so that nothing of the record is seen.
    words = "larger than the 1000 bytes" if codec is Codec.SNAPPY else "record size of 1000"
    with pytest.raises(OversizedRecordError, match=words):
        batch.payload(record_bytes_max=1000)
    with pytest.raises(BatchTooLargeError):
        batch.payload(record_bytes_max=1 << 21, size_max=1 << 10)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_is_behind_a_record_over_the_bound_is_not_decompressed(
    monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    batch = batch_of(codec, 10, 40 * MIB, *([10] * 10))
    sizes = []
    whole = compression.decompress_into

    def noted(codec: Codec, data: Buffer, target: memoryview) -> int | None:
        sizes.append(len(target))
        return whole(codec, data, target)

    monkeypatch.setattr(compression, "decompress_into", noted)
    # Twelve records within the bound may take more than this batch.
    with pytest.raises(OversizedRecordError, match=f"exceeds .* of {8 * MIB}"):
        batch.payload(record_bytes_max=8 * MIB)
    start = batch.payload_start(record_bytes_max=8 * MIB)
    assert sizes == [16 * MIB, 16 * MIB]
    assert len(start) == 16 * MIB
    assert len(batch.payload(record_bytes_max=50 * MIB)) > 40 * MIB


def test_a_batch_without_a_codec_is_not_bounded() -> None:
    assert len(list(batch_of(Codec.NONE, 5000).iter_records(record_bytes_max=10))) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_a_legacy_set_are_bounded_by_their_size_field(magic: int) -> None:
    records = [Record(0, 1, b"k", bytes(5000)), Record(1, 1, b"k", b"v")]
    raw = build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP)
    batch = parse_batch(raw)
    assert isinstance(batch, LegacyBatch)
    size = 5000 + 1 + (14 if magic == 0 else 22)
    assert len(batch.records(record_bytes_max=size)) == 2
    with pytest.raises(OversizedRecordError, match=f"{size} exceeds .* of {size - 1}"):
        batch.records(record_bytes_max=size - 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_of_a_large_legacy_set_the_start_is_looked_at_first(
    monkeypatch: pytest.MonkeyPatch, magic: int, codec: Codec
) -> None:
    records = [Record(0, 1, b"k", b"v"), Record(1, 1, b"k", bytes(40 * MIB))]
    batch = parse_batch(build_legacy_wrapper(records, magic=magic, codec=codec))
    assert isinstance(batch, LegacyBatch)
    assert len(batch.records(record_bytes_max=41 * MIB)) == 2
    sizes = []
    whole = compression.decompress

    def noted(codec: Codec, data: Buffer, *, magic: int, size_max: int) -> bytes:
        sizes.append(size_max)
        return whole(codec, data, magic=magic, size_max=size_max)

    monkeypatch.setattr("cordwood.format.legacy.decompress", noted)
    with pytest.raises(OversizedRecordError, match=r"exceeds .* of 1000"):
        batch.records(record_bytes_max=1000)
    assert sizes == [16 * MIB]
