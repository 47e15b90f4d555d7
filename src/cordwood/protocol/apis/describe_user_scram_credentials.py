"""DescribeUserScramCredentials (50), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeUserScramCredentialsRequest key=50 versions=0 flexible=0+
  users []UserName?
    name string

message DescribeUserScramCredentialsResponse key=50 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
  results []DescribeUserScramCredentialsResult
    user string
    errorCode int16
    errorMessage string?
    credentialInfos []CredentialInfo
      mechanism int8
      iterations int32
"""


class DescribeUserScramCredentialsRequest(Message):
    """The request in every version."""

    users: list[UserName] | None


class UserName(Message):
    """An element of `users` of DescribeUserScramCredentialsRequest."""

    name: str


class DescribeUserScramCredentialsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsResult(Message):
    """An element of `results` of DescribeUserScramCredentialsResponse."""

    user: str
    error_code: int
    error_message: str | None
    credential_infos: list[CredentialInfo]


class CredentialInfo(Message):
    """An element of `credential_infos` of DescribeUserScramCredentialsResult."""

    mechanism: int
    iterations: int
