"""AddOffsetsToTxn (25), versions 0 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AddOffsetsToTxnRequest key=25 versions=0-4 flexible=3+
  transactionalId string
  producerId int64
  producerEpoch int16
  groupId string

message AddOffsetsToTxnResponse key=25 versions=0-4 flexible=3+
  throttleTimeMs int32
  errorCode int16
"""


class AddOffsetsToTxnRequest(Message):
    """The request in every version."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
