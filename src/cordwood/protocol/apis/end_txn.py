"""EndTxn (26), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message EndTxnRequest key=26 versions=0-5 flexible=3+
  transactionalId string
  producerId int64
  producerEpoch int16
  committed bool

message EndTxnResponse key=26 versions=0-5 flexible=3+
  throttleTimeMs int32
  errorCode int16
  producerId int64 5+ default=-1
  producerEpoch int16 5+ default=-1
"""


class EndTxnRequest(Message):
    """The request in every version."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
