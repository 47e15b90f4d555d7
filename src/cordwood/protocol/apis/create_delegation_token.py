"""CreateDelegationToken (38), versions 1 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message CreateDelegationTokenRequest key=38 versions=1-3 flexible=2+
  ownerPrincipalType string? 3+
  ownerPrincipalName string? 3+
  renewers []CreatableRenewers
    principalType string
    principalName string
  maxLifetimeMs int64

message CreateDelegationTokenResponse key=38 versions=1-3 flexible=2+
  errorCode int16
  principalType string
  principalName string
  tokenRequesterPrincipalType string 3+
  tokenRequesterPrincipalName string 3+
  issueTimestampMs int64
  expiryTimestampMs int64
  maxTimestampMs int64
  tokenId string
  hmac bytes
  throttleTimeMs int32
"""


class CreateDelegationTokenRequest(Message):
    """The request in every version."""

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int


class CreatableRenewers(Message):
    """An element of `renewers` of CreateDelegationTokenRequest."""

    principal_type: str
    principal_name: str


class CreateDelegationTokenResponse(Message):
    """The response in every version."""

    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
