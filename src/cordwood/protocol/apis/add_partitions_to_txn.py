"""AddPartitionsToTxn (24), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AddPartitionsToTxnRequest key=24 versions=0-5 flexible=3+
  transactions []AddPartitionsToTxnTransaction 4+
    transactionalId string
    producerId int64
    producerEpoch int16
    verifyOnly bool
    topics []AddPartitionsToTxnTopic
      name string
      partitions []int32
  v3AndBelowTransactionalId string 0-3
  v3AndBelowProducerId int64 0-3
  v3AndBelowProducerEpoch int16 0-3
  v3AndBelowTopics []AddPartitionsToTxnTopic 0-3
    name string
    partitions []int32

message AddPartitionsToTxnResponse key=24 versions=0-5 flexible=3+
  throttleTimeMs int32
  errorCode int16 4+
  resultsByTransaction []AddPartitionsToTxnResult 4+
    transactionalId string
    topicResults []AddPartitionsToTxnTopicResult
      name string
      resultsByPartition []AddPartitionsToTxnPartitionResult
        partitionIndex int32
        partitionErrorCode int16
  resultsByTopicV3AndBelow []AddPartitionsToTxnTopicResult 0-3
    name string
    resultsByPartition []AddPartitionsToTxnPartitionResult
      partitionIndex int32
      partitionErrorCode int16
"""


class AddPartitionsToTxnRequest(Message):
    """The request in every version."""

    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTransaction(Message):
    """An element of `transactions` of AddPartitionsToTxnRequest."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Message):
    """An element of `topics` of AddPartitionsToTxnTransaction."""

    name: str
    partitions: list[int]


class AddPartitionsToTxnResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResult(Message):
    """An element of `results_by_transaction` of AddPartitionsToTxnResponse."""

    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Message):
    """An element of `topic_results` of AddPartitionsToTxnResult."""

    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Message):
    """An element of `results_by_partition` of AddPartitionsToTxnTopicResult."""

    partition_index: int
    partition_error_code: int
