from __future__ import annotations

from cordwood.format.batch_header import parse_header
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.legacy import LegacyBatch, build_legacy_message
from cordwood.format.record_batch import Header, Record, RecordBatch, build_batch
from cordwood.storage.reading.batches import PlacedBatch
from cordwood.surfaces.dump.documents import (
    DecodedRecord,
    DumpedBatch,
    DumpedControlRecord,
    DumpedHeader,
    DumpedMessageSet,
    DumpedRecord,
    batch_item,
    record_item,
)


def test_batches_of_all_magics() -> None:
    old = LegacyBatch.parse(build_legacy_message(offset=4, magic=0, key=None, value=b"v"))
    messages = batch_item("f", PlacedBatch(9, old))
    assert type(messages) is DumpedMessageSet
    assert (messages.last_offset, messages.position, messages.magic) == (4, 9, 0)
    data = build_batch([Record(3, 7, None, b"")], base_offset=3, delete_horizon_ms=5)
    batch = batch_item("f", PlacedBatch(0, RecordBatch(parse_header(data), data)))
    assert type(batch) is DumpedBatch
    assert (batch.base_offset, batch.delete_horizon_ms) == (3, 5)
    assert batch.is_valid is True


def test_keys_and_payloads_that_are_json_are_objects() -> None:
    record = Record(0, 0, b"", b"", (Header("h", b"\xff"),))
    data = build_batch([record], base_offset=0)
    batch = RecordBatch(parse_header(data), data)
    item = record_item("f", batch, record, lambda _: ('{"a":1}', "{not json"))
    assert type(item) is DecodedRecord
    assert (item.key, item.payload) == ({"a": 1}, "{not json")
    assert item.headers == [DumpedHeader(key="h", value="\ufffd")]
    assert type(record_item("f", batch, record, None)) is DumpedRecord


def test_control_records_say_what_they_are() -> None:
    data = build_end_txn_marker(
        offset=0,
        timestamp=0,
        producer_id=1,
        producer_epoch=0,
        control_type=ControlType.COMMIT,
        coordinator_epoch=2,
    )
    batch = RecordBatch(parse_header(data), data)
    (record,) = batch.records()
    item = record_item("f", batch, record, lambda _: ("k", "v"))
    assert type(item) is DumpedControlRecord
    assert item.control == "endTxnMarker: COMMIT coordinatorEpoch: 2"
