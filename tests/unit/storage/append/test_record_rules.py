"""Rules of a topic for single records.

Scenarios: org.apache.kafka.storage.internals.log.LogValidatorTest, UnifiedLogTest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES, parse_header
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordValidationError,
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

MINUTE = 60_000
HOUR = 60 * MINUTE
CODECS = list(Codec)
PAIRS = list(itertools.product(CODECS, CODECS))

THREE = [
    Record(0, NOW - 1, None, b"hello"),
    Record(1, NOW + 1, None, b"there"),
    Record(2, NOW, None, b"beautiful"),
]


def refused(
    records: bytes,
    config: LogConfig | None = None,
    *,
    metrics: ValidationMetrics | None = None,
) -> RecordValidationError:
    """The error that names the records at fault."""
    with pytest.raises(RecordValidationError) as caught:
        validate(records, config, metrics=metrics)
    return caught.value


# ---- keys


@pytest.mark.parametrize("target", [None, Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("codec", CODECS)
def test_record_without_a_key_in_a_compacted_topic_is_refused(
    codec: Codec, target: Codec | None
) -> None:
    metrics = ValidationMetrics()
    config = config_for(target, cleanup_policy=frozenset({"compact", "delete"}))
    error = refused(three(-1, codec=codec), config, metrics=metrics)
    assert isinstance(error.cause, InvalidRecordError)
    assert error.code == 87
    text = "Compacted topic cannot accept message without key in topic partition topic-0"
    assert error.record_errors == [RecordError(i, text) for i in range(3)]
    assert str(error) == (
        "One or more records have been rejected due to 3 record errors in total, and only showing "
        f"the first three errors at most: [RecordError(batchIndex=0, message='{text}'), "
        f"RecordError(batchIndex=1, message='{text}'), RecordError(batchIndex=2, message='{text}')]"
    )
    assert metrics == ValidationMetrics(no_key_compacted_topic_records=3)


def test_error_names_three_records_at_most_and_carries_all() -> None:
    records = [Record(i, NOW, None, b"v") for i in range(5)]
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    error = refused(build_batch(records, base_offset=0), config)
    assert "due to 5 record errors in total" in str(error)
    assert str(error).count("RecordError(") == 3
    assert len(error.record_errors) == 5


KEYED = (b"and here it is", b"this message has a key")
OTHER_KEYED = (b"another key", b"this message also has a key")
UNKEYED = (None, b"this message does not have a key")


@pytest.mark.parametrize(
    ("pairs", "codec", "index"),
    [
        ([UNKEYED, KEYED], Codec.NONE, 0),
        ([UNKEYED], Codec.NONE, 0),
        ([KEYED, UNKEYED], Codec.GZIP, 1),
    ],
)
def test_compacted_topic_names_the_one_record_without_a_key(
    pairs: Sequence[tuple[bytes | None, bytes]], codec: Codec, index: int
) -> None:
    records = [Record(i, NOW, key, value) for i, (key, value) in enumerate(pairs)]
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    metrics = ValidationMetrics()
    error = refused(build_batch(records, base_offset=0, codec=codec), config, metrics=metrics)
    assert [bad.index for bad in error.record_errors] == [index]
    assert metrics.no_key_compacted_topic_records == 1


@pytest.mark.parametrize(
    ("pairs", "codec"),
    [([KEYED], Codec.NONE), ([KEYED, OTHER_KEYED], Codec.NONE), ([KEYED], Codec.GZIP)],
)
def test_compacted_topic_takes_records_with_keys(
    pairs: Sequence[tuple[bytes, bytes]], codec: Codec
) -> None:
    records = [Record(i, NOW, key, value) for i, (key, value) in enumerate(pairs)]
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    result = validate(build_batch(records, base_offset=0, codec=codec), config)
    assert records_of(result) == records


def test_empty_key_is_a_key() -> None:
    data = build_batch([Record(0, NOW, b"", b"v")], base_offset=0)
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert validate(data, config).next_offset == 1


@pytest.mark.parametrize("policy", [{"compact"}, {"delete"}, {"compact", "delete"}])
def test_null_value_is_taken_under_any_policy(policy: set[str]) -> None:
    data = build_batch([Record(0, NOW, b"k", None)], base_offset=0)
    result = validate(data, LogConfig(cleanup_policy=frozenset(policy)))
    assert records_of(result) == [Record(0, NOW, b"k", None)]


def test_record_without_a_key_is_taken_where_nothing_is_compacted() -> None:
    assert validate(three(NOW)).next_offset == 3


# ---- timestamps


@pytest.mark.parametrize("target", [None, Codec.GZIP])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("timestamp", "before", "after"),
    [
        (NOW - 1001, 1000, 1000),
        (NOW + 1001, 1000, 1000),
        (NOW - 24 * HOUR - 5 * MINUTE, 24 * HOUR, HOUR),
        (NOW + HOUR + 5 * MINUTE, 24 * HOUR, HOUR),
    ],
)
def test_create_time_out_of_bounds_is_refused_for_each_record(
    timestamp: int, before: int, after: int, codec: Codec, target: Codec | None
) -> None:
    config = config_for(
        target, message_timestamp_before_max_ms=before, message_timestamp_after_max_ms=after
    )
    error = refused(three(timestamp, codec=codec), config)
    assert isinstance(error.cause, InvalidTimestampError)
    assert error.code == 32
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    assert error.record_errors == [
        RecordError(
            i,
            f"Timestamp {timestamp} of message with offset {i} is out of range. The timestamp "
            f"should be within [{NOW - before}, {NOW + after}]",
        )
        for i in range(3)
    ]


def test_bounds_of_create_time_are_inclusive() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    assert validate(three(NOW - 1000, NOW, NOW + 1000), config).max_timestamp == NOW + 1000
    error = refused(three(NOW - 1000, NOW + 1001, NOW - 1001), config)
    assert [bad.index for bad in error.record_errors] == [1, 2]


def test_create_time_may_be_any_past_but_one_hour_ahead_by_default() -> None:
    assert validate(three(0)).max_timestamp == 0
    assert validate(three(NOW + HOUR)).max_timestamp == NOW + HOUR
    with pytest.raises(RecordValidationError):
        validate(three(NOW + HOUR + 1))


def test_bound_beyond_int64_overflows_as_in_kafka() -> None:
    config = LogConfig(
        message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=(1 << 63) - 1
    )
    error = refused(three(NOW - 6), config)
    assert error.record_errors[0].message.endswith(f"[{NOW - 5}, {NOW - (1 << 63) - 1}]")


def test_distances_from_now_overflow_as_in_kafka() -> None:
    oldest = -(1 << 63)
    longest = (1 << 63) - 1
    config = LogConfig(
        message_timestamp_before_max_ms=longest, message_timestamp_after_max_ms=longest
    )
    assert validate(three(oldest), config).next_offset == 3
    error = refused(three(oldest), LogConfig(message_timestamp_before_max_ms=longest))
    assert error.record_errors[0].message.endswith(f"[{NOW - longest}, {NOW + HOUR}]")


@pytest.mark.parametrize("codec", CODECS)
def test_record_without_a_timestamp_is_taken_on_create_time_topics(codec: Codec) -> None:
    config = LogConfig(message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=5)
    assert validate(three(-1, codec=codec), config).max_timestamp == -1
    assert validate(three(-1, NOW, -1, codec=codec), config).max_timestamp == NOW


@pytest.mark.parametrize("codec", CODECS)
def test_bad_offsets_and_one_bad_timestamp_are_six_errors_and_an_invalid_timestamp(
    codec: Codec,
) -> None:
    records = [Record(0, NOW + 1200, None, b"timestamp")]
    records += [Record(0, NOW, None, b"%d" % i) for i in range(5)]
    data = build_batch(records, base_offset=0, last_offset=5, codec=codec)
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    metrics = ValidationMetrics()
    error = refused(data, config, metrics=metrics)
    assert isinstance(error.cause, InvalidTimestampError)
    assert [bad.index for bad in error.record_errors] == [0, 1, 2, 3, 4, 5]
    assert metrics == ValidationMetrics(invalid_offset_or_sequence_records=1)


@pytest.mark.parametrize("codec", CODECS)
def test_missing_keys_and_one_bad_timestamp_are_an_invalid_timestamp(codec: Codec) -> None:
    records = [Record(i, NOW, None, b"v") for i in range(5)]
    records.append(Record(5, NOW + 2 * HOUR, b"k", b"v"))
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    error = refused(build_batch(records, base_offset=0, codec=codec), config)
    assert isinstance(error.cause, InvalidTimestampError)
    assert len(error.record_errors) == 6


def marked(batch: bytes, max_timestamp: int) -> bytes:
    """The batch as a producer must not send it: its timestamps are said to be the log's."""
    attributes = parse_header(batch).attributes | 0x08
    return with_header(batch, attributes=attributes, max_timestamp=max_timestamp)


@pytest.mark.parametrize(
    ("codec", "target", "name", "key_size"),
    [
        (Codec.NONE, None, "DefaultRecord", 0),
        (Codec.GZIP, None, "PartialDefaultRecord", -1),
        (Codec.GZIP, Codec.LZ4, "DefaultRecord", 0),
        (Codec.NONE, Codec.LZ4, "DefaultRecord", 0),
    ],
)
def test_client_that_sets_log_append_time_is_refused(
    codec: Codec, target: Codec | None, name: str, key_size: int
) -> None:
    config = config_for(target, message_timestamp_type="LogAppendTime")
    error = refused(marked(three(NOW, codec=codec), NOW), config)
    assert isinstance(error.cause, InvalidTimestampError)
    assert error.record_errors[2] == RecordError(
        2,
        f"Invalid timestamp type in message {name}(offset=2, timestamp={NOW}, key={key_size} "
        "bytes, value=9 bytes). Producer should not set timestamp type to LogAppendTime.",
    )
    error = refused(marked(three(NOW, codec=codec), -1), config_for(target))
    assert isinstance(error.cause, InvalidTimestampError)


def test_mark_of_log_append_time_is_taken_off_on_create_time_topics() -> None:
    result = validate(marked(three(NOW, NOW + 5, NOW + 3), NOW + 1))
    assert [record.timestamp for record in records_of(result)] == [NOW, NOW + 5, NOW + 3]
    assert result.max_timestamp == NOW + 5
    for bad in (
        marked(three(NOW), NOW + HOUR + 1),
        marked(three(NOW, NOW + HOUR + 1, NOW), NOW),
    ):
        error = refused(bad)
        assert isinstance(error.cause, InvalidTimestampError)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_overwrites_timestamps_without_recompression(codec: Codec) -> None:
    data = three(1234, codec=codec)
    config = LogConfig(message_timestamp_type="LogAppendTime")
    result = validate(data, config)
    header = parse_header(written(result))
    assert header.timestamp_type == "LogAppendTime"
    assert (header.base_timestamp, header.max_timestamp) == (1234, NOW)
    assert {record.timestamp for record in records_of(result)} == {NOW}
    assert len(written(result)) == len(data)
    assert written(result)[HEADER_BYTES:] == data[HEADER_BYTES:]
    assert not result.size_may_have_changed
    assert (result.log_append_time_ms, result.max_timestamp) == (NOW, NOW)
    assert result.offset_of_max_timestamp == 2


@pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source, target in PAIRS if source is not target]
)
def test_log_append_time_overwrites_timestamps_with_recompression(
    source: Codec, target: Codec
) -> None:
    config = config_for(target, message_timestamp_type="LogAppendTime")
    result = validate(three(1234, codec=source), config)
    header = parse_header(written(result))
    assert (header.timestamp_type, header.codec) == ("LogAppendTime", target)
    assert (header.base_timestamp, header.max_timestamp) == (1234, NOW)
    assert {record.timestamp for record in records_of(result)} == {NOW}
    assert result.size_may_have_changed
    assert (result.log_append_time_ms, result.max_timestamp) == (NOW, NOW)
    assert result.offset_of_max_timestamp == 2


def test_log_append_time_topic_has_no_bounds() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    assert validate(three(NOW + 24 * HOUR), config).max_timestamp == NOW
    assert validate(three(0), config).max_timestamp == NOW


@pytest.mark.parametrize("codec", CODECS)
def test_create_time_keeps_timestamps_and_tells_the_newest(codec: Codec) -> None:
    data = build_batch(
        THREE,
        base_offset=0,
        codec=codec,
        producer_id=1324,
        producer_epoch=10,
        base_sequence=984,
        is_transactional=True,
    )
    result = validate(data, leader_epoch=40)
    header = parse_header(written(result))
    assert header.timestamp_type == "CreateTime"
    assert (header.base_timestamp, header.max_timestamp) == (NOW - 1, NOW + 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1324, 10, 984)
    assert header.is_transactional
    assert header.partition_leader_epoch == 40
    assert [record.timestamp for record in records_of(result)] == [NOW - 1, NOW + 1, NOW]
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, 2)
    assert result.log_append_time_ms == -1
    assert not result.size_may_have_changed
    assert written(result)[16:] == data[16:]
    temporary = result.record_stats.temporary_memory_bytes
    assert result.record_stats.records_converted == 0
    assert temporary == 0 if codec is Codec.NONE else temporary > 0


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [NOW + 100 * HOUR, 0, -1])
def test_false_max_timestamp_is_overwritten_with_the_real_one(codec: Codec, claimed: int) -> None:
    data = build_batch(THREE, base_offset=0, codec=codec)
    result = validate(with_header(data, max_timestamp=claimed))
    assert parse_header(written(result)).max_timestamp == NOW + 1
    assert written(result)[16:] == data[16:], "the right header again"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("base", "delta"), [((1 << 63) - 1, 1), (-(1 << 63), -1)])
def test_timestamp_beyond_int64_is_refused(codec: Codec, base: int, delta: int) -> None:
    data = three(0, 0, delta, codec=codec)
    for config in (
        LogConfig(message_timestamp_after_max_ms=(1 << 63) - 1),
        LogConfig(message_timestamp_type="LogAppendTime"),
    ):
        with pytest.raises(InvalidRecordError, match="do not fit into 64 bits"):
            validate(with_header(data, base_timestamp=base), config)


def test_negative_timestamp_is_refused_when_a_batch_is_built_anew() -> None:
    data = three(NOW, -5, NOW)
    assert validate(data).next_offset == 3
    with pytest.raises(InvalidTimestampError, match="Invalid negative timestamp -5"):
        validate(data, config_for(Codec.GZIP))
    assert validate(three(NOW, -1, NOW), config_for(Codec.GZIP)).next_offset == 3
