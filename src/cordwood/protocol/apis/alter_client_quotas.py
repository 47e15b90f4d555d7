"""AlterClientQuotas (49), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterClientQuotasRequest key=49 versions=0-1 flexible=1+
  entries []EntryData
    entity []EntityData
      entityType string
      entityName string?
    ops []OpData
      key string
      value float64
      remove bool
  validateOnly bool

message AlterClientQuotasResponse key=49 versions=0-1 flexible=1+
  throttleTimeMs int32
  entries []AlterClientQuotasResponseEntryData
    errorCode int16
    errorMessage string?
    entity []EntityData
      entityType string
      entityName string?
"""


class AlterClientQuotasRequest(Message):
    """The request in every version."""

    entries: list[EntryData]
    validate_only: bool


class EntryData(Message):
    """An element of `entries` of AlterClientQuotasRequest."""

    entity: list[EntityData]
    ops: list[OpData]


class EntityData(Message):
    """An element of `entity` of EntryData."""

    entity_type: str
    entity_name: str | None


class OpData(Message):
    """An element of `ops` of EntryData."""

    key: str
    value: float
    remove: bool


class AlterClientQuotasResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    entries: list[AlterClientQuotasResponseEntryData]


class AlterClientQuotasResponseEntryData(Message):
    """An element of `entries` of AlterClientQuotasResponse."""

    error_code: int
    error_message: str | None
    entity: list[EntityData]
