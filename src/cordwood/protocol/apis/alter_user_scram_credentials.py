"""AlterUserScramCredentials (51), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterUserScramCredentialsRequest key=51 versions=0 flexible=0+
  deletions []ScramCredentialDeletion
    name string
    mechanism int8
  upsertions []ScramCredentialUpsertion
    name string
    mechanism int8
    iterations int32
    salt bytes
    saltedPassword bytes

message AlterUserScramCredentialsResponse key=51 versions=0 flexible=0+
  throttleTimeMs int32
  results []AlterUserScramCredentialsResult
    user string
    errorCode int16
    errorMessage string?
"""


class AlterUserScramCredentialsRequest(Message):
    """The request in every version."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class ScramCredentialDeletion(Message):
    """An element of `deletions` of AlterUserScramCredentialsRequest."""

    name: str
    mechanism: int


class ScramCredentialUpsertion(Message):
    """An element of `upsertions` of AlterUserScramCredentialsRequest."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResult]


class AlterUserScramCredentialsResult(Message):
    """An element of `results` of AlterUserScramCredentialsResponse."""

    user: str
    error_code: int
    error_message: str | None
