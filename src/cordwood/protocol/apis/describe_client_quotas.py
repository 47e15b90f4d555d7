"""DescribeClientQuotas (48), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeClientQuotasRequest key=48 versions=0-1 flexible=1+
  components []ComponentData
    entityType string
    matchType int8
    match string?
  strict bool

message DescribeClientQuotasResponse key=48 versions=0-1 flexible=1+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
  entries []EntryData?
    entity []EntityData
      entityType string
      entityName string?
    values []ValueData
      key string
      value float64
"""


class DescribeClientQuotasRequest(Message):
    """The request in every version."""

    components: list[ComponentData]
    strict: bool


class ComponentData(Message):
    """An element of `components` of DescribeClientQuotasRequest."""

    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None


class EntryData(Message):
    """An element of `entries` of DescribeClientQuotasResponse."""

    entity: list[EntityData]
    values: list[ValueData]


class EntityData(Message):
    """An element of `entity` of EntryData."""

    entity_type: str
    entity_name: str | None


class ValueData(Message):
    """An element of `values` of EntryData."""

    key: str
    value: float
