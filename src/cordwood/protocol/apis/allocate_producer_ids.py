"""AllocateProducerIds (67), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AllocateProducerIdsRequest key=67 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64 default=-1

message AllocateProducerIdsResponse key=67 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  producerIdStart int64
  producerIdLen int32
"""


class AllocateProducerIdsRequest(Message):
    """The request in every version."""

    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
