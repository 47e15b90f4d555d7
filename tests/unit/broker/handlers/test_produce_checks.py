"""Checks of a Produce request before any log has seen it."""

from __future__ import annotations

import re
import struct

import pytest

from cordwood.broker.handlers.produce_checks import (
    has_transactional_batch,
    require_one_batch,
    transactional_batch,
)
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    UnsupportedCompressionTypeError,
)
from cordwood.protocol.data import ProduceRequest
from cordwood.protocol.messages import build, request_codec

BATCH = build_batch([Record(0, 1, b"k", b"v")], base_offset=0)
ZSTD = build_batch([Record(0, 1, b"k", b"v")], base_offset=0, codec=Codec.ZSTD)
TRANSACTIONAL = build_batch(
    [Record(0, 1, b"k", b"v")],
    base_offset=0,
    producer_id=7,
    producer_epoch=3,
    base_sequence=5,
    is_transactional=True,
)


def request(*records: bytes | None) -> ProduceRequest:
    data = [{"index": i, "records": each} for i, each in enumerate(records)]
    found = build(request_codec(0, 9), {"topic_data": [{"name": "t", "partition_data": data}]})
    assert isinstance(found, ProduceRequest)
    return found


def test_one_whole_batch_is_taken_and_a_torn_end_behind_it_too() -> None:
    require_one_batch(BATCH, 13)
    require_one_batch(memoryview(BATCH + b"\0\0\0"), 13)
    require_one_batch(ZSTD, 7)


@pytest.mark.parametrize(
    ("records", "version", "error"),
    [
        (None, 13, InvalidRecordError),
        (b"", 13, InvalidRecordError),
        (BATCH[:-1], 13, InvalidRecordError),
        (BATCH + BATCH, 13, InvalidRecordError),
        (BATCH[:16] + b"\1" + BATCH[17:], 13, InvalidRecordError),
        (BATCH + BATCH[:16] + b"\x09" + BATCH[17:], 13, CorruptMessageError),
        (ZSTD, 6, UnsupportedCompressionTypeError),
    ],
)
def test_anything_but_one_batch_of_the_format_is_refused(
    records: bytes | None, version: int, error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        require_one_batch(records, version)


def test_a_first_batch_that_is_none_fails_the_whole_request() -> None:
    with pytest.raises(CorruptMessageError, match="Invalid magic found in record: 3"):
        has_transactional_batch(request(BATCH, BATCH[:16] + b"\x03" + BATCH[17:]))
    short = BATCH[:8] + struct.pack(">i", 10) + BATCH[12:]
    too_small = re.escape("Record size 10 is less than the minimum record overhead (14)")
    with pytest.raises(CorruptMessageError, match=too_small):
        has_transactional_batch(request(short))


def test_transactional_batches_are_found() -> None:
    assert has_transactional_batch(request(BATCH, TRANSACTIONAL))
    assert not has_transactional_batch(request(BATCH, None, b""))
    header = transactional_batch(TRANSACTIONAL)
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 5)
    for other in (BATCH, None, b"", TRANSACTIONAL[:40]):
        assert transactional_batch(other) is None
