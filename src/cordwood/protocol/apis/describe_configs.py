"""DescribeConfigs (32), versions 1 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeConfigsRequest key=32 versions=1-4 flexible=4+
  resources []DescribeConfigsResource
    resourceType int8
    resourceName string
    configurationKeys []string?
  includeSynonyms bool
  includeDocumentation bool 3+

message DescribeConfigsResponse key=32 versions=1-4 flexible=4+
  throttleTimeMs int32
  results []DescribeConfigsResult
    errorCode int16
    errorMessage string?
    resourceType int8
    resourceName string
    configs []DescribeConfigsResourceResult
      name string
      value string?
      readOnly bool
      configSource int8 default=-1
      isSensitive bool
      synonyms []DescribeConfigsSynonym
        name string
        value string?
        source int8
      configType int8 3+
      documentation string? 3+
"""


class DescribeConfigsRequest(Message):
    """The request in every version."""

    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsResource(Message):
    """An element of `resources` of DescribeConfigsRequest."""

    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[DescribeConfigsResult]


class DescribeConfigsResult(Message):
    """An element of `results` of DescribeConfigsResponse."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResourceResult(Message):
    """An element of `configs` of DescribeConfigsResult."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsSynonym(Message):
    """An element of `synonyms` of DescribeConfigsResourceResult."""

    name: str
    value: str | None
    source: int
