"""Records of `__transaction_state`: those of a Kafka, and the bytes of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import PREVIOUS_STATES, TransactionState
from cordwood.format.batch_header import parse_header
from cordwood.format.record_batch import iter_batches
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, EncodingError, UnsupportedVersionError
from cordwood.model.topic_partition import TopicPartition
from support.golden import Golden
from support.transactions_under_test import transaction

ARCHIVE = Path(__file__).parents[3] / "golden" / "golden-a.tar.xz"


def test_records_of_a_kafka_are_written_as_it_writes_them(tmp_path: Path) -> None:
    golden = Golden.unpack(ARCHIVE, tmp_path)
    shard = TransactionShard(0, Timeline())
    count = 0
    for path in sorted((golden.root / "before-2" / "__transaction_state-0").glob("*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                found = records.decode(record.key, record.value)
                assert records.encode(found) == (record.key, record.value)
                assert found.transaction is not None
                before = shard.transactions.get(found.transactional_id)
                if before is not None:
                    assert before.state in PREVIOUS_STATES[found.transaction.state]
                    assert before.producer_id == found.transaction.prev_producer_id
                shard.replay(found)
                count += 1
    assert count > 200
    header = parse_header(records.batch_of([records.encode(found)], now_ms=5))
    assert (header.base_sequence, header.producer_id) == (-1, -1), "as the batches of Kafka"


ONGOING = transaction(
    state=TransactionState.ONGOING,
    partitions=(TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("u", 0)),
    start_ms=500,
    client_version=2,
)


def test_value_of_version_1_has_tagged_fields() -> None:
    key, value = records.encode(TransactionRecord("x", ONGOING))
    assert key == bytes.fromhex("0000 0001 78")
    assert value is not None
    assert value.hex(" ") == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "03 0274 03 00000003 00000001 00 0275 02 00000000 00"
        "00000000000f4240 00000000000001f4"
        "02 00 08 0000000000000007 02 02 0002"
    ).hex(" ")
    assert records.decode(key, value).transaction == ONGOING


def test_value_of_version_0_has_none() -> None:
    known = transaction(state=TransactionState.COMPLETE_ABORT, start_ms=500)
    key, value = records.encode(TransactionRecord("x", known, 0))
    assert value == bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 05 00000000 00000000000f4240 00000000000001f4"
    )
    found = records.decode(key, value)
    assert found.value_version == 0
    assert found.transaction is not None
    assert found.transaction.prev_producer_id == -1


def test_empty_transaction_has_null_for_its_partitions() -> None:
    _, value = records.encode(TransactionRecord("x", transaction(), 0))
    assert value is not None
    assert value.hex().endswith("00ffffffff00000000000f4240ffffffffffffffff")


def test_tombstone() -> None:
    made = records.encode(TransactionRecord("x", None))
    assert made == (bytes.fromhex("0000 0001 78"), None)
    assert records.decode(*made).transaction is None


@pytest.mark.parametrize(("version", "value_version"), [(0, 0), (1, 1), (2, 1)])
def test_version_of_values(version: int, value_version: int) -> None:
    assert records.value_version_of(version) == value_version


def test_what_cannot_be_written() -> None:
    with pytest.raises(EncodingError):
        records.encode(TransactionRecord("x" * 40_000, None))
    with pytest.raises(EncodingError):
        records.encode(TransactionRecord("x", transaction(partitions=ONGOING.partitions)))
    with pytest.raises(CoordinatorRequestError) as refused:
        records.encode(TransactionRecord("x", ONGOING, 0))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_what_cannot_be_read() -> None:
    key, value = records.encode(TransactionRecord("x", ONGOING))
    assert value is not None
    with pytest.raises(UnsupportedVersionError):
        records.decode(b"\0\1\0\0", value)
    with pytest.raises(UnsupportedVersionError):
        records.decode(key, b"\0\2" + value[2:])
    with pytest.raises(CorruptError):
        records.decode(key, value[:-1])
    with pytest.raises(CorruptError):
        records.decode(None, value)
    unknown = TRANSACTION_RECORDS.encode_value(0, 1, {"transactionStatus": 9})
    with pytest.raises(CorruptError, match="state 9"):
        records.decode(key, unknown)
