"""Batches of another codec than their topic's.

Scenarios: org.apache.kafka.storage.internals.log.LogValidatorTest.
"""

from __future__ import annotations

import itertools

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import parse_header
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.model.kafka_errors import (
    RecordTooLargeError,
)
from cordwood.storage.append.validator import ValidationMetrics
from support.appends import (
    NOW,
    config_for,
    records_of,
    three,
    validate,
    with_header,
    written,
)

CODECS = list(Codec)
COMPRESSED = [codec for codec in Codec if codec]
PAIRS = list(itertools.product(CODECS, CODECS))


HEADED = [
    Record(0, NOW - 1, b"a", b"hello" * 50, (Header("h", b"1"), Header("n", None)), 984),
    Record(1, NOW + 1, b"", None, sequence=985),
    Record(2, NOW, None, b"", sequence=986),
]


@pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source, target in PAIRS if source is not target]
)
def test_other_codec_of_the_topic_means_one_new_batch_with_the_same_records(
    source: Codec, target: Codec
) -> None:
    data = build_batch(
        HEADED,
        base_offset=0,
        codec=source,
        producer_id=1324,
        producer_epoch=10,
        base_sequence=984,
        is_transactional=True,
    )
    result = validate(data, config_for(target), leader_epoch=40)
    assert written(result) == build_batch(
        HEADED,
        base_offset=0,
        codec=target,
        producer_id=1324,
        producer_epoch=10,
        base_sequence=984,
        is_transactional=True,
        partition_leader_epoch=40,
    )
    assert records_of(result) == HEADED
    assert result.size_may_have_changed
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, 2)
    assert result.record_stats.records_converted == 3
    assert result.record_stats.temporary_memory_bytes > len(data)


@pytest.mark.parametrize("target", CODECS)
def test_topic_of_the_producers_codec_leaves_bytes_as_they_are(target: Codec) -> None:
    data = three(NOW, codec=target)
    for config in (LogConfig(), config_for(target)):
        result = validate(data, config)
        assert written(result)[16:] == data[16:]
        assert not result.size_may_have_changed


LEVELS = {
    Codec.GZIP: ("compression_gzip_level", 9, 1),
    Codec.LZ4: ("compression_lz4_level", 17, 9),
    Codec.ZSTD: ("compression_zstd_level", 22, -100),
}
LONG = [Record(i, NOW, None, (b"some", b"data")[i] * 256) for i in range(2)]
DENSE = [
    Record(i, NOW, None, b" ".join(b"%d" % (i * i * j % 997) for j in range(60)))
    for i in range(200)
]


@pytest.mark.parametrize("codec", LEVELS)
def test_other_level_of_the_same_codec_means_no_recompression(codec: Codec) -> None:
    setting, best, fastest = LEVELS[codec]
    sent = build_batch(DENSE, base_offset=0, codec=codec, level=best)
    other = build_batch(DENSE, base_offset=0, codec=codec, level=fastest)
    assert sent != other
    result = validate(sent, config_for(codec, **{setting: fastest}))
    assert written(result)[16:] == sent[16:]


@pytest.mark.parametrize("codec", LEVELS)
def test_batch_built_anew_is_compressed_at_the_topics_level(codec: Codec) -> None:
    setting, best, fastest = LEVELS[codec]
    for level in (best, fastest):
        sent = build_batch(DENSE, base_offset=0, codec=Codec.SNAPPY)
        result = validate(sent, config_for(codec, **{setting: level}))
        expected = build_batch(
            DENSE, base_offset=0, codec=codec, level=level, partition_leader_epoch=0
        )
        assert written(result) == expected


def test_gzip_becomes_lz4_of_the_least_level() -> None:
    sent = build_batch(LONG, base_offset=0, codec=Codec.GZIP, level=9)
    result = validate(sent, config_for(Codec.LZ4, compression_lz4_level=1))
    expected = build_batch(LONG, base_offset=0, codec=Codec.LZ4, level=1, partition_leader_epoch=0)
    assert written(result) == expected


def test_base_timestamp_of_a_batch_built_anew_is_that_of_its_first_record() -> None:
    records = [Record(i, NOW + i, b"k", b"v") for i in range(3)]
    moved = build_batch(records, base_offset=0, delete_horizon_ms=NOW - 77)
    sent = with_header(moved, attributes=0)
    assert parse_header(sent).base_timestamp == NOW - 77
    for codec in COMPRESSED:
        result = validate(sent, config_for(codec))
        assert records_of(result) == records
        assert parse_header(written(result)).base_timestamp == NOW
        assert result.max_timestamp == NOW + 2


def test_batch_that_grows_beyond_max_message_bytes_is_refused() -> None:
    sent = build_batch(LONG, base_offset=0, codec=Codec.GZIP)
    metrics = ValidationMetrics()
    config = config_for(Codec.NONE, max_message_bytes=len(sent))
    with pytest.raises(RecordTooLargeError) as caught:
        validate(sent, config, metrics=metrics)
    size = len(build_batch(LONG, base_offset=0))
    assert str(caught.value) == (
        f"Message batch size is {size} bytes in append to partition topic-0 which exceeds the "
        f"maximum configured size of {len(sent)}."
    )
    assert metrics.bytes_rejected == len(sent)
    assert validate(sent, config_for(Codec.NONE, max_message_bytes=size)).next_offset == 2


def test_bits_without_meaning_stay_until_the_header_is_changed() -> None:
    data = with_header(three(NOW), attributes=0x0100 | 0x80)
    assert written(validate(data))[16:] == data[16:]
    changed = validate(with_header(data, max_timestamp=0))
    assert parse_header(written(changed)).attributes == 0
