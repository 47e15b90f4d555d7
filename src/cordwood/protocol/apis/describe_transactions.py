"""DescribeTransactions (65), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeTransactionsRequest key=65 versions=0 flexible=0+
  transactionalIds []string

message DescribeTransactionsResponse key=65 versions=0 flexible=0+
  throttleTimeMs int32
  transactionStates []TransactionState
    errorCode int16
    transactionalId string
    transactionState string
    transactionTimeoutMs int32
    transactionStartTimeMs int64
    producerId int64
    producerEpoch int16
    topics []TopicData
      topic string
      partitions []int32
"""


class DescribeTransactionsRequest(Message):
    """The request in every version."""

    transactional_ids: list[str]


class DescribeTransactionsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    transaction_states: list[TransactionState]


class TransactionState(Message):
    """An element of `transaction_states` of DescribeTransactionsResponse."""

    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: list[TopicData]


class TopicData(Message):
    """An element of `topics` of TransactionState."""

    topic: str
    partitions: list[int]
