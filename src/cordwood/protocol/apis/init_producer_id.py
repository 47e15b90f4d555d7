"""InitProducerId (22), versions 0 to 6.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message InitProducerIdRequest key=22 versions=0-6 flexible=2+
  transactionalId string?
  transactionTimeoutMs int32
  producerId int64 3+ default=-1
  producerEpoch int16 3+ default=-1
  enable2Pc bool 6+
  keepPreparedTxn bool 6+

message InitProducerIdResponse key=22 versions=0-6 flexible=2+
  throttleTimeMs int32
  errorCode int16
  producerId int64 default=-1
  producerEpoch int16
  ongoingTxnProducerId int64 6+ default=-1
  ongoingTxnProducerEpoch int16 6+ default=-1
"""


class InitProducerIdRequest(Message):
    """The request in every version."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool


class InitProducerIdResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
