"""WriteTxnMarkers (27), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message WriteTxnMarkersRequest key=27 versions=1-2 flexible=1+
  markers []WritableTxnMarker
    producerId int64
    producerEpoch int16
    transactionResult bool
    topics []WritableTxnMarkerTopic
      name string
      partitionIndexes []int32
    coordinatorEpoch int32
    transactionVersion int8 2+

message WriteTxnMarkersResponse key=27 versions=1-2 flexible=1+
  markers []WritableTxnMarkerResult
    producerId int64
    topics []WritableTxnMarkerTopicResult
      name string
      partitions []WritableTxnMarkerPartitionResult
        partitionIndex int32
        errorCode int16
"""


class WriteTxnMarkersRequest(Message):
    """The request in every version."""

    markers: list[WritableTxnMarker]


class WritableTxnMarker(Message):
    """An element of `markers` of WriteTxnMarkersRequest."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int


class WritableTxnMarkerTopic(Message):
    """An element of `topics` of WritableTxnMarker."""

    name: str
    partition_indexes: list[int]


class WriteTxnMarkersResponse(Message):
    """The response in every version."""

    markers: list[WritableTxnMarkerResult]


class WritableTxnMarkerResult(Message):
    """An element of `markers` of WriteTxnMarkersResponse."""

    producer_id: int
    topics: list[WritableTxnMarkerTopicResult]


class WritableTxnMarkerTopicResult(Message):
    """An element of `topics` of WritableTxnMarkerResult."""

    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerPartitionResult(Message):
    """An element of `partitions` of WritableTxnMarkerTopicResult."""

    partition_index: int
    error_code: int
