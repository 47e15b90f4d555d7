"""ApiVersions (18), versions 0 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ApiVersionsRequest key=18 versions=0-4 flexible=3+
  clientSoftwareName string 3+
  clientSoftwareVersion string 3+

message ApiVersionsResponse key=18 versions=0-4 flexible=3+
  errorCode int16
  apiKeys []ApiVersion
    apiKey int16
    minVersion int16
    maxVersion int16
  throttleTimeMs int32 1+
  supportedFeatures []SupportedFeatureKey 3+ tag=0
    name string
    minVersion int16
    maxVersion int16
  finalizedFeaturesEpoch int64 3+ tag=1 default=-1
  finalizedFeatures []FinalizedFeatureKey 3+ tag=2
    name string
    maxVersionLevel int16
    minVersionLevel int16
  zkMigrationReady bool 3+ tag=3
"""


class ApiVersionsRequest(Message):
    """The request in every version."""

    client_software_name: str
    client_software_version: str


class ApiVersionsResponse(Message):
    """The response in every version."""

    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool


class ApiVersion(Message):
    """An element of `api_keys` of ApiVersionsResponse."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(Message):
    """An element of `supported_features` of ApiVersionsResponse."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeatureKey(Message):
    """An element of `finalized_features` of ApiVersionsResponse."""

    name: str
    max_version_level: int
    min_version_level: int
