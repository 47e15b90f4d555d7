"""Records of `__transaction_state`: as values that are replayed into the state, and as bytes.

The value's version depends on the finalized transaction.version: 0 for version 0, else 1.

Source: org.apache.kafka.coordinator.transaction.TransactionLog (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.runtime import EncodedRecord
from cordwood.coordinator.transaction.transaction import (
    Transaction,
    TransactionState,
    java_set_order,
)
from cordwood.format.compression import Codec
from cordwood.format.java_map import JavaHashMap
from cordwood.format.record_batch import Record, build_batch
from cordwood.format.transaction_state import (
    TRANSACTION_RECORDS,
    TRANSACTION_TYPE,
    decode_transaction_key,
    decode_transaction_value,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, EncodingError
from cordwood.model.topic_partition import TopicPartition

ENFORCED_CODEC: Final = Codec.NONE
"""Records are never compressed."""

_TAGGED_VERSION = 1


class TransactionRecord(NamedTuple):
    """The transaction of a transactional id; None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None
    value_version: int = _TAGGED_VERSION


def value_version_of(transaction_version: int) -> int:
    """The version of values while this transaction.version is finalized.

    Source: TransactionVersion.transactionLogValueVersion.
    """
    return min(transaction_version, _TAGGED_VERSION)


def encode(record: TransactionRecord) -> EncodedRecord:
    """A record's key and value.

    Raises:
        EncodingError: a value does not fit its field.
        CoordinatorRequestError: UNSUPPORTED_VERSION if the value's version lacks a field that is
            needed.

    Source: TransactionLog.keyToBytes, valueToBytes.
    """
    key = TRANSACTION_RECORDS.encode_readable_key(
        TRANSACTION_TYPE, {"transactionalId": record.transactional_id}
    )
    transaction, version = record.transaction, record.value_version
    if transaction is None:
        return key, None
    if version < _TAGGED_VERSION and transaction.client_version:
        raise CoordinatorRequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Values of version {version} have no transaction version of the client",
        )
    value = TRANSACTION_RECORDS.encode_readable_value(
        TRANSACTION_TYPE, version, _fields(transaction, version)
    )
    return key, value


def _fields(transaction: Transaction, version: int) -> Mapping[str, Any]:
    is_empty = transaction.state is TransactionState.EMPTY
    if is_empty and transaction.partitions:
        raise EncodingError(f"{transaction.transactional_id} is Empty and has partitions")
    fields: dict[str, Any] = {
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": transaction.state.value,
        "transactionPartitions": None if is_empty else _by_topic(transaction.partitions),
        "transactionLastUpdateTimestampMs": transaction.update_ms,
        "transactionStartTimestampMs": transaction.start_ms,
    }
    if version >= _TAGGED_VERSION:
        fields["previousProducerId"] = transaction.prev_producer_id
        fields["nextProducerId"] = transaction.next_producer_id
        fields["clientTransactionVersion"] = transaction.client_version
    return fields


def _by_topic(partitions: Sequence[TopicPartition]) -> list[Mapping[str, Any]]:
    """The partitions of each topic, as Collectors.groupingBy collects them."""
    topics: JavaHashMap[str, list[int]] = JavaHashMap()
    for each in partitions:
        topics.compute_if_absent(each.topic, list).append(each.partition)
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()]


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """The record of a key and a value.

    Raises:
        UnsupportedVersionError: the type of the key or the version of the value is unknown.
        CorruptError: it is malformed.

    Source: TransactionLog.read.
    """
    transactional_id = decode_transaction_key(key).fields["transactionalId"]
    decoded = decode_transaction_value(TRANSACTION_TYPE, value)
    if decoded is None:
        return TransactionRecord(transactional_id, None)
    fields = decoded.fields
    try:
        state = TransactionState(fields["transactionStatus"])
    except ValueError:
        raise CorruptError(f"transaction state {fields['transactionStatus']} is unknown") from None
    partitions = [
        TopicPartition(topic["topic"], number)
        for topic in fields["transactionPartitions"] or ()
        for number in topic["partitionIds"]
    ]
    transaction = Transaction(
        transactional_id=transactional_id,
        producer_id=fields["producerId"],
        prev_producer_id=fields["previousProducerId"],
        next_producer_id=fields["nextProducerId"],
        producer_epoch=fields["producerEpoch"],
        timeout_ms=fields["transactionTimeoutMs"],
        state=state,
        partitions=() if state is TransactionState.EMPTY else java_set_order(partitions),
        start_ms=fields["transactionStartTimestampMs"],
        update_ms=fields["transactionLastUpdateTimestampMs"],
        client_version=fields["clientTransactionVersion"],
    )
    return TransactionRecord(transactional_id, transaction, decoded.version)


def batch_of(records: Sequence[EncodedRecord], *, now_ms: int) -> bytes:
    """The batch that writes them."""
    return build_batch(
        [Record(number, now_ms, key, value) for number, (key, value) in enumerate(records)],
        base_offset=0,
        codec=ENFORCED_CODEC,
    )
