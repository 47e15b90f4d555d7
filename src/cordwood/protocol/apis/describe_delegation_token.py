"""DescribeDelegationToken (41), versions 1 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeDelegationTokenRequest key=41 versions=1-3 flexible=2+
  owners []DescribeDelegationTokenOwner?
    principalType string
    principalName string

message DescribeDelegationTokenResponse key=41 versions=1-3 flexible=2+
  errorCode int16
  tokens []DescribedDelegationToken
    principalType string
    principalName string
    tokenRequesterPrincipalType string 3+
    tokenRequesterPrincipalName string 3+
    issueTimestamp int64
    expiryTimestamp int64
    maxTimestamp int64
    tokenId string
    hmac bytes
    renewers []DescribedDelegationTokenRenewer
      principalType string
      principalName string
  throttleTimeMs int32
"""


class DescribeDelegationTokenRequest(Message):
    """The request in every version."""

    owners: list[DescribeDelegationTokenOwner] | None


class DescribeDelegationTokenOwner(Message):
    """An element of `owners` of DescribeDelegationTokenRequest."""

    principal_type: str
    principal_name: str


class DescribeDelegationTokenResponse(Message):
    """The response in every version."""

    error_code: int
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: int


class DescribedDelegationToken(Message):
    """An element of `tokens` of DescribeDelegationTokenResponse."""

    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribedDelegationTokenRenewer(Message):
    """An element of `renewers` of DescribedDelegationToken."""

    principal_type: str
    principal_name: str
