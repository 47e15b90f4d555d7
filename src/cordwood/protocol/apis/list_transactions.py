"""ListTransactions (66), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ListTransactionsRequest key=66 versions=0-2 flexible=0+
  stateFilters []string
  producerIdFilters []int64
  durationFilter int64 1+ default=-1
  transactionalIdPattern string? 2+ default=null

message ListTransactionsResponse key=66 versions=0-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  unknownStateFilters []string
  transactionStates []TransactionState
    transactionalId string
    producerId int64
    transactionState string
"""


class ListTransactionsRequest(Message):
    """The request in every version."""

    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None


class ListTransactionsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]


class TransactionState(Message):
    """An element of `transaction_states` of ListTransactionsResponse."""

    transactional_id: str
    producer_id: int
    transaction_state: str
