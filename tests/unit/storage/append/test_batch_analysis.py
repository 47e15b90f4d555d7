"""Checks of an append before its log is locked.

Scenarios: org.apache.kafka.storage.internals.log.UnifiedLogTest.
"""

from __future__ import annotations

import logging
import struct

import pytest

from cordwood.format.batch_header import parse_header
from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.record_batch import Record, build_batch
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from cordwood.storage.append.validator import AnalyzedBatch, ValidationMetrics, analyze
from support.appends import NOW, TOPIC, three, with_header

CLIENT, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.REPLICATION
OTHERS = [AppendOrigin.COORDINATOR, REPLICATION, AppendOrigin.RAFT_LEADER]


def analyzed(
    records: Buffer,
    *,
    origin: AppendOrigin = CLIENT,
    max_message_bytes: int | None = None,
    leader_epoch: int | None = None,
    metrics: ValidationMetrics | None = None,
) -> list[AnalyzedBatch]:
    return analyze(
        records,
        origin=origin,
        topic_partition=TOPIC,
        max_message_bytes=max_message_bytes,
        leader_epoch=leader_epoch,
        metrics=metrics,
    )


def batch_at(offset: int, *, count: int = 1, epoch: int = -1) -> bytes:
    records = [Record(offset + i, NOW, b"k", b"v") for i in range(count)]
    return build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


# ---- whole batches


@pytest.mark.parametrize("origin", AppendOrigin)
def test_empty_append_has_no_batches(origin: AppendOrigin) -> None:
    assert analyzed(b"", origin=origin) == []


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, -1])
def test_partial_batch_at_the_end_is_left_out(cut: int) -> None:
    whole, next_one = batch_at(0), batch_at(1)
    data = whole + next_one[:cut]
    for origin in OTHERS:
        ((header, raw),) = analyzed(data, origin=origin)
        assert header == parse_header(whole)
        assert raw == whole
    assert analyzed(next_one[:cut], origin=REPLICATION) == []


@pytest.mark.parametrize("length", [13, 0, -1, -(1 << 31)])
def test_length_that_no_batch_has_is_corrupt(length: int) -> None:
    bad = struct.pack(">qi", 0, length)
    for data in (bad, bad + b"\0" * 60, batch_at(0) + bad):
        with pytest.raises(CorruptMessageError) as caught:
            analyzed(data, origin=REPLICATION)
        assert str(caught.value) == (
            f"Record size {length} is less than the minimum record overhead (14)"
        )


@pytest.mark.parametrize(("byte", "magic"), [(3, 3), (10, 10), (127, 127), (128, -128), (255, -1)])
@pytest.mark.parametrize("origin", AppendOrigin)
def test_unknown_magic_is_corrupt(byte: int, magic: int, origin: AppendOrigin) -> None:
    data = three(NOW)
    with pytest.raises(CorruptMessageError, match=f"Invalid magic found in record: {magic}$"):
        analyzed(data[:16] + bytes([byte]) + data[17:], origin=origin)


@pytest.mark.parametrize("length", [14, 48])
def test_batch_shorter_than_its_header_is_corrupt(length: int) -> None:
    data = three(NOW)
    with pytest.raises(CorruptMessageError, match=f"the size {length + 12} is smaller than the"):
        analyzed(data[:8] + struct.pack(">i", length) + data[12:])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_are_views_of_any_buffer(kind: type[Buffer]) -> None:
    data = three(NOW)
    buffer = kind(data)
    ((header, raw),) = analyzed(buffer)
    assert header == parse_header(data)
    assert raw == data
    assert raw.obj is (data if kind is memoryview else buffer)


# ---- sizes and checksums


def test_batch_over_max_message_bytes_is_refused_from_a_leader_and_taken_from_a_follower() -> None:
    first = build_batch(
        [Record(0, NOW, None, b"You"), Record(1, NOW, None, b"bethe")], base_offset=0
    )
    second = build_batch(
        [
            Record(0, NOW, None, b"change (I need more bytes)... blah blah blah."),
            Record(1, NOW, None, b"More padding boo hoo"),
        ],
        base_offset=0,
    )
    limit = len(second) - 1
    metrics = ValidationMetrics()
    assert len(analyzed(first, max_message_bytes=limit)) == 1
    with pytest.raises(RecordTooLargeError) as caught:
        analyzed(second, max_message_bytes=limit, metrics=metrics)
    assert str(caught.value) == (
        f"The record batch size in the append to topic-0 is {len(second)} bytes which exceeds the "
        f"maximum configured value of {limit})."
    )
    assert metrics == ValidationMetrics(bytes_rejected=len(second))
    assert len(analyzed(second, max_message_bytes=limit + 1)) == 1
    assert len(analyzed(second, origin=REPLICATION)) == 1


def test_size_is_checked_before_the_checksum() -> None:
    data = three(NOW)[:-1] + b"\x77"
    with pytest.raises(RecordTooLargeError):
        analyzed(data, max_message_bytes=70)


@pytest.mark.parametrize("origin", AppendOrigin)
def test_wrong_checksum_is_corrupt_whoever_sends_it(origin: AppendOrigin) -> None:
    good = batch_at(0)
    metrics = ValidationMetrics()
    for position in range(17, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x40
        with pytest.raises(CorruptMessageError, match=r"Record is corrupt \(stored crc = "):
            analyzed(bytes(bad), origin=origin, metrics=metrics)
    assert metrics.invalid_message_crc_records == len(good) - 17


@pytest.mark.parametrize("magic", [0, 1])
def test_wrong_checksum_of_an_old_message_is_corrupt(magic: int) -> None:
    old = build_legacy_message(offset=3, magic=magic, key=b"k", value=b"v", timestamp=5)
    assert len(analyzed(old, origin=REPLICATION)) == 1
    metrics = ValidationMetrics()
    with pytest.raises(CorruptMessageError, match="Record is corrupt"):
        analyzed(old[:-1] + b"w", origin=REPLICATION, metrics=metrics)
    assert metrics.invalid_message_crc_records == 1
    with pytest.raises(CorruptMessageError, match="Record is corrupt"):
        analyzed(old[:-5] + b"\0\0\0\x7fw", origin=REPLICATION)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_that_there_is_not_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"Unknown .* type id: {codec}$"):
        analyzed(with_header(three(NOW), attributes=codec))


# ---- what clients alone must not send


@pytest.mark.parametrize("base_offset", [1, -1, 1 << 40])
def test_base_offset_of_a_client_has_to_be_0(base_offset: int) -> None:
    data = with_header(three(NOW), base_offset=base_offset)
    with pytest.raises(InvalidRecordError) as caught:
        analyzed(data)
    assert str(caught.value) == (
        "The baseOffset of the record batch in the append to topic-0 should be 0, but it is "
        f"{base_offset}"
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_taken_from_a_leader_and_refused_from_a_client(
    magic: int, codec: Codec
) -> None:
    records = [Record(i, NOW if magic else -1, b"k", b"v") for i in range(3)]
    old = (
        build_legacy_wrapper(records, magic=magic, codec=codec)
        if codec
        else build_legacy_message(offset=2, magic=magic, key=b"k", value=b"v", timestamp=NOW)
    )
    with pytest.raises(InvalidRecordError, match="batches with magic version 2"):
        analyzed(old)
    ((header, raw),) = analyzed(old, origin=REPLICATION)
    assert raw == old
    assert (header.magic, header.last_offset, header.codec) == (magic, 2, codec)
    assert header.max_timestamp == (NOW if magic else -1)
    assert header.size_bytes == len(old)
    assert header.partition_leader_epoch == header.producer_id == -1


# ---- what has its offsets


@pytest.mark.parametrize("origin", [REPLICATION, AppendOrigin.RAFT_LEADER])
def test_offsets_that_do_not_ascend_are_refused(origin: AppendOrigin) -> None:
    good = batch_at(0) + batch_at(1, count=3) + batch_at(9)
    assert [header.base_offset for header, _ in analyzed(good, origin=origin)] == [0, 1, 9]
    for bad in (
        batch_at(1) + batch_at(0),
        batch_at(1) + batch_at(1),
        batch_at(1, count=3) + batch_at(3),
        batch_at(0) + batch_at(1) + batch_at(1),
        with_header(batch_at(7), last_offset_delta=-1),
    ):
        with pytest.raises(
            OffsetsOutOfOrderError, match="Out of order offsets found in append to topic-0: "
        ):
            analyzed(bad, origin=origin)


def test_follower_leaves_out_batches_of_a_newer_leader_and_all_behind_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = batch_at(0, epoch=3) + batch_at(1, epoch=4) + batch_at(2, epoch=5) + batch_at(3, epoch=4)
    with caplog.at_level(logging.INFO):
        batches = analyzed(data, origin=REPLICATION, leader_epoch=4)
    assert [header.base_offset for header, _ in batches] == [0, 1]
    assert "its partition leader epoch 5 is higher than the replica's current leader epoch 4" in (
        caplog.text
    )
    assert len(analyzed(data, origin=REPLICATION, leader_epoch=5)) == 4
    assert len(analyzed(data, origin=REPLICATION)) == 4
    assert analyzed(batch_at(0, epoch=1), origin=REPLICATION, leader_epoch=0) == []


def test_batch_without_an_epoch_is_never_of_a_newer_leader() -> None:
    old = build_legacy_message(offset=0, magic=1, key=b"k", value=b"v", timestamp=NOW)
    assert len(analyzed(old + batch_at(1), origin=REPLICATION, leader_epoch=0)) == 2


def test_client_may_not_pass_for_a_newer_leader() -> None:
    assert len(analyzed(batch_at(0, epoch=9), leader_epoch=4)) == 1
