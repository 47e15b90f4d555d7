"""UpdateFeatures (57), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message UpdateFeaturesRequest key=57 versions=0-2 flexible=0+
  timeoutMs int32 default=60000
  featureUpdates []FeatureUpdateKey
    feature string
    maxVersionLevel int16
    allowDowngrade bool 0
    upgradeType int8 1+ default=1
  validateOnly bool 1+

message UpdateFeaturesResponse key=57 versions=0-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
  results []UpdatableFeatureResult 0-1
    feature string
    errorCode int16
    errorMessage string?
"""


class UpdateFeaturesRequest(Message):
    """The request in every version."""

    timeout_ms: int
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool


class FeatureUpdateKey(Message):
    """An element of `feature_updates` of UpdateFeaturesRequest."""

    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int


class UpdateFeaturesResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdatableFeatureResult]


class UpdatableFeatureResult(Message):
    """An element of `results` of UpdateFeaturesResponse."""

    feature: str
    error_code: int
    error_message: str | None
