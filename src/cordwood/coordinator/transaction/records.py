"""Records of `__transaction_state`: as values that are replayed into the state, and as bytes.

The value's version depends on the finalized transaction.version: 0 for version 0, else 1.

Source: org.apache.kafka.coordinator.transaction.TransactionLog (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.log import EncodedRecord
from cordwood.coordinator.transaction.transaction import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    java_set_order,
)
from cordwood.format.compression import Codec
from cordwood.format.java_map import JavaHashMap
from cordwood.format.record_batch import Record, build_batch
from cordwood.format.transaction_log_value import (
    TAGGED_VERSION,
    TransactionLogValue,
    encode_transaction_key,
    encode_transaction_value,
)
from cordwood.format.transaction_log_value import decode_transaction_key as quick_transaction_key
from cordwood.format.transaction_log_value import (
    decode_transaction_value as quick_transaction_value,
)
from cordwood.format.transaction_state import (
    TRANSACTION_TYPE,
    decode_transaction_key,
    decode_transaction_value,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, EncodingError
from cordwood.model.topic_partition import TopicPartition

ENFORCED_CODEC: Final = Codec.NONE
"""Records are never compressed."""

_STATES: Final[Mapping[int, TransactionState]] = {each.value: each for each in TransactionState}


class TransactionRecord(NamedTuple):
    """The transaction of a transactional id; None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None
    value_version: int = TAGGED_VERSION


def value_version_of(transaction_version: int) -> int:
    """The version of values while this transaction.version is finalized.

    Source: TransactionVersion.transactionLogValueVersion.
    """
    return min(transaction_version, TAGGED_VERSION)


def encode(record: TransactionRecord) -> EncodedRecord:
    """A record's key and value.

    Raises:
        EncodingError: a value does not fit its field.
        CoordinatorRequestError: UNSUPPORTED_VERSION if the value's version lacks a field that is
            needed.

    Source: TransactionLog.keyToBytes, valueToBytes.
    """
    key = encode_transaction_key(record.transactional_id)
    transaction, version = record.transaction, record.value_version
    if transaction is None:
        return key, None
    if version < TAGGED_VERSION and transaction.client_version:
        raise CoordinatorRequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Values of version {version} have no transaction version of the client",
        )
    return key, encode_transaction_value(_value_of(transaction, version), version)


def _value_of(transaction: Transaction, version: int) -> TransactionLogValue:
    is_empty = transaction.state is TransactionState.EMPTY
    if is_empty and transaction.partitions:
        raise EncodingError(f"{transaction.transactional_id} is Empty and has partitions")
    is_tagged = version >= TAGGED_VERSION
    return TransactionLogValue(
        transaction.producer_id,
        transaction.prev_producer_id if is_tagged else NO_PRODUCER_ID,
        transaction.next_producer_id if is_tagged else NO_PRODUCER_ID,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state.value,
        None if is_empty else _by_topic(transaction.partitions),
        transaction.update_ms,
        transaction.start_ms,
        transaction.client_version,
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The partitions of each topic, as Collectors.groupingBy collects them."""
    if len(partitions) == 1:
        return [(partitions[0].topic, [partitions[0].partition])]
    topics: JavaHashMap[str, list[int]] = JavaHashMap()
    for each in partitions:
        topics.compute_if_absent(each.topic, list).append(each.partition)
    return list(topics.items())


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """The record of a key and a value.

    Raises:
        UnsupportedVersionError: the type of the key or the version of the value is unknown.
        CorruptError: it is malformed.

    Source: TransactionLog.read.
    """
    transactional_id = quick_transaction_key(key)
    if transactional_id is None:  # not as Kafka writes it now
        transactional_id = str(decode_transaction_key(key).fields["transactionalId"])
    if value is None:
        return TransactionRecord(transactional_id, None)
    quick = quick_transaction_value(value)
    found, version = _by_schema(value) if quick is None else quick
    state = _STATES.get(found.status)
    if state is None:
        raise CorruptError(f"transaction state {found.status} is unknown")
    partitions = [
        TopicPartition(topic, number)
        for topic, numbers in found.partitions or ()
        for number in numbers
    ]
    transaction = Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        prev_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.timeout_ms,
        state=state,
        partitions=() if state is TransactionState.EMPTY else java_set_order(partitions),
        start_ms=found.start_ms,
        update_ms=found.update_ms,
        client_version=found.client_version,
    )
    return TransactionRecord(transactional_id, transaction, version)


def _by_schema(value: bytes) -> tuple[TransactionLogValue, int]:
    decoded = decode_transaction_value(TRANSACTION_TYPE, value)
    assert decoded is not None, "no tombstone"
    fields = decoded.fields
    topics = fields["transactionPartitions"]
    found = TransactionLogValue(
        fields["producerId"],
        fields["previousProducerId"],
        fields["nextProducerId"],
        fields["producerEpoch"],
        fields["transactionTimeoutMs"],
        fields["transactionStatus"],
        None if topics is None else [(each["topic"], each["partitionIds"]) for each in topics],
        fields["transactionLastUpdateTimestampMs"],
        fields["transactionStartTimestampMs"],
        fields["clientTransactionVersion"],
    )
    return found, decoded.version


def batch_of(records: Sequence[EncodedRecord], *, now_ms: int) -> bytes:
    """The batch that writes them."""
    return build_batch(
        [Record(number, now_ms, key, value) for number, (key, value) in enumerate(records)],
        base_offset=0,
        codec=ENFORCED_CODEC,
    )
