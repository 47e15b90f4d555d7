"""Appends with a record over max.decompressed.message.bytes."""

from __future__ import annotations

from dataclasses import replace

import cramjam
import pytest

from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch, parse_batch
from cordwood.format.varint import decode_varint
from cordwood.model.kafka_errors import InvalidRecordError
from support.appends import NOW, config_for, validate, with_header, with_payload

COMPRESSED = [codec for codec in Codec if codec]
MIB = 1 << 20


def batch(codec: Codec, *sizes: int) -> bytes:
    """A batch with a record of so many zeros for each number."""
    records = [Record(i, NOW, b"k", bytes(size)) for i, size in enumerate(sizes)]
    return build_batch(records, base_offset=0, codec=codec)


def body_of(size: int) -> int:
    """The size that such a record declares."""
    made = parse_batch(batch(Codec.NONE, size))
    assert made is not None
    declared, _ = decode_varint(bytes(made.raw), 61)
    return declared


def refusal(data: bytes, bound: int, codec: Codec | None = None) -> str:
    config = replace(config_for(codec), max_decompressed_message_bytes=bound)
    with pytest.raises(InvalidRecordError) as found:
        validate(data, config)
    assert InvalidRecordError.code == 87
    return str(found.value)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [5_000, 5 * MIB], ids=["small", "large"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_record_over_the_bound_refuses_its_batch(codec: Codec, size: int, place: int) -> None:
    sizes = [10, 10]
    sizes[place] = size
    data, body = batch(codec, *sizes), body_of(size)
    expected = (
        f"Invalid record size: {body} exceeds the configured maximum record size of {body - 1}."
    )
    assert refusal(data, body - 1) == expected
    config = replace(config_for(), max_decompressed_message_bytes=body)
    assert validate(data, config).next_offset == 2


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_that_was_not_decompressed_to_its_end_has_the_same_text(codec: Codec) -> None:
    body = body_of(6 * MIB)
    assert refusal(batch(codec, 6 * MIB), MIB) == (
        f"Invalid record size: {body} exceeds the configured maximum record size of {MIB}."
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_many_records_within_the_bound_are_taken(codec: Codec) -> None:
    config = replace(config_for(), max_decompressed_message_bytes=body_of(100_000))
    assert validate(batch(codec, *[100_000] * 60), config).next_offset == 60


def test_records_without_a_codec_are_not_bounded_whatever_the_topics_is() -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        config = replace(config_for(codec), max_decompressed_message_bytes=10)
        assert validate(batch(Codec.NONE, 5_000), config).next_offset == 1
    assert "of 10." in refusal(batch(Codec.GZIP, 5_000), 10, Codec.ZSTD)


def test_a_block_of_raw_snappy_is_bounded() -> None:
    plain = batch(Codec.NONE, 5 * MIB)[61:]
    data = with_payload(Codec.NONE, bytes(cramjam.snappy.compress_raw(plain)), count=1)
    data = with_header(data, attributes=int(Codec.SNAPPY))
    assert refusal(data, MIB).startswith(f"Invalid record size: {body_of(5 * MIB)} exceeds")


def test_a_size_that_is_declared_and_not_there_is_over_the_bound_first() -> None:
    plain = batch(Codec.NONE, 5_000)[61:100]
    data = with_payload(Codec.GZIP, plain, count=1)
    assert refusal(data, 1_000).startswith(f"Invalid record size: {body_of(5_000)} exceeds")
    assert "exceeds" not in refusal(data, 10_000)
