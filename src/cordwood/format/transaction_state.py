"""Keys and values of `__transaction_state`.

Source: org.apache.kafka.coordinator.transaction.generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cordwood.format.coordinator_record import CoordinatorKey, CoordinatorSchemas
from cordwood.format.message_schema import MessageValue, message_json

TRANSACTION_TYPE: Final = 0
"""The type of all records."""

STATE_NAMES: Final[Mapping[int, str]] = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
"""The states of a transaction by their numbers in records."""

TRANSACTION_RECORDS = CoordinatorSchemas.parse(
    keys="""
message TransactionLogKey key=0 versions=0 flexible=none
  transactionalId string
""",
    values="""
message TransactionLogValue key=0 versions=0-1 flexible=1+
  producerId int64
  previousProducerId int64 1+ tag=0 default=-1
  nextProducerId int64 1+ tag=1 default=-1
  producerEpoch int16
  nextProducerEpoch int16 1+ tag=3 default=-1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []{}?
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ tag=2 default=0
""",
)


def decode_transaction_key(key: bytes | None) -> CoordinatorKey:
    """The key of a record of `__transaction_state`.

    Raises:
        UnsupportedVersionError: its type is unknown.
        CorruptError: it is null or malformed.
    """
    return TRANSACTION_RECORDS.decode_key(key)


def decode_transaction_value(record_type: int, value: bytes | None) -> MessageValue | None:
    """The value of a record whose key is of that type; None for a tombstone.

    Raises:
        UnsupportedVersionError: the type or the value's version is unknown.
        CorruptError: the value is malformed.
    """
    return TRANSACTION_RECORDS.decode_value(record_type, value)


def transaction_json(value: MessageValue) -> dict[str, Any]:
    """The fields of a value as Kafka's tools print them: with the state's name, if it has one.

    Source: DumpLogSegments.TransactionLogMessageParser, TransactionLogMessageFormatter.
    """
    number = value.fields["transactionStatus"]
    return {**message_json(value), "transactionStatus": STATE_NAMES.get(number, str(number))}
