"""An append as a whole: counts, offsets, control records, origins.

Scenarios: org.apache.kafka.storage.internals.log.LogValidatorTest.
"""

from __future__ import annotations

import itertools
import struct

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import BatchHeader, parse_header
from cordwood.format.compression import Codec
from cordwood.format.control_record import (
    ControlType,
    EndTxnMarker,
    build_control_key,
    build_end_txn_marker,
)
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import Record, build_batch, build_empty_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    RecordValidationError,
    UnexpectedAppendOffsetError,
)
from cordwood.storage.append import validator
from cordwood.storage.append.validator import ValidationMetrics
from support.appends import (
    NOW,
    TOPIC,
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
CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR

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


# ---- the batch as a whole


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (Codec.NONE, Codec.NONE),
        (Codec.NONE, Codec.GZIP),
        (Codec.GZIP, Codec.NONE),
        *((codec, Codec.GZIP) for codec in COMPRESSED),
    ],
)
def test_two_batches_in_one_append_are_refused(source: Codec, target: Codec) -> None:
    data = three(NOW, codec=source) + three(NOW, codec=source)
    with pytest.raises(InvalidRecordError, match="outer record has more than one batch"):
        validate(data, config_for(target))


def test_an_append_without_any_batch_is_no_error_until_it_is_validated() -> None:
    for data in (b"", three(NOW)[:-1], b"\0" * 11):
        with pytest.raises(InvalidRecordError, match="Record batch has no batches at all"):
            validate(data)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_batch_without_records_from_a_client_is_refused(source: Codec, target: Codec) -> None:
    kept = build_batch(
        [Record(i, NOW, b"k", b"v") for i in range(6)],
        base_offset=0,
        producer_id=1324,
        producer_epoch=10,
        base_sequence=984,
        is_transactional=True,
        codec=source,
    )
    metrics = ValidationMetrics()
    for empty in (build_empty_batch(parse_header(kept)), with_header(kept, records_count=0)):
        with pytest.raises(InvalidRecordError, match="Invalid reported count for record batch: 0"):
            validate(empty, config_for(target), metrics=metrics)
    assert metrics.invalid_offset_or_sequence_records == 2


@pytest.mark.parametrize(
    ("delta", "count", "reason"),
    [
        (0, 3, r"Inconsistent batch offset range \[0, 0\] and count of records 3 in"),
        (15, 3, r"Inconsistent batch offset range \[0, 15\] and count of records 3 in"),
        (-3, 3, r"Batch has an invalid offset range: \[0, -3\] in topic partition topic-0"),
        (-1, 0, r"Batch has an invalid offset range: \[0, -1\] in"),
        (2, -3, "Invalid reported count for record batch: -3 in topic partition topic-0"),
        (2147483647, 3, "Inconsistent batch offset range"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_count_that_does_not_fit_the_last_offset_delta_is_refused(
    delta: int, count: int, reason: str, codec: Codec, origin: AppendOrigin
) -> None:
    metrics = ValidationMetrics()
    bad = with_header(three(NOW, codec=codec), last_offset_delta=delta, records_count=count)
    with pytest.raises(InvalidRecordError, match=reason):
        validate(bad, metrics=metrics, origin=origin)
    assert metrics.invalid_offset_or_sequence_records == 1


@pytest.mark.parametrize("codec", CODECS)
def test_count_and_last_offset_delta_that_fit_the_three_records_are_taken(codec: Codec) -> None:
    data = with_header(three(NOW, codec=codec), last_offset_delta=2, records_count=3)
    assert validate(data).next_offset == 3


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", [None, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize(
    ("delta", "count", "reason"),
    [
        (5, 6, "Incorrect declared batch size, premature EOF reached"),
        (1, 2, "Incorrect declared batch size, records still remaining in file"),
    ],
)
def test_count_other_than_that_of_the_records_present_is_refused(
    codec: Codec, target: Codec | None, delta: int, count: int, reason: str
) -> None:
    bad = with_header(three(NOW, codec=codec), last_offset_delta=delta, records_count=count)
    with pytest.raises(InvalidRecordError, match=reason):
        validate(bad, config_for(target))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_producer_id_with_a_negative_base_sequence_is_refused(source: Codec, target: Codec) -> None:
    metrics = ValidationMetrics()
    good = build_batch(
        [Record(0, NOW, b"k", b"hello")],
        base_offset=0,
        producer_id=1234,
        producer_epoch=0,
        base_sequence=0,
        codec=source,
    )
    validate(good, config_for(target), metrics=metrics)
    assert metrics == ValidationMetrics()
    with pytest.raises(
        InvalidRecordError,
        match="Invalid sequence number -2 in record batch with producerId 1234 in topic",
    ):
        validate(with_header(good, base_sequence=-2), config_for(target), metrics=metrics)
    assert metrics == ValidationMetrics(invalid_offset_or_sequence_records=1)


def test_batch_without_a_producer_needs_no_sequence() -> None:
    assert validate(with_header(three(NOW), base_sequence=-2)).next_offset == 3


@pytest.mark.parametrize("codec", CODECS)
def test_control_records_from_a_client_are_refused(codec: Codec) -> None:
    metrics = ValidationMetrics()
    marker = build_batch(
        [Record(0, NOW, build_control_key(ControlType.COMMIT), struct.pack(">hi", 0, 0))],
        base_offset=0,
        producer_id=23423,
        producer_epoch=5,
        is_transactional=True,
        is_control=True,
        codec=codec,
    )
    with pytest.raises(
        InvalidRecordError, match="Clients are not allowed to write control records in topic"
    ):
        validate(marker, metrics=metrics)
    assert metrics.invalid_offset_or_sequence_records == 1


@pytest.mark.parametrize("target", [None, *CODECS])
def test_control_records_of_a_coordinator_are_taken_and_never_compressed(
    target: Codec | None,
) -> None:
    marker = build_end_txn_marker(
        offset=0,
        timestamp=NOW,
        producer_id=23423,
        producer_epoch=5,
        control_type=ControlType.COMMIT,
        coordinator_epoch=7,
    )
    config = config_for(target, cleanup_policy=frozenset({"compact"}))
    result = validate(marker, config, first_offset=1234567, origin=COORDINATOR, leader_epoch=3)
    header = parse_header(written(result))
    assert header.codec is Codec.NONE
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch) == (1234567, 3)
    assert written(result)[16:] == marker[16:]
    assert result.batches[0].marker == EndTxnMarker(
        control_type=ControlType.COMMIT, version=0, coordinator_epoch=7
    )


def test_control_records_that_came_compressed_stay_so() -> None:
    marker = build_batch(
        [Record(0, NOW, build_control_key(ControlType.ABORT), struct.pack(">hi", 0, 9))],
        base_offset=0,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        codec=Codec.GZIP,
    )
    result = validate(marker, config_for(Codec.LZ4), origin=COORDINATOR)
    assert written(result)[16:] == marker[16:]
    assert result.batches[0].marker == EndTxnMarker(
        control_type=ControlType.ABORT, version=0, coordinator_epoch=9
    )


def test_control_records_without_a_producer_are_no_transaction_markers() -> None:
    record = Record(0, NOW, build_control_key(ControlType.LEADER_CHANGE), b"\0\0")
    data = build_batch([record], base_offset=0, is_control=True)
    assert validate(data, origin=COORDINATOR).batches[0].marker is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", b"\0" * 6), (build_control_key(ControlType.COMMIT), b"\0"), (None, None)],
)
def test_malformed_marker_of_a_coordinator_is_refused(
    key: bytes | None, value: bytes | None
) -> None:
    data = build_batch(
        [Record(0, NOW, key, value)],
        base_offset=0,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    with pytest.raises(InvalidRecordError):
        validate(data, origin=COORDINATOR)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_messages_of_magic_0_and_1_are_refused(magic: int, origin: AppendOrigin) -> None:
    metrics = ValidationMetrics()
    old = build_legacy_message(offset=0, magic=magic, key=b"k", value=b"v", timestamp=NOW)
    with pytest.raises(InvalidRecordError, match="batches with magic version 2"):
        validate(old, metrics=metrics, origin=origin)
    assert metrics.invalid_magic_number_records == 1


def test_batches_of_different_magic_in_one_append_are_refused() -> None:
    metrics = ValidationMetrics()
    old = build_legacy_message(offset=1, magic=1, key=b"k", value=b"v", timestamp=NOW)
    with pytest.raises(InvalidRecordError, match="Batch magic 1 is not the same as the first"):
        validate(three(NOW) + old, origin=COORDINATOR, metrics=metrics)
    with pytest.raises(InvalidRecordError, match="magic version 2"):
        validate(three(NOW) + old, metrics=metrics)
    assert metrics.invalid_magic_number_records == 2


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_checksum_is_refused_and_counted(codec: Codec) -> None:
    metrics = ValidationMetrics()
    data = three(NOW, codec=codec)
    with pytest.raises(CorruptMessageError, match=r"Record is corrupt \(stored crc = 0\)"):
        validate(data[:17] + b"\0\0\0\0" + data[21:], metrics=metrics)
    assert metrics == ValidationMetrics(invalid_message_crc_records=1)


# ---- offsets


@pytest.mark.parametrize("target", [None, Codec.GZIP])
@pytest.mark.parametrize("codec", CODECS)
def test_offset_deltas_that_do_not_count_up_are_refused(codec: Codec, target: Codec | None) -> None:
    metrics = ValidationMetrics()
    for offsets in [(0, 2, 1), (0, 0, 2), (1, 1, 2), (0, 1, 3)]:
        records = [Record(offset, NOW, b"k", b"v") for offset in offsets]
        data = build_batch(records, base_offset=0, last_offset=2, codec=codec)
        error = refused(data, config_for(target), metrics=metrics)
        assert isinstance(error.cause, InvalidRecordError)
        assert [bad.index for bad in error.record_errors] == [
            i for i, offset in enumerate(offsets) if offset != i
        ]
    assert metrics == ValidationMetrics(invalid_offset_or_sequence_records=4)


@pytest.mark.parametrize("codec", CODECS)
def test_twenty_records_that_all_have_offset_0_are_refused(codec: Codec) -> None:
    records = [Record(0, NOW, b"%d" % i, None) for i in range(20)]
    data = build_batch(records, base_offset=0, codec=codec)
    metrics = ValidationMetrics()
    with pytest.raises(InvalidRecordError, match="Inconsistent batch offset range"):
        validate(data, config_for(Codec.GZIP), metrics=metrics)
    assert metrics.invalid_offset_or_sequence_records == 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_offsets_are_assigned_one_after_another(source: Codec, target: Codec) -> None:
    result = validate(three(NOW, codec=source), config_for(target), first_offset=1234567)
    assert [record.offset for record in records_of(result)] == [1234567, 1234568, 1234569]
    header = parse_header(written(result))
    assert (header.base_offset, header.last_offset_delta) == (1234567, 2)
    assert result.next_offset == 1234570


def test_offsets_and_leader_epoch_leave_the_checksum_and_the_records_alone() -> None:
    data = three(NOW)
    result = validate(data, first_offset=1 << 40, leader_epoch=67)
    (batch,) = result.batches
    assert written(result)[16:] == data[16:]
    assert (batch.header.base_offset, batch.header.partition_leader_epoch) == (1 << 40, 67)
    rest = batch.parts[1]
    assert isinstance(rest, memoryview)
    assert rest.obj is data, "the records were copied"


# ---- a Raft leader's batches, and a leader's for its follower


def test_batches_of_a_raft_leader_are_taken_as_they_are_at_the_logs_end() -> None:
    first = build_batch(THREE, base_offset=0, partition_leader_epoch=4)
    second = build_batch([Record(3, NOW, b"k", None)], base_offset=3, partition_leader_epoch=4)
    result = validate(first + second, origin=AppendOrigin.RAFT_LEADER, leader_epoch=4)
    assert [b"".join(batch.parts) for batch in result.batches] == [first, second]
    assert [batch.position for batch in result.batches] == [0, len(first)]
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (NOW + 1, 2)
    assert (result.next_offset, result.log_append_time_ms) == (4, -1)


@pytest.mark.parametrize("base_offset", [1, 4])
def test_batches_of_a_raft_leader_elsewhere_than_at_the_logs_end_are_refused(
    base_offset: int,
) -> None:
    record_there = Record(base_offset, NOW, b"k", b"v")
    data = build_batch([record_there], base_offset=base_offset, partition_leader_epoch=0)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        validate(data, origin=AppendOrigin.RAFT_LEADER, first_offset=3)
    assert (caught.value.first_offset, caught.value.last_offset) == (base_offset, base_offset)


def test_batches_of_a_raft_leader_of_another_epoch_are_refused() -> None:
    data = build_batch(THREE, base_offset=0, partition_leader_epoch=3)
    with pytest.raises(InvalidRecordError, match="expected 4 but the batch has 3"):
        validate(data, origin=AppendOrigin.RAFT_LEADER, leader_epoch=4)


def as_follower(data: bytes) -> list[validator.ValidatedBatch]:
    analyzed = validator.analyze(
        data, origin=AppendOrigin.REPLICATION, topic_partition=TOPIC, max_message_bytes=None
    )
    return validator.as_they_are(analyzed)


def test_follower_takes_batches_of_any_magic_as_they_are() -> None:
    old = build_legacy_message(offset=7, magic=1, key=b"k", value=b"v", timestamp=NOW)
    oldest = build_legacy_message(offset=6, magic=0, key=None, value=b"v")
    new = build_batch([Record(8, NOW, b"k", b"v"), Record(12, NOW, b"k", b"v")], base_offset=8)
    batches = as_follower(oldest + old + new)
    assert [b"".join(batch.parts) for batch in batches] == [oldest, old, new]
    assert [batch.position for batch in batches] == [0, len(oldest), len(oldest + old)]
    assert [(b.header.magic, b.header.base_offset, b.header.last_offset) for b in batches] == [
        (0, 6, 6),
        (1, 7, 7),
        (2, 8, 12),
    ]
    assert [batch.header.max_timestamp for batch in batches] == [-1, NOW, NOW]
    assert [batch.header.size_bytes for batch in batches] == [len(oldest), len(old), len(new)]
    assert not any(batch.header.has_producer_id for batch in batches)
    assert not any(batch.header.is_transactional or batch.header.is_control for batch in batches)


@pytest.mark.parametrize("codec", CODECS)
def test_follower_reads_what_a_transaction_marker_says(codec: Codec) -> None:
    marker = build_batch(
        [Record(73, NOW, build_control_key(ControlType.ABORT), struct.pack(">hi", 0, 347))],
        base_offset=73,
        producer_id=73,
        producer_epoch=13,
        is_transactional=True,
        is_control=True,
        codec=codec,
    )
    empty = build_empty_batch(parse_header(marker)._replace(base_offset=74))
    kraft = build_batch(
        [Record(75, NOW, build_control_key(ControlType.LEADER_CHANGE), b"\0\0")],
        base_offset=75,
        is_control=True,
    )
    assert [batch.marker for batch in as_follower(marker + empty + kraft)] == [
        EndTxnMarker(control_type=ControlType.ABORT, version=0, coordinator_epoch=347),
        None,
        None,
    ]


def test_validated_header_is_the_one_on_disk() -> None:
    header = validate(three(NOW), first_offset=5, leader_epoch=2).batches[0].header
    assert isinstance(header, BatchHeader)
    assert (header.base_offset, header.last_offset, header.next_offset) == (5, 7, 8)
